"""Fake MCP servers of the providers: the SDK's server over streamable HTTP, with the records of the other fakes."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Self

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from testing.fakes.http_messages import ErrorResponse

TOKEN = "mcp-token"
LISTED = 2  # tools a page of their listing


@dataclass(frozen=True, slots=True)
class Tool:
    """``act`` returns an object, or the texts of an answer that is none; it raises ErrorResponse."""

    properties: Mapping[str, Any]
    act: Callable[[dict[str, Any]], dict[str, Any] | list[str]]
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": dict(self.properties), "required": list(self.required)}


@dataclass(frozen=True, slots=True)
class McpFault:
    """What goes wrong instead of an answer; ``prose`` is what a provider says of it to people.

    ``delay`` seconds before anything. ``drip``: a byte of the answer at a time. ``size``: bytes of an endless answer.
    ``told``: the tool itself says that it failed. ``instead``: another answer of the tool's.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    prose: str = "It did not work."
    delay: float = 0.0
    drip: float = 0.0
    size: int = 0
    told: str = ""
    instead: Any = None


class McpServer:
    """A context manager, or `open` and `close`. ``url`` is what a client is given; ``calls`` what it has called.

    ``structured`` False tells objects as text only. ``sse`` answers by streams, in sessions.
    """

    def __init__(self, tools: Mapping[str, Tool], *, structured: bool = True, sse: bool = False) -> None:
        self._made, self.structured, self._sse = dict(tools), structured, sse
        self.clear_faults()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._app = self._built()

    def clear_faults(self) -> None:
        """Be as new: all tools, one good token, no faults."""
        self.tools, self.tokens = dict(self._made), {TOKEN}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[str] = []
        self._faults: list[tuple[str, McpFault, int]] = []

    def inject_fault(self, route: str, fault: McpFault, *, times: int = 1, after: int = 0) -> None:
        """Do wrong at calls of "tools/call search_files", "tools/list", with * and ?; the first ``after`` go well."""
        self._faults += [(route, McpFault(), after)] if after else []
        self._faults.append((route, fault, times))

    def rename(self, tool: str, old: str, new: str) -> None:
        """Call an argument by another name."""
        was = self.tools[tool]
        properties = {new if name == old else name: schema for name, schema in was.properties.items()}

        def act(arguments: dict[str, Any]) -> Any:
            return was.act({old if name == new else name: value for name, value in arguments.items()})

        self.tools[tool] = replace(was, properties=properties, act=act)

    def require(self, tool: str, name: str, schema: Mapping[str, Any]) -> None:
        was = self.tools[tool]
        self.tools[tool] = replace(was, properties={**was.properties, name: schema}, required=(*was.required, name))

    def open(self) -> Self:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        return self

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def verify_token(self, token: str) -> AccessToken | None:
        if token not in self.tokens:
            return None
        return AccessToken(token=token, client_id="accessa", scopes=["read"], resource=self.url)

    def _built(self) -> Any:
        server: Server[Any] = Server("fake", on_list_tools=self._list, on_call_tool=self._call)
        auth = AuthSettings(
            issuer_url=AnyHttpUrl("https://auth.example.test"),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=["read"],
            validate_token_resource=True,
        )
        return server.streamable_http_app(
            json_response=not self._sse, stateless_http=not self._sse, auth=auth, token_verifier=self
        )

    async def _list(self, context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = int((params and params.cursor) or 0)
        names = list(self.tools)[start : start + LISTED]
        more = str(start + LISTED) if start + LISTED < len(self.tools) else None
        listed = [types.Tool(name=name, input_schema=self.tools[name].schema) for name in names]
        return types.ListToolsResult(tools=listed, next_cursor=more)

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        self.calls.append((params.name, arguments))
        fault = self._next(f"tool {params.name}")
        if fault and fault.told:
            return types.CallToolResult(content=[types.TextContent(text=fault.told)], is_error=True)
        try:
            content = fault.instead if fault and fault.instead is not None else self.tools[params.name].act(arguments)
        except ErrorResponse as refusal:
            return types.CallToolResult(content=[types.TextContent(text=refusal.response.body.decode())], is_error=True)
        if isinstance(content, list):
            return types.CallToolResult(content=[types.TextContent(text=text) for text in content])
        text = types.TextContent(text=json.dumps(content))
        return types.CallToolResult(content=[text], structured_content=content if self.structured else None)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            if scope["type"] == "http":
                self.requests.append(scope["method"])
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        route = _route(body)
        self.requests.append(route)
        fault = self._next(route)
        if fault is None or not await self._spoiled(fault, send):
            await self._app(scope, _again(body, receive), send)

    async def _spoiled(self, fault: McpFault, send: Any) -> bool:
        """Send what is wrong; False when the answer itself shall follow."""
        await self._pause(fault.delay)
        headers = [(name.lower().encode(), value.encode()) for name, value in fault.headers.items()]
        headers.append((b"content-type", b"application/json"))
        if not (fault.status or fault.drip or fault.size):
            return False
        await send({"type": "http.response.start", "status": fault.status or 200, "headers": headers})
        if fault.status:
            body = json.dumps({"error": {"code": fault.status, "message": fault.prose}}).encode()
            await send({"type": "http.response.body", "body": body})
            return True
        sent, piece = 0, b" " * (1 if fault.drip else 65536)
        while not self._server.should_exit and (fault.drip or sent < fault.size):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += len(piece)
            await self._pause(fault.drip)
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._server.should_exit and time.monotonic() < until:
            await asyncio.sleep(min(seconds, 0.02))
        await asyncio.sleep(0)

    def _next(self, route: str) -> McpFault | None:
        for at, (pattern, fault, times) in enumerate(self._faults):
            if fnmatchcase(route, pattern):
                self._faults[at : at + 1] = [(pattern, fault, times - 1)] if times > 1 else []
                return fault
        return None


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _again(body: bytes, receive: Any) -> Any:
    was_sent = False

    async def again() -> Any:
        nonlocal was_sent
        if was_sent:
            return await receive()
        was_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _route(body: bytes) -> str:
    message = json.loads(body)
    name = message.get("params", {}).get("name")
    return f"{message.get('method')} {name}" if name else str(message.get("method"))
