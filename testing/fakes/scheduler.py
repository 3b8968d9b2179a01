"""Scheduler of delayed calls, in threads: work that a fake does after its response."""

import heapq
import itertools
import time
from collections.abc import Callable
from threading import Condition, Thread


class Scheduler:
    """Runs calls when they are due, in a few threads of its own, until it is stopped."""

    def __init__(self, threads: int = 8) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = itertools.count()
        self._changed = Condition()
        self._stopped = False
        self._threads = [Thread(target=self._run, name="later", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._turn), call))
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(1)

    def _run(self) -> None:
        while call := self._next():
            call()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopped:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)
            return None
