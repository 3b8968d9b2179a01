"""What holds for every request."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db.utils import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse

from accessa.errors import database_unavailable
from accounts.authentication import Caller
from accounts.models import User
from jobs import log_context, tracing

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.requests")

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")  # W3C Trace Context
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Answered as such, by Django or by DatabaseUnavailableMiddleware.
EXPECTED = (Http404, PermissionDenied, SuspiciousOperation, OperationalError, InterfaceError)
NOISE = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds


class CorrelationMiddleware:
    """Give each request an id, the caller's own where it is one, and say in one line what became of the request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given, began = str(correlation_id(request)), time.monotonic()
        parent = request.headers.get("traceparent", "")
        with log_context.isolated_log_context(request=given, correlation=given), _span(request, parent) as note:
            response = self.get_response(request)
            response["X-Correlation-ID"] = given
            note(route=route_template(request) or "", status=response.status_code, **_about())
            _tell(request, response.status_code, time.monotonic() - began)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        """Tell of what no view has answered; Django answers and logs it."""
        if not isinstance(error, EXPECTED):
            tracing.report_error(error)

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, object]) -> None:
        """Name what the address names: only ids that are ids, never a file's name."""
        named = {"job": kwargs.get("job_id"), "document": kwargs.get("document_id")}
        found = {name: str(value) for name, value in named.items() if isinstance(value, UUID)}
        structlog.contextvars.bind_contextvars(method=http_method(request), route=route_template(request), **found)


def correlation_id(request: HttpRequest) -> UUID:
    """Return the id that the caller gave in ``X-Correlation-ID`` or ``traceparent``, or a new one."""
    given = request.headers.get("X-Correlation-ID", "")
    if _UUID.fullmatch(given):
        return UUID(given)
    trace = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    if trace and int(trace[1], 16):
        return UUID(trace[1])
    return uuid4()


def http_method(request: HttpRequest) -> str:
    """Return the method, if it is one: a client may send any word."""
    return request.method if request.method in METHODS else "OTHER"


def route_template(request: HttpRequest) -> str | None:
    """Return the address as a template, as ``/documents/{document_id}``; None where nothing answers."""
    match = request.resolver_match
    return "/" + _PARAMETER.sub(r"{\1}", match.route) if match else None


def _span(request: HttpRequest, parent: str) -> AbstractContextManager[tracing.SetAttributes]:
    if request.path in NOISE:
        return nullcontext(lambda **_: None)
    return tracing.span("request", parent=parent, method=http_method(request))


def _about() -> dict[str, str]:
    """Return what the request turned out to be about."""
    said = structlog.contextvars.get_contextvars()
    return {name: said[name] for name in ("correlation", "job", "document") if name in said}


def _tell(request: HttpRequest, status: int, seconds: float) -> None:
    template = route_template(request)
    quiet = template in NOISE and status < 500
    level = logging.DEBUG if quiet else logging.WARNING if status >= 500 else logging.INFO
    told: dict[str, Any] = {"method": http_method(request), "route": template, "status": status}
    told["duration_ms"] = round(seconds * 1000, 1)
    user: Any = vars(request).get("_cached_user") or vars(request).get("user")
    # What is looked up already: asking a lazy user what it is would be a query, and fail where the database is away.
    if type(user) in (User, Caller):
        told["user"] = str(user.pk)
    log.log(level, "Request.", **told)


class DatabaseUnavailableMiddleware:
    """Answer 503 wherever the database is missing, in middleware and admin too: it is not the request's fault."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, (OperationalError, InterfaceError)):
            return None
        return database_unavailable(request)
