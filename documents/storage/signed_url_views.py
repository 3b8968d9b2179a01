"""Views behind this project's own signed URLs: upload and download of objects, streamed."""

import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core import signing
from django.core.files.storage import storages
from django.http import FileResponse, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.views import View

from accounts.common_error_codes import METHOD_NOT_ALLOWED, not_found
from accounts.errors import ApiError
from documents import error_codes, services
from documents.models import Document
from documents.storage.buckets import BUCKETS, SIGNING_SALT, UploadRejected, storage_error

READ_BYTES = 64 * 1024


class SignedUrlView(View):
    """No login: the URL permits the one request that it was signed for, until it expires."""

    streams_body = True

    def put(self, request: HttpRequest, bucket: str, name: str) -> HttpResponse:
        terms = _signed_terms(request, "PUT", bucket, name)
        if request.headers.get("Content-Length", str(terms["length"])) != str(terms["length"]):
            raise UploadRejected(error_codes.LENGTH_MISMATCH)
        if request.content_type and request.content_type != terms["mime"].lower():
            raise ApiError(error_codes.TYPE_MISMATCH, "The content type is not the one that was declared.")
        document = Document.objects.filter(pk=Path(name).stem).first()
        if document is None:
            raise not_found()
        services.store_upload(document, _read_body(request))
        return HttpResponse(status=HTTPStatus.OK)

    def get(self, request: HttpRequest, bucket: str, name: str) -> FileResponse:
        terms = _signed_terms(request, "GET", bucket, name)
        try:
            file = storages[bucket].open(name, "rb")
        except FileNotFoundError:
            raise not_found() from None
        response = FileResponse(file, as_attachment=True, filename=terms["filename"])
        # A tenant's file is never interpreted on our origin, whatever it contains.
        response["Content-Security-Policy"] = "default-src 'none'; sandbox"
        response["Cache-Control"] = "private, no-store"
        return response

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().dispatch(request, *args, **kwargs)
        except UploadRejected as rejected:
            error = ApiError(rejected.code)
        except (UnreadablePostError, TimeoutError):
            error = ApiError(error_codes.UPLOAD_INTERRUPTED)
        except ApiError as api_error:
            error = api_error
        except OSError as os_error:  # the disk is full or missing
            error = storage_error(os_error)
        return JsonResponse(error.body, status=error.status, headers=error.headers)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        error = ApiError(METHOD_NOT_ALLOWED)
        return JsonResponse(error.body, status=error.status, headers={"Allow": "GET, HEAD, OPTIONS, PUT"})


def _signed_terms(request: HttpRequest, method: str, bucket: str, name: str) -> dict[str, Any]:
    """Return the signed terms; raise ``ApiError`` when the URL is altered, expired or for another request."""
    try:
        terms = signing.loads(request.GET.get("token", ""), salt=SIGNING_SALT, max_age=settings.SIGNED_URL_SECONDS)
    except signing.SignatureExpired:
        raise ApiError(error_codes.URL_EXPIRED) from None
    except signing.BadSignature:
        raise ApiError(error_codes.URL_NOT_VALID) from None
    if bucket not in BUCKETS or (terms["method"], terms["bucket"], terms["name"]) != (method, bucket, name):
        raise ApiError(error_codes.URL_NOT_VALID)
    return cast(dict[str, Any], terms)


def _read_body(request: HttpRequest) -> Iterator[bytes]:
    """Yield the body; raise ``TimeoutError`` when the URL expires: a slow client must not occupy a thread for ever."""
    until = time.monotonic() + settings.SIGNED_URL_SECONDS
    while piece := request.read(READ_BYTES):
        if time.monotonic() > until:
            raise TimeoutError
        yield piece
