"""HTTP under the MCP SDK: each request bounded in time, each response in size."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import cache
from ssl import SSLContext

import anyio
import httpx2

from integrations.transports import responses
from vendors.call_failures import InvalidResponse

CONNECT_SECONDS = 5.0


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Limits each request to ``seconds``, from its start to its response's last byte, and each response to ``most``.

    ``error`` is the HTTP error of the last tool call: the SDK raises one and the same exception for all of them, and
    then waits for a response that cannot come.
    """

    def __init__(self, seconds: float) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=_ssl_context())
        self._seconds = seconds
        self.most = responses.MOST_BYTES
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
            if len(content) >= responses.ERROR_BYTES:
                break
        await response.aclose()
        headers = {name: header for name, header in response.headers.items() if name != "content-length"}
        self.note(request, responses.ProviderError(response.status_code, headers, responses.error_code(content)))
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
