"""Middleware: correlation ids, a log line for each request, 503 while the database is unavailable, security headers."""

import logging
import re
import time
from collections.abc import Callable, Mapping
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
from documents.storage.buckets import Bucket
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
        request_id, began = str(parse_correlation_id(request.headers)), time.monotonic()
        method = request.method if request.method in METHODS else "OTHER"  # a client may send any word
        span: AbstractContextManager[telemetry.SetAttributes] = nullcontext(lambda **_: None)
        if request.path not in POLLED:
            span = telemetry.span("request", parent=request.headers.get("traceparent", ""), method=method)
        context = telemetry.isolated_log_context(request=request_id, correlation=request_id, method=method)
        with context, span as set_attributes:
            response = self.get_response(request)
            response["X-Correlation-ID"] = request_id
            fields = structlog.contextvars.get_contextvars()
            subjects = {name: fields[name] for name in ("correlation", "job", "document") if name in fields}
            route, status = fields.get("route"), response.status_code
            set_attributes(route=route or "", status=status, **subjects)
            is_quiet = route in POLLED and status < 500
            level = logging.DEBUG if is_quiet else logging.WARNING if status >= 500 else logging.INFO
            # A lazy user is not evaluated: that would be a query, and fail while the database is unavailable.
            user: Any = vars(request).get("_cached_user") or vars(request).get("user")
            caller = {"user": str(user.pk)} if type(user) in (User, Caller) else {}
            milliseconds = round((time.monotonic() - began) * 1000, 1)
            log.log(level, "Request.", route=route, status=status, duration_ms=milliseconds, **caller)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        if not isinstance(error, EXPECTED):
            telemetry.report_error(error)

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, object]) -> None:
        """Bind the path as a template, ``/documents/{document_id}``, and its ids: UUIDs only, never a file's name."""
        match = request.resolver_match
        route = "/" + PATH_PARAMETER.sub(r"{\1}", match.route) if match else None
        ids = {"job": kwargs.get("job_id"), "document": kwargs.get("document_id")}
        fields = {name: str(pk) for name, pk in ids.items() if isinstance(pk, UUID)}
        structlog.contextvars.bind_contextvars(route=route, **fields)


def parse_correlation_id(headers: Mapping[str, str]) -> UUID:
    """Return the id in ``X-Correlation-ID`` or ``traceparent``, or a new one."""
    header = headers.get("X-Correlation-ID", "")
    if UUID_TEXT.fullmatch(header):
        return UUID(header)
    trace = TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if trace and int(trace[1], 16):
        return UUID(trace[1])
    return uuid4()


class DatabaseUnavailableMiddleware(MiddlewareMixin):
    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return database_unavailable(request) if isinstance(error, (OperationalError, InterfaceError)) else None


class CspMiddleware(CSPMiddleware):
    """Content-Security-Policy by the path, Permissions-Policy, and no caching but where a view allows it.

    No page loads anything of another origin.
    """

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
        response.headers.setdefault("Cache-Control", "no-store")  # tenants' data and signed URLs stay in no cache
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
