"""A provider's MCP server over streamable HTTP, called with a tenant's token by the official SDK.

github.com/modelcontextprotocol/python-sdk; its import takes a second, so ``make_client`` imports this when needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, asynccontextmanager, suppress
from decimal import Decimal
from functools import cache
from ssl import SSLContext
from typing import Any, TypeVar

import anyio
import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from django.conf import settings
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    CallToolResult,
    Implementation,
    TextContent,
)
from pydantic import ValidationError

from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.transports.mcp_adapter import tool_error
from integrations.transports.responses import (
    ERROR_BYTES,
    MOST_BYTES,
    ProviderError,
    TooLarge,
    error_code,
    interpret_status,
    parse_json_object,
    source_vendor,
)
from vendors import calls
from vendors.call_failures import InvalidResponse

T = TypeVar("T")

CONNECT_SECONDS = 5.0
TOOL_PAGES = 20  # of the listing of tools: Intuit's server has 143 tools
CALL_TAKES = 2  # times a request's time, for all requests that the SDK makes of one call

# What the SDK and the libraries under it raise for a call that failed, and for a session that has died meanwhile.
_FAILURES = (
    *(MCPError, ExceptionGroup, ValidationError, RuntimeError, TimeoutError, CancelledError, httpx2.HTTPError),
    *(httpx2.StreamError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream),
)
# HTTP statuses of JSON-RPC's errors.
_CODES: dict[int, tuple[int, dict[str, str], str | None]] = {
    INVALID_PARAMS: (400, {}, "invalid_params"),
    INTERNAL_ERROR: (500, {}, None),
}
_SILENT = (CONNECTION_CLOSED, REQUEST_TIMEOUT)


class McpTools:
    """The tools of one account's server: one session from the first call until ``close``, or until a call fails.

    Raises what ``transports.rest.RestTransport`` raises, ``CapabilityMissing`` for a tool that the server lacks, and
    ``Retryable("TOOL_FAILED")`` for a tool's own error, whose prose is dropped. Use it outside of transactions.
    """

    def __init__(self, source: ConnectedSource, token: str, *, requests_per_minute: int = 0) -> None:
        self.vendor = source_vendor(source, requests_per_minute)
        self._url: str = settings.CONNECTORS[source.provider]["mcp_url"]
        if not self._url:
            raise CapabilityMissing("server")
        self._token = token
        self._stack = ExitStack()
        self._session: tuple[BlockingPortal, Client, BoundedTransport] | None = None
        self._names: dict[str, Mapping[str, Any]] | None = None

    def names(self) -> dict[str, Mapping[str, Any]]:
        """Return the JSON schema of each tool's arguments, by the tool's name."""
        if self._names is None:
            with calls.guarded_call(self.vendor, "tools/list", interpret=interpret_status):
                self._names = self._run(_list_tools, "tools", MOST_BYTES)
        return self._names

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        operation: str,
        most: int | None = None,
        read: Callable[[dict[str, Any]], T],
    ) -> T:
        """Return ``read`` of a tool's response; raise ``TooLarge`` beyond ``most`` bytes.

        ``read`` receives the response's object, numbers with a point as ``Decimal``, or ``{"texts": […]}`` without one.
        Its exceptions count as the server's fault: ``InvalidResponse``, or the ``tool_error`` of an error in prose.
        """

        async def step(client: Client) -> CallToolResult:
            return await client.call_tool(tool, dict(arguments))

        with calls.guarded_call(self.vendor, operation, interpret=interpret_status):
            try:
                return read(_object(self._run(step, tool, most or MOST_BYTES)))
            except ResponseTooLarge:
                raise (TooLarge() if most else InvalidResponse("The answer is too large.")) from None

    def close(self) -> None:
        stack, self._stack, self._session = self._stack, ExitStack(), None
        with suppress(*_FAILURES):  # of a session that has died: its caller has got the error
            stack.close()

    def _run(self, step: Callable[[Client], Awaitable[T]], capability: str, most: int) -> T:
        seconds = settings.VENDOR_TIMEOUT_SECONDS

        async def run_in_time(client: Client) -> T:
            with anyio.fail_after(seconds * CALL_TAKES):
                return await step(client)

        transport = self._session[2] if self._session else BoundedTransport(seconds)
        transport.most, transport.error_response = most, None
        try:
            portal, client, _ = self._session or self._open(transport, seconds)
            return portal.call(run_in_time, client)
        except _FAILURES as error:
            failure = _translate(error, transport, capability)
        self.close()
        raise failure

    def _open(self, transport: BoundedTransport, seconds: float) -> tuple[BlockingPortal, Client, BoundedTransport]:
        # A session ends in the task that it began in: that task is the portal's, and outlives each call.
        portal = self._stack.enter_context(start_blocking_portal())
        session = _session(self._url, self._token, transport, seconds)
        client = self._stack.enter_context(portal.wrap_async_context_manager(session))
        self._session = portal, client, transport
        return self._session


@asynccontextmanager
async def _session(url: str, token: str, transport: BoundedTransport, seconds: float) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity", "User-Agent": "accessa"}
    timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, trust_env=False) as http:
        stream = streamable_http_client(url, http_client=http, max_sse_event_size=None)
        info = Implementation(name="accessa", version="1")
        async with Client(stream, mode="auto", read_timeout_seconds=seconds, cache=None, client_info=info) as client:
            yield client


async def _list_tools(client: Client) -> dict[str, Mapping[str, Any]]:
    schemas: dict[str, Mapping[str, Any]] = {}
    cursor: str | None = None
    for _ in range(TOOL_PAGES):
        page = await client.list_tools(cursor=cursor)
        schemas.update({tool.name: tool.input_schema for tool in page.tools})
        cursor = page.next_cursor
        if cursor is None:
            break
    return schemas


def _translate(error: Exception, transport: BoundedTransport, capability: str) -> Exception:
    """Return an exception that ``vendors.calls`` interprets, without any text of the response."""
    http_error, rpc_error = transport.error_response, _rpc_error(error)
    # The SDK itself raises INTERNAL_ERROR for responses that are no JSON-RPC.
    is_rpc = rpc_error is not None and rpc_error.code != INTERNAL_ERROR
    if is_rpc and isinstance(http_error, ProviderError) and http_error.response.status_code in (400, 404):
        http_error = None  # JSON-RPC's own errors come with these statuses since 2026-07-28
    if http_error is not None:
        return http_error
    if rpc_error is not None and rpc_error.code == METHOD_NOT_FOUND:
        return CapabilityMissing(capability)
    if rpc_error is not None and rpc_error.code in _CODES:
        return ProviderError(*_CODES[rpc_error.code])
    is_silent = isinstance(error, TimeoutError) or (rpc_error is not None and rpc_error.code in _SILENT)
    return TimeoutError() if is_silent else InvalidResponse("The server does not keep to MCP.")


def _rpc_error(error: BaseException) -> MCPError | None:
    if isinstance(error, BaseExceptionGroup):
        return next((inner for each in error.exceptions if (inner := _rpc_error(each))), None)
    return error if isinstance(error, MCPError) else None


def _object(response: CallToolResult) -> dict[str, Any]:
    texts = [part.text for part in response.content if isinstance(part, TextContent)]
    if response.is_error:
        raise tool_error("".join(texts))
    if isinstance(response.structured_content, dict):
        body: dict[str, Any] = _with_decimals(response.structured_content)
        return body
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        return parse_json_object(texts[0])
    return {"texts": texts}


def _with_decimals(json: Any) -> Any:
    """Undo the SDK's parsing of numbers: the shortest decimal of the same float is what the provider sent."""
    match json:
        case dict():
            return {name: _with_decimals(each) for name, each in json.items()}
        case list():
            return [_with_decimals(each) for each in json]
        case float() if not math.isfinite(json):
            raise InvalidResponse("The answer has a number that is none.")
        case float():
            return Decimal(repr(json))
    return json


# --- HTTP under the SDK, bounded in time and size -------------------------------------------------------------------
class BoundedTransport(httpx2.AsyncBaseTransport):
    """Limits each request to ``seconds``, from its start to its response's last byte, and each response to ``most``.

    ``error`` is the HTTP error of the last tool call: the SDK raises one and the same exception for all of them, and
    then waits for a response that cannot come.
    """

    def __init__(self, seconds: float) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=_ssl_context())
        self._seconds = seconds
        self.most = MOST_BYTES
        self.error_response: Exception | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx2.Response(405)  # the stream of the server's own notices, which nobody reads
        seconds = CONNECT_SECONDS if request.method == "DELETE" else self._seconds  # DELETE ends a session
        until = time.monotonic() + seconds
        try:
            with anyio.fail_after(seconds):
                response = await self._inner.handle_async_request(request)
                if response.status_code >= 400:
                    return await self._error_response(request, response)
        except (httpx2.TransportError, TimeoutError) as error:
            self.note(request, error)
            raise
        self.note(request, None)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":  # none was accepted, and a small one may decompress to any size
            self.note(request, InvalidResponse("The answer is compressed."))
            await response.aclose()
            return httpx2.Response(406)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(self, request, response, until),
            extensions=response.extensions,
        )

    async def _error_response(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        content = b""
        async for piece in response.aiter_raw():
            content += piece
            if len(content) >= ERROR_BYTES:
                break
        await response.aclose()
        headers = {name: header for name, header in response.headers.items() if name != "content-length"}
        self.note(request, ProviderError(response.status_code, headers, error_code(content)))
        for name in ("content-encoding", "transfer-encoding"):
            headers.pop(name, None)
        return httpx2.Response(response.status_code, headers=headers, content=content)

    def note(self, request: httpx2.Request, error: Exception | None) -> None:
        if request.method != "DELETE":  # of a session that is over anyway
            self.error_response = error

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(
        self, transport: BoundedTransport, request: httpx2.Request, response: httpx2.Response, until: float
    ) -> None:
        self._transport, self._request, self._response, self._until = transport, request, response, until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces, size = self._response.aiter_raw(), 0
        while True:
            try:
                with anyio.fail_after(max(0.0, self._until - time.monotonic())):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except (httpx2.TransportError, TimeoutError) as error:
                self._transport.note(self._request, error)
                raise
            size += len(piece)
            if size > self._transport.most:
                too_large = ResponseTooLarge("The answer is too large.")
                self._transport.note(self._request, too_large)
                raise too_large
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


class ResponseTooLarge(httpx2.ReadError):
    """A response of more than ``most`` bytes."""


@cache
def _ssl_context() -> SSLContext:
    """Return the certificates, read once a process: that takes longer than a call."""
    return httpx2.create_ssl_context()
