"""``POST /webhooks/llamaparse``: the signature first, then one transaction, then 2xx.

| the callback                                                    | answer                       | effect             |
|-----------------------------------------------------------------|------------------------------|--------------------|
| has no signature, a wrong one, those of two schemes             | 401 INVALID_SIGNATURE        | none, and no query |
| was sent more than 5 minutes ago, or will be                    | 401 INVALID_SIGNATURE        | none, and no query |
| is larger than 16 MB                                            | 413 BODY_TOO_LARGE           | none, and no query |
| is signed, but no payload that is known here                    | 400 INVALID_REQUEST          | none, and no query |
| brings content that is not what its sha256 and bytes say        | 422 ARTIFACT_MISMATCH        | none, and no query |
| tells a parse's end: success, error, partial_success, cancelled | 200 JOB_WOKEN                | the job fetches it |
| tells its end late: collected meanwhile, or failed              | 200 ALREADY_ENDED            | none               |
| tells a beginning, before or after its end, or what we never do | 200 EVENT_IGNORED            | none               |
| is for a job that is not known, or not yet                      | 404 CALLBACK_UNKNOWN_JOB     | none               |
| brings the content                                              | 200 PARSE_STORED             | the job goes on    |
| brings it again under another id                                | 200 ALREADY_PARSED           | none               |
| brings another content than was stored                          | 409 CALLBACK_CONTRADICTS     | none               |
| brings content to a job that waits for none                     | 409 JOB_NOT_PARSING          | none               |
| says that our own job's parse has not gone well                 | 200 JOB_WOKEN                | the job looks      |
| repeats one that was answered 200 within 24 hours               | 200, the same answer         | none               |
| repeats its id with another body                                | 409 CALLBACK_CONTRADICTS     | none               |
| is good, but our database or store is away                      | 503, 507 with Retry-After    | none               |

Only 200 is remembered: whatever else was answered is judged anew when it is sent again.
"""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.views import View

from accounts.errors import BODY_TOO_LARGE, ApiError
from documents.storage import storage_error
from vendors.webhook_secrets import webhook_secrets
from webhooks import services, verifiers
from webhooks.error_codes import BODY_INTERRUPTED

log = logging.getLogger("accessa.webhooks")

LARGEST_BODY = 16 * 1024 * 1024  # a callback may carry a whole parsed document
READING_SECONDS = 30.0  # longer than LlamaCloud itself would wait
PIECE = 64 * 1024


class LlamaParseView(View):
    """No login and no cookie: whoever has the secret may speak."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        verifier = verifiers.select_verifier(
            request.headers
        )  # before the body: without a signature nobody is listened to
        body = _body(request)
        verified = verifier.verify(request.headers, body, secrets=webhook_secrets(), now=time.time())
        code = services.accept_callback(verified, body)
        log.info("Callback: %s", code)
        return JsonResponse({"code": code})

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().dispatch(request, *args, **kwargs)
        except (UnreadablePostError, TimeoutError):
            refusal = ApiError(BODY_INTERRUPTED)
        except ApiError as refused:
            refusal = refused
        except OSError as error:  # the store
            refusal = storage_error(error)
        log.warning("Callback refused: %s", refusal.code)
        headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
        return JsonResponse(refusal.body, status=refusal.status, headers=headers)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        body = {"code": "METHOD_NOT_ALLOWED", "detail": "This method is not allowed here."}
        return JsonResponse(body, status=HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "POST"})


def _body(request: HttpRequest) -> bytes:
    """Return the body as it was sent, but never more than ``LARGEST_BODY`` bytes of it, nor for ever.

    ``request.body`` would refuse what is larger than the API's JSON may be.
    """
    declared = request.headers.get("Content-Length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > LARGEST_BODY:
        raise _too_large()
    until, body = time.monotonic() + READING_SECONDS, bytearray()
    while piece := request.read(PIECE):
        body += piece
        if len(body) > LARGEST_BODY:
            raise _too_large()
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(body)


def _too_large() -> ApiError:
    return ApiError(BODY_TOO_LARGE)
