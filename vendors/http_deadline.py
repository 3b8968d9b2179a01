"""A call that is over in time, however slowly its answer drips: a client's own timeouts are for one read each."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any


class _Until(threading.local):
    """When the present call of this thread has to be over, by the monotonic clock."""

    at = float("inf")


_until = _Until()


def deadline_transport(httpx: ModuleType, httpcore: ModuleType, seconds: float) -> Any:
    """Return an ``HTTPTransport`` that gives each request ``seconds``, from its start to the last byte of its answer.

    ``httpx`` and ``httpcore`` are the two modules that the client was built with: openai has versions of its own. An
    answer must be read by the thread that asked. Past its time a request raises what a read that times out raises.
    Proxies of the environment are not used.
    """
    trusted = _trusted(httpx)
    made = httpx.HTTPTransport(verify=trusted)
    made.close()  # the pool that is replaced: the library takes none from its caller
    made._pool = httpcore.ConnectionPool(
        ssl_context=trusted,
        max_connections=None,
        max_keepalive_connections=20,
        keepalive_expiry=5.0,
        network_backend=_backend(httpcore),
    )
    # A client that nobody refers to any more leaves no socket open behind it.
    weakref.finalize(made, made._pool.close).atexit = False
    handle: Callable[[Any], Any] = made.handle_request

    def handle_in_time(request: Any) -> Any:
        _until.at = time.monotonic() + seconds
        return handle(request)

    made.handle_request = handle_in_time
    return made


@cache
def _trusted(httpx: ModuleType) -> Any:
    """Read the certificates once a process: that takes longer than a call does, and clients may share them."""
    return httpx.create_ssl_context()


def _backend(httpcore: ModuleType) -> Any:
    class Backend(httpcore.SyncBackend):  # type: ignore[misc, name-defined]
        """Makes connections whose every read and write ends with the call's time."""

        def connect_tcp(self, host: str, port: int, timeout: float | None = None, *args: Any, **options: Any) -> Any:
            left = _left(timeout, httpcore.ConnectTimeout)
            return _Stream(super().connect_tcp(host, port, left, *args, **options), httpcore)

    return Backend()


class _Stream:
    """A connection of httpcore's, bounded."""

    def __init__(self, stream: Any, httpcore: ModuleType) -> None:
        self._stream, self._httpcore = stream, httpcore

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found: bytes = self._stream.read(max_bytes, _left(timeout, self._httpcore.ReadTimeout))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, self._httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        left = _left(timeout, self._httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._httpcore)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(timeout: float | None, over: type[Exception]) -> float | None:
    """Return the time for the next step, at most what is left of the call; raise ``over`` when nothing is."""
    left = _until.at - time.monotonic()
    if left <= 0:
        raise over("The call did not end in time.")
    if timeout is None:
        return None if left == float("inf") else left
    return min(timeout, left)
