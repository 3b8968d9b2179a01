"""A provider's MCP server, asked with a tenant's token over streamable HTTP, by the official SDK.

github.com/modelcontextprotocol/python-sdk; its import takes a second, so only ``factory`` imports this, when needed.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, asynccontextmanager, suppress
from decimal import Decimal
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

from integrations import vendor_key
from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.transports.mcp_http import CONNECT_SECONDS, BoundedTransport, ResponseTooLarge
from integrations.transports.mcp_tools import tool_error
from integrations.transports.responses import MOST_BYTES, ProviderError, TooLarge, interpret_status, parse_json_object
from vendors import guard
from vendors.guard import InvalidResponse

T = TypeVar("T")

TOOL_PAGES = 20  # of the listing of tools: Intuit's server has 143 tools
CALL_TAKES = 2  # times a request's time, for all that the SDK makes of one call

# What the SDK and what is under it raise for a call that failed, and for a session that has died meanwhile.
_FAILURES = (
    *(MCPError, ExceptionGroup, ValidationError, RuntimeError, TimeoutError, CancelledError, httpx2.HTTPError),
    *(httpx2.StreamError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream),
)
# JSON-RPC's errors, as statuses of HTTP.
_CODES: dict[int, tuple[int, dict[str, str], str | None]] = {
    INVALID_PARAMS: (400, {}, "invalid_params"),
    INTERNAL_ERROR: (500, {}, None),
}
_SILENT = (CONNECTION_CLOSED, REQUEST_TIMEOUT)


class McpTools:
    """The tools of one account's server: one session from the first call until ``close``, or until a call fails.

    Raises what ``transports.rest.Rest`` raises, ``CapabilityMissing`` for what the server has not, and
    ``Retryable("TOOL_FAILED")`` for a tool's own error, whose prose is dropped. Use it outside of transactions.
    """

    def __init__(self, source: ConnectedSource, token: str, *, requests_per_minute: int = 0) -> None:
        self.vendor = vendor_key.source_vendor(source, requests_per_minute)
        self._url: str = settings.CONNECTORS[source.provider]["mcp_url"]
        if not self._url:
            raise CapabilityMissing("server")
        self._token = token
        self._stack = ExitStack()
        self._open: tuple[BlockingPortal, Client, BoundedTransport] | None = None
        self._names: dict[str, Mapping[str, Any]] | None = None

    def names(self) -> dict[str, Mapping[str, Any]]:
        """Return the JSON schema of each tool's arguments, by the tool's name."""
        if self._names is None:
            with guard.guarded_call(self.vendor, "tools/list", meaning=interpret_status):
                self._names = self._run(_listed, "tools", MOST_BYTES)
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
        """Return what ``read`` makes of a tool's answer; raise ``TooLarge`` beyond ``most`` bytes.

        ``read`` gets the answer's object, numbers with a point as ``Decimal``, or ``{"texts": […]}`` where it is none.
        What it raises counts as the server's fault: ``InvalidResponse``, or what ``told`` makes of an error in prose.
        """

        async def step(client: Client) -> CallToolResult:
            return await client.call_tool(tool, dict(arguments))

        with guard.guarded_call(self.vendor, operation, meaning=interpret_status):
            try:
                return read(_object(self._run(step, tool, most or MOST_BYTES)))
            except ResponseTooLarge:
                raise (TooLarge() if most else InvalidResponse("The answer is too large.")) from None

    def close(self) -> None:
        stack, self._stack, self._open = self._stack, ExitStack(), None
        with suppress(*_FAILURES):  # of a session that has died: whoever asked it has been told
            stack.close()

    def _run(self, step: Callable[[Client], Awaitable[T]], capability: str, most: int) -> T:
        seconds = settings.VENDOR_TIMEOUT_SECONDS
        wire = self._open[2] if self._open else BoundedTransport(seconds)
        wire.most, wire.failed = most, None
        try:
            portal, client, _ = self._open or self._opened(wire, seconds)
            return portal.call(_in_time, step, client, seconds * CALL_TAKES)
        except _FAILURES as error:
            failure = _failure(error, wire, capability)
        self.close()
        raise failure

    def _opened(self, wire: BoundedTransport, seconds: float) -> tuple[BlockingPortal, Client, BoundedTransport]:
        # A session ends in the task that it began in: that task is the portal's, and outlives each call.
        portal = self._stack.enter_context(start_blocking_portal())
        client = self._stack.enter_context(
            portal.wrap_async_context_manager(_session(self._url, self._token, wire, seconds))
        )
        self._open = portal, client, wire
        return self._open


@asynccontextmanager
async def _session(url: str, token: str, wire: BoundedTransport, seconds: float) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity", "User-Agent": "accessa"}
    timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(transport=wire, headers=headers, timeout=timeout, trust_env=False) as http:
        stream = streamable_http_client(url, http_client=http, max_sse_event_size=None)
        told = Implementation(name="accessa", version="1")
        async with Client(stream, mode="auto", read_timeout_seconds=seconds, cache=None, client_info=told) as client:
            yield client


async def _in_time(step: Callable[[Client], Awaitable[T]], client: Client, seconds: float) -> T:
    with anyio.fail_after(seconds):
        return await step(client)


async def _listed(client: Client) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    cursor: str | None = None
    for _ in range(TOOL_PAGES):
        page = await client.list_tools(cursor=cursor)
        found.update({tool.name: tool.input_schema for tool in page.tools})
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _failure(error: Exception, wire: BoundedTransport, capability: str) -> Exception:
    """Return what the gate understands: nothing of it repeats the answer."""
    failed, spoken = wire.failed, _spoken(error)
    is_rpc = spoken is not None and spoken.code != INTERNAL_ERROR  # which the SDK says itself of all that is none
    if is_rpc and isinstance(failed, ProviderError) and failed.response.status_code in (400, 404):
        failed = None  # JSON-RPC's own errors come with these since 2026-07-28
    if failed is not None:
        return failed
    if spoken is not None and spoken.code == METHOD_NOT_FOUND:
        return CapabilityMissing(capability)
    if spoken is not None and spoken.code in _CODES:
        return ProviderError(*_CODES[spoken.code])
    is_silent = isinstance(error, TimeoutError) or (spoken is not None and spoken.code in _SILENT)
    return TimeoutError() if is_silent else InvalidResponse("The server does not keep to MCP.")


def _spoken(error: BaseException) -> MCPError | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := _spoken(each))), None)
    return error if isinstance(error, MCPError) else None


def _object(result: CallToolResult) -> dict[str, Any]:
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    if result.is_error:
        raise tool_error("".join(texts))
    if isinstance(result.structured_content, dict):
        found: dict[str, Any] = _exact(result.structured_content)
        return found
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        return parse_json_object(texts[0])
    return {"texts": texts}


def _exact(value: Any) -> Any:
    """Undo the SDK's reading of numbers: the shortest decimal that is the same float is what the provider wrote."""
    match value:
        case dict():
            return {name: _exact(each) for name, each in value.items()}
        case list():
            return [_exact(each) for each in value]
        case float() if not math.isfinite(value):
            raise InvalidResponse("The answer has a number that is none.")
        case float():
            return Decimal(repr(value))
    return value
