"""Error responses: exceptions as ``code``, ``detail`` and ``field`` for API clients, and as pages for browsers."""

import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db.utils import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from accounts import common_error_codes
from accounts.errors import ApiError
from console import error_pages as staff_pages
from documents.storage.buckets import storage_error
from jobs import telemetry
from jobs.safe_errors import safe_traceback
from portal import error_pages

log = logging.getLogger("accessa.api")

CODES = {
    exceptions.NotAuthenticated: common_error_codes.NOT_AUTHENTICATED,
    exceptions.AuthenticationFailed: common_error_codes.INVALID_TOKEN,
    exceptions.PermissionDenied: common_error_codes.FORBIDDEN,
    exceptions.MethodNotAllowed: common_error_codes.METHOD_NOT_ALLOWED,
    exceptions.ParseError: common_error_codes.MALFORMED_JSON,
    exceptions.UnsupportedMediaType: common_error_codes.UNSUPPORTED_MEDIA_TYPE,
    exceptions.NotAcceptable: common_error_codes.NOT_ACCEPTABLE,
    exceptions.NotFound: common_error_codes.NOT_FOUND,
}


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Return the response to an exception of a view. An unexpected one is logged without its values and answers 500."""
    set_rollback()
    answered = api_error(error)
    headers = answered.headers
    if isinstance(error, exceptions.APIException) and answered.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = getattr(error, "auth_header", "Bearer")
    return Response(answered.body, status=answered.status, headers=headers)


def api_error(error: Exception) -> ApiError:
    """Return an exception as the error that is answered. An unexpected one is logged without its values."""
    match error:
        case ApiError():
            return error
        case Http404():
            return common_error_codes.not_found()
        case PermissionDenied():
            return ApiError(common_error_codes.FORBIDDEN)
        case RequestDataTooBig():
            return ApiError(common_error_codes.BODY_TOO_LARGE)
        case exceptions.ValidationError():
            return _invalid_request(error)
        case exceptions.APIException():
            answered = ApiError(CODES.get(type(error), common_error_codes.REFUSED))
            answered.status = error.status_code
            return answered
        case OperationalError() | InterfaceError():
            return common_error_codes.unavailable()
        case OSError():
            return storage_error(error)
    log.error("Unforeseen: %s", safe_traceback(error), extra={"reported": True})
    telemetry.report_error(error)
    return ApiError(common_error_codes.INTERNAL)


def _invalid_request(error: exceptions.ValidationError) -> ApiError:
    """Name the first invalid field: clients cannot branch on REST framework's nested lists."""
    detail: Any = error.detail
    field = None
    while isinstance(detail, (dict, list)) and detail:
        if isinstance(detail, dict):
            key, detail = next(iter(detail.items()))
            field = field or (key if key != "non_field_errors" else None)
        else:
            detail = detail[0]
    return ApiError(common_error_codes.INVALID_REQUEST, str(detail), field=field)


def not_found_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, common_error_codes.not_found())


def bad_request_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, ApiError(common_error_codes.INVALID_REQUEST))


def forbidden_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, ApiError(common_error_codes.FORBIDDEN))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without a valid CSRF token: the page was open for too long, or another site sent it."""
    return error_response(request, ApiError(common_error_codes.FORM_EXPIRED))


def server_error_page(request: HttpRequest) -> HttpResponse:
    return error_response(request, ApiError(common_error_codes.INTERNAL))


def database_unavailable(request: HttpRequest) -> HttpResponse:
    return error_response(request, common_error_codes.unavailable())


def error_response(request: HttpRequest, error: ApiError) -> HttpResponse:
    """Return the response to an error outside of the API's views: a page for browsers, JSON for all others."""
    if error_pages.wants_page(request):
        if staff_pages.wants_staff_page(request, error):
            return staff_pages.staff_error_page(request, error)
        return error_pages.error_page(error, request)
    return JsonResponse(error.body, status=error.status, headers=error.headers)
