"""View of ``POST /webhooks/llamaparse``: the signature first, then one transaction, then 2xx.

| the callback                                                    | response                     | effect             |
|-----------------------------------------------------------------|------------------------------|--------------------|
| has no signature, a wrong one, those of two schemes             | 401 INVALID_SIGNATURE        | none, and no query |
| was sent more than 5 minutes ago, or in the future              | 401 INVALID_SIGNATURE        | none, and no query |
| is larger than 16 MB                                            | 413 BODY_TOO_LARGE           | none, and no query |
| is signed, but has an unknown payload                           | 400 INVALID_REQUEST          | none, and no query |
| brings content that does not match its sha256 and bytes         | 422 ARTIFACT_MISMATCH        | none, and no query |
| ends a parse: success, error, partial_success, cancelled        | 200 JOB_WOKEN                | the job fetches it |
| ends it late: fetched meanwhile, or failed                      | 200 ALREADY_ENDED            | none               |
| starts a parse, before or after its end, or is of another kind  | 200 EVENT_IGNORED            | none               |
| is for a job that is not known, or not yet                      | 404 CALLBACK_UNKNOWN_JOB     | none               |
| brings the content                                              | 200 PARSE_STORED             | the job goes on    |
| brings it again under another id                                | 200 ALREADY_PARSED           | none               |
| brings another content than was stored                          | 409 CALLBACK_CONTRADICTS     | none               |
| brings content to a job that does not wait for any              | 409 JOB_NOT_PARSING          | none               |
| reports that our own job's parse has failed                     | 200 JOB_WOKEN                | the job asks       |
| repeats one that was answered 200 within 24 hours               | 200, the same code           | none               |
| repeats its id with another body                                | 409 CALLBACK_CONTRADICTS     | none               |
| is valid, but our database or storage is away                   | 503, 507 with Retry-After    | none               |

Only 200 is remembered: a callback that was answered otherwise is handled from the start when it is sent again.
"""

import logging
import time
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.views import View

from accounts.common_error_codes import BODY_TOO_LARGE, METHOD_NOT_ALLOWED
from accounts.errors import ApiError
from documents.storage.buckets import storage_error
from vendors.webhook_secrets import webhook_secrets
from webhooks import callbacks, verifiers
from webhooks.error_codes import BODY_INTERRUPTED

log = logging.getLogger("accessa.webhooks")

MAX_BODY_BYTES = 16 * 1024 * 1024  # a callback may carry a whole parsed document
BODY_TIMEOUT_SECONDS = 30.0  # longer than LlamaCloud itself would wait
CHUNK_BYTES = 64 * 1024


class LlamaParseView(View):
    """No login and no cookie: the signature is the permission."""

    http_method_names = ["post"]
    streams_body = True

    def post(self, request: HttpRequest) -> HttpResponse:
        verifier = verifiers.select_verifier(request.headers)  # before the body, which is read of signed requests only
        body = _read_body(request)
        verified = verifier.verify(request.headers, body, secrets=webhook_secrets(), now=time.time())
        code = callbacks.accept_callback(verified, body)
        log.info("Callback: %s", code)
        return JsonResponse({"code": code})

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().dispatch(request, *args, **kwargs)
        except (UnreadablePostError, TimeoutError):
            error = ApiError(BODY_INTERRUPTED)
        except ApiError as api_error:
            error = api_error
        except OSError as os_error:  # the storage
            error = storage_error(os_error)
        log.warning("Callback refused: %s", error.code)
        return JsonResponse(error.body, status=error.status, headers=error.headers)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        error = ApiError(METHOD_NOT_ALLOWED)
        return JsonResponse(error.body, status=error.status, headers={"Allow": "POST"})


def _read_body(request: HttpRequest) -> bytes:
    """Return the body, of at most ``MAX_BODY_BYTES``, read within ``BODY_TIMEOUT_SECONDS``.

    ``request.body`` would refuse a body that is larger than the API's JSON may be.
    """
    length = request.headers.get("Content-Length", "")
    if length.isascii() and length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise ApiError(BODY_TOO_LARGE)
    until, body = time.monotonic() + BODY_TIMEOUT_SECONDS, bytearray()
    while chunk := request.read(CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(BODY_TOO_LARGE)
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(body)
