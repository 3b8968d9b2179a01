"""Middleware: correlation ids, a log line for each request, 503 while the database is unavailable, security headers."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import structlog
from csp.middleware import CSPMiddleware, PolicyParts
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.files.storage import storages
from django.db.utils import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from accessa import settings_web
from accessa.error_responses import database_unavailable
from accounts.authentication import Caller
from accounts.models import User
from documents.storage import Bucket
from jobs import telemetry

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.requests")

UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")  # W3C Trace Context
PATH_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Errors that Django or DatabaseUnavailableMiddleware answers with a status of its own.
EXPECTED = (Http404, PermissionDenied, SuspiciousOperation, OperationalError, InterfaceError)
POLLED = frozenset({"/healthz", "/readyz", "/metrics"})  # every few seconds, by monitoring
PERMISSIONS = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "microphone", "geolocation", "payment", "usb", "serial", "midi", "display-capture")
)


class CorrelationMiddleware:
    """Give each request an id, the caller's own if it has one, a span and one log line."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request_id, began = str(correlation_id(request)), time.monotonic()
        span: AbstractContextManager[telemetry.SetAttributes] = nullcontext(lambda **_: None)
        if request.path not in POLLED:
            span = telemetry.span("request", parent=request.headers.get("traceparent", ""), method=http_method(request))
        with telemetry.isolated_log_context(request=request_id, correlation=request_id), span as set_attributes:
            response = self.get_response(request)
            response["X-Correlation-ID"] = request_id
            fields = structlog.contextvars.get_contextvars()
            subjects = {name: fields[name] for name in ("correlation", "job", "document") if name in fields}
            set_attributes(route=route_template(request) or "", status=response.status_code, **subjects)
            _log_request(request, response.status_code, time.monotonic() - began)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        if not isinstance(error, EXPECTED):
            telemetry.report_error(error)

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, object]) -> None:
        """Bind the ids in the path to the log context: UUIDs only, never a file's name."""
        ids = {"job": kwargs.get("job_id"), "document": kwargs.get("document_id")}
        fields = {name: str(pk) for name, pk in ids.items() if isinstance(pk, UUID)}
        structlog.contextvars.bind_contextvars(method=http_method(request), route=route_template(request), **fields)


def correlation_id(request: HttpRequest) -> UUID:
    """Return the id in ``X-Correlation-ID`` or ``traceparent``, or a new one."""
    header = request.headers.get("X-Correlation-ID", "")
    if UUID_TEXT.fullmatch(header):
        return UUID(header)
    trace = TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    if trace and int(trace[1], 16):
        return UUID(trace[1])
    return uuid4()


def http_method(request: HttpRequest) -> str:
    """Return the method if it is a known one: a client may send any word."""
    return request.method if request.method in METHODS else "OTHER"


def route_template(request: HttpRequest) -> str | None:
    """Return the path as a template, as ``/documents/{document_id}``; None where no view answers."""
    match = request.resolver_match
    return "/" + PATH_PARAMETER.sub(r"{\1}", match.route) if match else None


def _log_request(request: HttpRequest, status: int, seconds: float) -> None:
    route = route_template(request)
    is_quiet = route in POLLED and status < 500
    level = logging.DEBUG if is_quiet else logging.WARNING if status >= 500 else logging.INFO
    fields: dict[str, Any] = {"method": http_method(request), "route": route, "status": status}
    fields["duration_ms"] = round(seconds * 1000, 1)
    user: Any = vars(request).get("_cached_user") or vars(request).get("user")
    # A lazy user is not evaluated: that would be a query, and fail while the database is unavailable.
    if type(user) in (User, Caller):
        fields["user"] = str(user.pk)
    log.log(level, "Request.", **fields)


class DatabaseUnavailableMiddleware(MiddlewareMixin):
    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return database_unavailable(request) if isinstance(error, (OperationalError, InterfaceError)) else None


class CspMiddleware(CSPMiddleware):
    """Content-Security-Policy by the path, and Permissions-Policy. No page loads anything of another origin."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if parts.config is None and not report_only:
            parts.config = page_policy(request.path)
        return parts

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response = super().process_response(request, response)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS)
        return response


def page_policy(path: str) -> dict[str, Any]:
    for prefix, directives in settings_web.POLICIES.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return directives
    if path == "/" and (origin := upload_origin()):
        return settings_web.TENANT_PAGES | {"connect-src": ["'self'", origin]}
    return settings_web.TENANT_PAGES


def upload_origin() -> str | None:
    """Return the origin of the store's signed upload URLs; None where uploads go to the API."""
    raw = storages["raw"]
    if not getattr(raw, "presigns", False):
        return None
    try:
        url = cast(Bucket, raw).sign_upload("origin", length=1, mime="application/pdf", sha256="0" * 64)
    except OSError:  # no credentials at the moment: no upload would work either
        return None
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
