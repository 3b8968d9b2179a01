"""HTTP transport with a deadline for the whole call and a limit of its response's size.

A client's own timeouts bound one read each, not a slow body; and it reads as much as it is sent.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any

MAX_BODY_BYTES = 64 << 20  # 3,000 pages of a parse are about 15 MB
Resolve = Callable[[str, int], Sequence[str]]


class _Deadline(threading.local):
    at = float("inf")

    def remaining(self, timeout: float | None, timed_out: type[Exception]) -> float | None:
        """Return the time for the next read or write; raise ``timed_out`` past the deadline."""
        remaining = self.at - time.monotonic()
        if remaining <= 0:
            raise timed_out("The call did not end in time.")
        if timeout is None:
            return None if remaining == float("inf") else remaining
        return min(timeout, remaining)


_deadline = _Deadline()


def deadline_transport(
    httpx: ModuleType,
    httpcore: ModuleType,
    seconds: float,
    *,
    resolve: Resolve | None = None,
    most: int | None = MAX_BODY_BYTES,
) -> Any:
    """Return an httpx transport that gives each request ``seconds``, from its start to the last byte of its response.

    ``httpx`` and ``httpcore`` are the two modules that the client was built with: openai has versions of its own. The
    thread that sends the request must read the response. Past its time a request raises what a read that times out
    raises. Proxies of the environment are not used. ``resolve`` returns the addresses of a host and port that may be
    connected to, the first that answers is; the request and the certificate's check keep the host's name.

    Reading a response of more than ``most`` bytes raises ``httpx.DecodingError``. It is not compressed: of a thousand
    times as many bytes nobody would know before they are read. None: the caller bounds what it reads.
    """

    body = _body_class(httpx, httpcore)

    class DeadlineTransport(httpx.BaseTransport):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.pool = _connection_pool(httpx, httpcore, resolve)
            # A client that nobody refers to any more leaves no socket open behind it.
            weakref.finalize(self, self.pool.close).atexit = False

        def handle_request(self, request: Any) -> Any:
            _deadline.at = time.monotonic() + seconds
            url = request.url
            if most is not None:
                request.headers["Accept-Encoding"] = "identity"
            core_request = httpcore.Request(
                request.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
            with _httpx_errors(httpx, httpcore):
                response = self.pool.handle_request(core_request)
            options = {"headers": response.headers, "extensions": response.extensions}
            return httpx.Response(response.status, stream=body(response, most), **options)

        def close(self) -> None:
            self.pool.close()

    return DeadlineTransport()


def _body_class(httpx: ModuleType, httpcore: ModuleType) -> Any:
    class Body(httpx.SyncByteStream):  # type: ignore[misc, name-defined]
        def __init__(self, response: Any, most: int | None) -> None:
            coding = httpx.Headers(response.headers).get("Content-Encoding", "identity")
            self.stream, self.most, self.is_compressed = response.stream, most, coding != "identity"

        def __iter__(self) -> Iterator[bytes]:
            if self.most is not None and self.is_compressed:
                raise httpx.DecodingError("The response is compressed, which nobody has asked for.")
            size = 0
            with _httpx_errors(httpx, httpcore):
                for piece in self.stream:
                    size += len(piece)
                    if self.most is not None and size > self.most:
                        raise httpx.DecodingError("The response is too long.")
                    yield piece

        def close(self) -> None:
            self.stream.close()

    return Body


def _connection_pool(httpx: ModuleType, httpcore: ModuleType, resolve: Resolve | None) -> Any:
    return httpcore.ConnectionPool(
        ssl_context=_ssl_context(httpx),
        max_connections=None,
        max_keepalive_connections=20,
        keepalive_expiry=5.0,
        network_backend=_backend(httpcore, resolve),
    )


def _backend(httpcore: ModuleType, resolve: Resolve | None) -> Any:
    class Backend(httpcore.SyncBackend):  # type: ignore[misc, name-defined]
        def connect_tcp(self, host: str, port: int, timeout: float | None = None, *args: Any, **options: Any) -> Any:
            *others, last = resolve(host, port) if resolve else [host]
            for address in others:
                with suppress(httpcore.ConnectError):
                    return self._connect(address, port, timeout, *args, **options)
            return self._connect(last, port, timeout, *args, **options)

        def _connect(self, address: str, port: int, timeout: float | None, *args: Any, **options: Any) -> Any:
            remaining = _deadline.remaining(timeout, httpcore.ConnectTimeout)
            return _DeadlineStream(super().connect_tcp(address, port, remaining, *args, **options), httpcore)

    return Backend()


@cache
def _ssl_context(httpx: ModuleType) -> Any:
    """Read the certificates once a process: that takes longer than a call does, and clients may share them."""
    return httpx.create_ssl_context()


@contextmanager
def _httpx_errors(httpx: ModuleType, httpcore: ModuleType) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        name = type(error).__name__
        if getattr(httpcore, name, None) is not type(error) or not hasattr(httpx, name):
            raise
        raise getattr(httpx, name)(str(error)) from error


class _DeadlineStream:
    """An httpcore network stream that ends each read and write by the deadline."""

    def __init__(self, stream: Any, httpcore: ModuleType) -> None:
        self._stream, self._httpcore = stream, httpcore

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._stream.read(max_bytes, _deadline.remaining(timeout, self._httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _deadline.remaining(timeout, self._httpcore.WriteTimeout))

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Any:
        remaining = _deadline.remaining(timeout, self._httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, remaining), self._httpcore)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
