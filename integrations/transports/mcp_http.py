"""The HTTP under the MCP client: bounded in time and size, and remembering what the SDK does not tell."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import cache
from ssl import SSLContext

import anyio
import httpx2

from integrations.transports.responses import ERROR_BYTES, MOST_BYTES, ProviderError, error_code
from vendors.guard import InvalidResponse

CONNECT_SECONDS = 5.0


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Gives each request ``seconds``, from its start to the last byte of its answer, and each answer ``most`` bytes.

    ``failed`` is what the last call of a tool went wrong by, if it did so on the wire: the SDK answers each such with
    one and the same error, and goes on to wait for what cannot come.
    """

    def __init__(self, seconds: float) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=_trusted())
        self._seconds = seconds
        self.most = MOST_BYTES
        self.failed: Exception | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx2.Response(405)  # the stream of a server's own notices, which are not waited for
        seconds = CONNECT_SECONDS if request.method == "DELETE" else self._seconds  # of a session that is over
        until = time.monotonic() + seconds
        try:
            with anyio.fail_after(seconds):
                response = await self._inner.handle_async_request(request)
                if response.status_code >= 400:
                    return await self._refused(request, response)
        except (httpx2.TransportError, TimeoutError) as error:
            self._note(request, error)
            raise
        self._note(request, None)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":  # none was asked for, and a small one may unfold to anything
            self._note(request, InvalidResponse("The answer is compressed."))
            await response.aclose()
            return httpx2.Response(406)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(self, request, response, until),
            extensions=response.extensions,
        )

    async def _refused(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        content = b""
        async for piece in response.aiter_raw():
            content += piece
            if len(content) >= ERROR_BYTES:
                break
        await response.aclose()
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        self._note(request, ProviderError(response.status_code, headers, error_code(content)))
        headers = {
            name: value for name, value in headers.items() if name not in ("content-encoding", "transfer-encoding")
        }
        return httpx2.Response(response.status_code, headers=headers, content=content)

    def _note(self, request: httpx2.Request, failed: Exception | None) -> None:
        if request.method != "DELETE":  # of a session that is over anyway
            self.failed = failed

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(
        self, wire: BoundedTransport, request: httpx2.Request, response: httpx2.Response, until: float
    ) -> None:
        self._wire, self._request, self._response, self._until = wire, request, response, until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces, size = self._response.aiter_raw(), 0
        while True:
            try:
                with anyio.fail_after(max(0.0, self._until - time.monotonic())):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except (httpx2.TransportError, TimeoutError) as error:
                self._wire._note(self._request, error)
                raise
            size += len(piece)
            if size > self._wire.most:
                self._wire._note(self._request, too_much := ResponseTooLarge("The answer is too large."))
                raise too_much
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


class ResponseTooLarge(httpx2.ReadError):
    """An answer of more than ``most`` bytes."""


@cache
def _trusted() -> SSLContext:
    """Read the certificates once a process: that takes longer than a call does."""
    return httpx2.create_ssl_context()
