"""A provider's MCP server over streamable HTTP, called with a tenant's token by the official SDK, as a transport.

github.com/modelcontextprotocol/python-sdk; its import takes a second, so ``make_client`` imports this when needed.
Arguments are checked against the tools' schemas before each call, so that a change at the provider is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, asynccontextmanager, suppress
from decimal import Decimal
from typing import Any, ClassVar, TypeVar

import anyio
import httpx2
import mcp_types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from django.conf import settings
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, TextContent
from pydantic import ValidationError

from integrations.models import ConnectedSource
from integrations.providers.interface import CapabilityMissing, Params
from integrations.transports import responses
from integrations.transports.mcp_http import CONNECT_SECONDS, BoundedTransport, ResponseTooLarge
from integrations.transports.mcp_tools import WRAPPER, fit_arguments, properties_of, tool_error
from vendors import calls
from vendors.call_failures import InvalidResponse

T = TypeVar("T")

TOOL_PAGES = 20  # of the listing of tools: Intuit's server has 143 tools
CALL_TAKES = 2  # times a request's time, for all requests that the SDK makes of one call

# What the SDK and the libraries under it raise for a call that failed, and for a session that has died meanwhile.
_FAILURES = (
    *(MCPError, ExceptionGroup, ValidationError, RuntimeError, TimeoutError, CancelledError, httpx2.HTTPError),
    *(httpx2.StreamError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream),
)
# HTTP statuses of JSON-RPC's errors.
_CODES: dict[int, tuple[int, dict[str, str], str | None]] = {
    mcp_types.INVALID_PARAMS: (400, {}, "invalid_params"),
    mcp_types.INTERNAL_ERROR: (500, {}, None),
}
_SILENT = (mcp_types.CONNECTION_CLOSED, mcp_types.REQUEST_TIMEOUT)


class McpSession:
    """Calls of one account's tools: one session from the first call until ``close``, or until a call fails.

    Raises what ``transports.rest.RestTransport`` raises, ``CapabilityMissing`` for a tool that the server lacks, and
    ``Retryable("TOOL_FAILED")`` for a tool's own error, whose prose is dropped. Use it outside of transactions.
    """

    def __init__(self, source: ConnectedSource, token: str, *, requests_per_minute: int = 0) -> None:
        self.source, self.vendor = source, responses.source_vendor(source, requests_per_minute)
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
            with calls.guarded_call(self.vendor, "tools/list", interpret=responses.interpret_status):
                self._names = self._run(_list_tools, "tools", responses.MOST_BYTES)
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

        with calls.guarded_call(self.vendor, operation, interpret=responses.interpret_status):
            try:
                return read(_object(self._run(step, tool, most or responses.MOST_BYTES)))
            except ResponseTooLarge:
                raise (responses.TooLarge() if most else InvalidResponse("The answer is too large.")) from None

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
            if self._session is None:
                # A session ends in the task that it began in: that task is the portal's, and outlives each call.
                portal = self._stack.enter_context(start_blocking_portal())
                session = portal.wrap_async_context_manager(_session(self._url, self._token, transport, seconds))
                self._session = portal, self._stack.enter_context(session), transport
            return self._session[0].call(run_in_time, self._session[1])
        except _FAILURES as error:
            failure = _translate(error, transport, capability)
        self.close()
        raise failure


class McpTransport(McpSession):
    """A provider's REST requests as calls of tools: the same records over either transport.

    A provider's subclass has ``ROUTES`` (method and path of a request, and the name of the subclass's method that gets
    the path's groups and all params) and the ``TOOLS`` that it uses.
    """

    ROUTES: ClassVar[Sequence[tuple[str, str, str]]] = ()
    TOOLS: ClassVar[Sequence[str]] = ()

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        for route_method, pattern, name in self.ROUTES:
            if route_method == method and (route := re.fullmatch(pattern, path)):
                respond: Callable[..., dict[str, Any]] = getattr(self, name)
                return respond(operation, {**(params or {}), **(body or {})}, *route.groups())
        raise CapabilityMissing(f"{method} {operation}")

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        raise CapabilityMissing(operation)

    def call_fitting(
        self, tool: str, arguments: Params, operation: str, read: Callable[[dict[str, Any]], T], most: int | None = None
    ) -> T:
        """Call a tool if it has these arguments; a missing tool or argument is kept in ``source.capabilities``."""
        capabilities: dict[str, Any] = {"tools": [name for name in self.TOOLS if name in self.names()]}
        try:
            fitting = fit_arguments(tool, self.names().get(tool), arguments)
            response = self.call(tool, fitting, operation=operation, most=most, read=read)
        except CapabilityMissing as missing:
            self._save_capabilities({**capabilities, "missing": missing.capability})
            raise
        self._save_capabilities(capabilities)
        return response

    def takes(self, tool: str, argument: str) -> bool:
        known = properties_of(self.names().get(tool) or {})
        inner = known.get(WRAPPER)
        return argument in known or (isinstance(inner, Mapping) and argument in properties_of(inner))

    def _save_capabilities(self, capabilities: dict[str, Any]) -> None:
        if self.source.capabilities != capabilities:
            self.source.capabilities = capabilities
            ConnectedSource.objects.filter(pk=self.source.pk).update(capabilities=capabilities)


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
        if (cursor := page.next_cursor) is None:
            break
    return schemas


def _translate(error: Exception, transport: BoundedTransport, capability: str) -> Exception:
    """Return an exception that ``vendors.calls`` interprets, without any text of the response."""
    http_error, rpc_error = transport.error_response, _rpc_error(error)
    # The SDK itself raises mcp_types.INTERNAL_ERROR for responses that are no JSON-RPC.
    is_rpc = rpc_error is not None and rpc_error.code != mcp_types.INTERNAL_ERROR
    if is_rpc and isinstance(http_error, responses.ProviderError) and http_error.response.status_code in (400, 404):
        http_error = None  # JSON-RPC's own errors come with these statuses since 2026-07-28
    if http_error is not None:
        return http_error
    if rpc_error is not None and rpc_error.code == mcp_types.METHOD_NOT_FOUND:
        return CapabilityMissing(capability)
    if rpc_error is not None and rpc_error.code in _CODES:
        return responses.ProviderError(*_CODES[rpc_error.code])
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
        return responses.parse_json_object(texts[0])
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
