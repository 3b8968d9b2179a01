"""Base class of fakes that hold a tenant's records: bearer tokens, a rate limit, scheduled changes."""

import time
from collections import deque
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from testing.fakes.http_messages import ErrorResponse, Request, Response
from testing.fakes.server import Server, sleep


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class AccountServer(Server):
    """``tokens``: those that are taken, any when it is None; a token endpoint may share the set.

    ``limit`` calls in ``window`` seconds, 0 is without end. ``refused`` counts those that were beyond.
    """

    settings: tuple[str, ...] = ("delay", "limit", "window")

    def __init__(self, *, tokens: set[str] | None = None, limit: int = 0, window: float = 10.0, **server: Any) -> None:
        super().__init__(**server)
        self.tokens, self.limit, self.window = tokens, limit, window
        self.refused = 0
        self.routes: list[str] = []  # the last ones asked, in order
        self._calls: deque[float] = deque()
        self._meanwhile: list[tuple[str, int, Callable[[], Any]]] = []

    def schedule_change(self, route: str, change: Callable[[], Any], *, after: int = 1) -> None:
        """Make a change right after the answer to the ``after``-th next call of "METHOD /path" was made up."""
        with self._lock:
            self._meanwhile.append((route, after, change))

    def respond(self, request: Request) -> Response:
        self._admit(request)
        sleep(self.delay)
        try:
            return self.respond_authorized(request)
        finally:
            for change in self._due(request.route):
                change()

    def respond_authorized(self, request: Request) -> Response:
        """Return the response to an authorized request."""
        raise NotImplementedError

    def control_fields(self) -> dict[str, Any]:
        return {"refused": self.refused}

    def _admit(self, request: Request) -> None:
        with self._lock:
            self.routes = [*self.routes[-999:], request.route]
            if not request.bearer or (self.tokens is not None and request.bearer not in self.tokens):
                raise ErrorResponse(self.error_response(401))
            if not self.limit:
                return
            now = time.monotonic()
            while self._calls and self._calls[0] <= now - self.window:
                self._calls.popleft()
            if len(self._calls) >= self.limit:
                self.refused += 1
                raise ErrorResponse(self.error_response(429))
            self._calls.append(now)

    def _due(self, route: str) -> list[Callable[[], Any]]:
        due, left = [], []
        with self._lock:
            for pattern, after, change in self._meanwhile:
                if not fnmatchcase(route, pattern):
                    left.append((pattern, after, change))
                elif after == 1:
                    due.append(change)
                else:
                    left.append((pattern, after - 1, change))
            self._meanwhile = left
        return due
