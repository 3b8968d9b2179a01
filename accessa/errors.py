"""One shape for every error of the API: ``code``, ``detail``, and ``field`` where there is one. Browsers get pages."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db.utils import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from accounts.errors import ApiError, not_found
from documents.storage import storage_error
from jobs import tracing
from jobs.errors import safe_traceback
from portal import error_pages

log = logging.getLogger("accessa.api")

AWAY_SECONDS = 5
AWAY = {"code": "UNAVAILABLE", "detail": "The service cannot reach its database; try again shortly."}
CODES: dict[type[exceptions.APIException], tuple[str, str]] = {
    exceptions.NotAuthenticated: ("NOT_AUTHENTICATED", "Send a bearer token."),
    exceptions.AuthenticationFailed: ("INVALID_TOKEN", "The token is not valid."),
    exceptions.PermissionDenied: ("FORBIDDEN", "You may not do this."),
    exceptions.MethodNotAllowed: ("METHOD_NOT_ALLOWED", "This method is not allowed here."),
    exceptions.ParseError: ("MALFORMED_JSON", "The body is not valid JSON."),
    exceptions.UnsupportedMediaType: ("UNSUPPORTED_MEDIA_TYPE", "Send application/json."),
    exceptions.NotAcceptable: ("NOT_ACCEPTABLE", "Only application/json is answered here."),
    exceptions.NotFound: ("NOT_FOUND", "There is no such thing here."),
}


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Turn whatever a view raised into the one shape; what nobody foresaw is logged by its frames and shown as 500."""
    set_rollback()
    refusal = _refusal(error)
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    if isinstance(error, exceptions.APIException) and refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = getattr(error, "auth_header", "Bearer")
    return Response(refusal.body, status=refusal.status, headers=headers)


def _refusal(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case Http404():
            return not_found()
        case PermissionDenied():
            return ApiError("FORBIDDEN", "You may not do this.", status=HTTPStatus.FORBIDDEN)
        case RequestDataTooBig():
            return ApiError("BODY_TOO_LARGE", "The body is too large.", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        case exceptions.ValidationError():
            return _invalid(error)
        case exceptions.APIException():
            code, detail = CODES.get(type(error), ("REFUSED", "The request cannot be granted."))
            return ApiError(code, detail, status=error.status_code)
        case OperationalError() | InterfaceError():
            return ApiError(**AWAY, status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after=AWAY_SECONDS)
        case OSError():
            return storage_error(error)
    log.error("Unforeseen: %s", safe_traceback(error), extra={"reported": True})
    tracing.report_error(error)
    return ApiError("INTERNAL", "Something went wrong on our side.", status=HTTPStatus.INTERNAL_SERVER_ERROR)


def _invalid(error: exceptions.ValidationError) -> ApiError:
    """Name the first field that is wrong; DRF's nested lists are no shape for a client to branch on."""
    detail: Any = error.detail
    field = None
    while isinstance(detail, (dict, list)) and detail:
        if isinstance(detail, dict):
            key, detail = next(iter(detail.items()))
            field = field or (key if key != "non_field_errors" else None)
        else:
            detail = detail[0]
    return ApiError("INVALID_REQUEST", str(detail), field=field)


def not_found_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, not_found())


def bad_request_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, ApiError("INVALID_REQUEST", "The request cannot be read."))


def forbidden_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, ApiError("FORBIDDEN", "You may not do this.", status=HTTPStatus.FORBIDDEN))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without its secret: a page that was open for too long, or somebody else's form."""
    detail = "This form is no longer valid. Go back, load the page again and try once more."
    return error_response(request, ApiError("FORM_EXPIRED", detail, status=HTTPStatus.FORBIDDEN))


def server_error_page(request: HttpRequest) -> HttpResponse:
    detail = "Something went wrong on our side."
    return error_response(request, ApiError("INTERNAL", detail, status=HTTPStatus.INTERNAL_SERVER_ERROR))


def database_unavailable(request: HttpRequest) -> HttpResponse:
    return error_response(request, ApiError(**AWAY, status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after=AWAY_SECONDS))


def error_response(request: HttpRequest, refusal: ApiError) -> HttpResponse:
    """Answer a refusal outside of the API's views: as a page to who asks for pages, in the one shape to all others."""
    if error_pages.wants_page(request):
        return error_pages.page(request, refusal)
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    return JsonResponse(refusal.body, status=refusal.status, headers=headers)
