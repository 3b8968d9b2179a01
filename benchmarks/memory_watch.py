"""Resident memory of a cluster's workers over time: peak and growth."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

INTERVAL_SECONDS = 0.2


@dataclass
class ResidentMemory:
    """In MB, of the largest process at each look."""

    seen: list[float] = field(default_factory=list)

    @property
    def peak(self) -> float:
        return max(self.seen, default=0.0)

    @property
    def growth(self) -> float:
        """From the end of the first tenth, when everything is loaded, to the last tenth: the medians of both."""
        tenth = len(self.seen) // 10
        if tenth < 5:  # over before it could grow
            return 0.0
        early, late = sorted(self.seen[tenth : 2 * tenth]), sorted(self.seen[-tenth:])
        return late[len(late) // 2] - early[len(early) // 2]


@contextlib.contextmanager
def recorded_memory(process: psutil.Process) -> Iterator[ResidentMemory]:
    memory, over = ResidentMemory(), threading.Event()

    def watch() -> None:
        while not over.wait(INTERVAL_SECONDS):
            with contextlib.suppress(psutil.Error):
                sizes = [child.memory_info().rss for child in process.children(recursive=True)]
                if sizes:  # they are up
                    memory.seen.append(max(sizes) / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield memory
    finally:
        over.set()
        watcher.join()
