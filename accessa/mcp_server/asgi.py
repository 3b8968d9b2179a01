"""ASGI application of the MCP server: `/mcp` behind a bearer token, OAuth's protected resource metadata, health."""

import logging
import time
from typing import Any
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from rest_framework.exceptions import AuthenticationFailed
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from accessa.error_responses import api_error
from accessa.mcp_server.server import CALLER, build_server, run_in_thread
from accessa.middleware import parse_correlation_id
from accounts.api_tokens import PROGRAM_SCOPES
from accounts.authentication import TENANT_HEADER, Caller, act_for_tenant, authenticate_token, read_bearer
from accounts.common_error_codes import FORBIDDEN, INVALID_REQUEST, INVALID_TOKEN, METHOD_NOT_ALLOWED, NOT_AUTHENTICATED
from accounts.errors import ApiError
from jobs import telemetry

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.requests")

PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"


class McpEndpoint:
    """Authenticates, limits and logs requests of the SDK's streamable HTTP transport, stateless with JSON responses."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self.manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, began, status = Headers(scope=scope), time.monotonic(), 500
        request_id = str(parse_correlation_id(headers))

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-correlation-id", request_id.encode())]
            await send(message)

        with telemetry.isolated_log_context(request=request_id, correlation=request_id, method=scope["method"]):
            try:
                scope[CALLER] = await self._admit(scope["method"], headers)
            except ApiError as error:
                await refuse(error)(scope, receive, send_with_id)
            else:
                await self.manager.handle_request(scope, receive, send_with_id)
            caller = {"user": str(scope[CALLER].pk)} if CALLER in scope else {}
            milliseconds = round((time.monotonic() - began) * 1000, 1)
            level = logging.WARNING if status >= 500 else logging.INFO
            log.log(level, "Request.", route=PATH, status=status, duration_ms=milliseconds, **caller)

    async def _admit(self, method: str, headers: Headers) -> Caller:
        check_origin(headers)
        if method != "POST":  # stateless: no stream to open, no session to end
            raise ApiError(METHOD_NOT_ALLOWED)
        return await run_in_thread(lambda: authenticate(headers))


def check_origin(headers: Headers) -> None:
    """Refuse a page of another site, also one whose name was bound to our address. Raises ``ApiError``."""
    domain, _ = split_domain_port(headers.get("host", ""))
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        raise ApiError(INVALID_REQUEST, "The Host header names none of this server's hosts.")
    own = urlsplit(settings.MCP_URL)
    origin = headers.get("origin")
    if origin is not None and origin not in (f"{own.scheme}://{own.netloc}", *settings.CORS_ALLOWED_ORIGINS):
        raise ApiError(FORBIDDEN, "Pages of this origin may not call.")


def authenticate(headers: Headers) -> Caller:
    """Return the tenant of a request. Raises ``ApiError``."""
    try:
        plain = read_bearer(headers.get("authorization", "").encode("latin-1"))
        if plain is None:
            raise ApiError(NOT_AUTHENTICATED)
        caller = authenticate_token(plain)
        tenant = headers.get(TENANT_HEADER)
        return caller if tenant is None else act_for_tenant(caller, tenant, call=f"POST {PATH}")
    except AuthenticationFailed:
        raise ApiError(INVALID_TOKEN) from None
    except Exception as error:
        raise api_error(error) from None


def refuse(error: ApiError) -> JSONResponse:
    headers = error.headers
    if error.status == 401:
        metadata = f', resource_metadata="{_metadata_url()}"' if settings.MCP_AUTHORIZATION_SERVER else ""
        headers["WWW-Authenticate"] = f'Bearer realm="accessa"{metadata}'
    if error.code == METHOD_NOT_ALLOWED:
        headers["Allow"] = "POST"
    return JSONResponse(error.body, status_code=error.status, headers=headers)


def _metadata_url() -> str:
    """Return the address of the metadata: the well-known path stands before the resource's own (RFC 9728 §3.1)."""
    own = urlsplit(settings.MCP_URL)
    return f"{own.scheme}://{own.netloc}{METADATA_PATH}{own.path}"


async def _resource_metadata(request: Request) -> JSONResponse:
    if not settings.MCP_AUTHORIZATION_SERVER:
        return JSONResponse({"code": "NOT_FOUND", "detail": "Not found."}, status_code=404)
    return JSONResponse(
        {
            "resource": settings.MCP_URL,
            "authorization_servers": [settings.MCP_AUTHORIZATION_SERVER],
            "bearer_methods_supported": ["header"],
            "scopes_supported": sorted(PROGRAM_SCOPES),
            "resource_name": "Accessa",
        }
    )


async def _alive(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


def build_application() -> Starlette:
    """Return a new application: the session manager of one runs once."""
    manager = StreamableHTTPSessionManager(
        build_server(),
        json_response=True,
        stateless=True,
        max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
    )
    metadata = [Route(METADATA_PATH + path, _resource_metadata) for path in ("", PATH)]
    routes = [Route(PATH, McpEndpoint(manager)), *metadata, Route("/healthz", _alive)]
    cors: Any = Middleware(
        CORSMiddleware,
        allow_origins=settings.CORS_ALLOWED_ORIGINS,
        allow_methods=["POST"],
        allow_headers=["authorization", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name"],
        expose_headers=settings.CORS_EXPOSE_HEADERS,
    )
    return Starlette(routes=routes, middleware=[cors], lifespan=lambda app: manager.run())
