"""Request bodies: refusal of charsets other than UTF-8 and of multipart forms, bodies without Content-Length."""

import sys
from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.core.handlers.wsgi import LimitedStream, WSGIRequest
from django.http import HttpRequest, HttpResponse, UnreadablePostError

from accessa.error_responses import error_response
from accounts.common_error_codes import BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE
from accounts.errors import ApiError
from documents.error_codes import LENGTH_REQUIRED
from webhooks.error_codes import BODY_INTERRUPTED

UTF8_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})
MAX_HEADER_CHARS = 256  # Django parses the header in quadratic time: 8 KB of semicolons take a quarter of a second
DETAIL = "Send UTF-8, and forms as application/x-www-form-urlencoded."


def is_supported(content_type: str) -> bool:
    """Tell whether a body of this Content-Type is decoded as UTF-8 and in linear time.

    The charset selects a codec, and some are quadratic: punycode takes 16 s for 250 KB. A multipart form selects
    codecs by the headers of its parts as well (RFC 2231), and no page sends one.
    """
    media_type, *parameters = content_type.lower().split(";")
    if len(content_type) > MAX_HEADER_CHARS or media_type.strip().startswith("multipart/"):
        return False
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if "*" in name or (name.strip() == "charset" and value.strip(' \t"') not in UTF8_CHARSETS):
            return False
    return True


class Utf8Request(WSGIRequest):
    """Leaves a header that ``RequestBodyMiddleware`` refuses unparsed.

    Django would raise an error for some, and Python keeps each unknown charset in memory.
    """

    def _set_content_type_params(self, meta: dict[str, Any]) -> None:
        if is_supported(meta.get("CONTENT_TYPE", "")):
            super()._set_content_type_params(meta)  # type: ignore[misc]
        else:
            self.content_type, self.content_params = "", {}


class RequestBodyMiddleware:
    """Stands before everything that reads a body or a query: the CSRF check parses forms."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not is_supported(request.META.get("CONTENT_TYPE", "")):
            return error_response(request, ApiError(UNSUPPORTED_MEDIA_TYPE, DETAIL))
        if request.encoding:
            request.encoding = "utf-8"  # by whatever name
        if _is_chunked(request):
            if not request.META.get("wsgi.input_terminated"):  # the end of the body would not be found
                return error_response(request, ApiError(LENGTH_REQUIRED))
            request._stream = LimitedStream(request.META["wsgi.input"], sys.maxsize)  # type: ignore[assignment]
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """Read a body of unknown length, up to the limit of all bodies that are not streamed."""
        if not _is_chunked(request) or getattr(getattr(view, "view_class", None), "streams_body", False):
            return None
        try:
            request.META["CONTENT_LENGTH"] = str(len(request.body))  # parsers take a body without it for an empty one
        except RequestDataTooBig:
            return error_response(request, ApiError(BODY_TOO_LARGE))
        except UnreadablePostError:
            return error_response(request, ApiError(BODY_INTERRUPTED))
        return None


def _is_chunked(request: HttpRequest) -> bool:
    return "HTTP_TRANSFER_ENCODING" in request.META
