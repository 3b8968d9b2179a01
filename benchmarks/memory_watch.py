"""Resident memory of worker processes: peak and growth over time, or over a count of what they have done."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

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
def sampled(take: Callable[[], None], *, seconds: float) -> Iterator[None]:
    """Call ``take`` with that pause between two calls, on a thread, until the end of the block."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            take()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def recorded_memory(process: psutil.Process) -> Iterator[ResidentMemory]:
    memory = ResidentMemory()

    def take() -> None:
        with contextlib.suppress(psutil.Error):
            sizes = [child.memory_info().rss for child in process.children(recursive=True)]
            if sizes:  # they are up
                memory.seen.append(max(sizes) / 2**20)

    with sampled(take, seconds=INTERVAL_SECONDS):
        yield memory


def medians_by_count(
    process: psutil.Process, count: Callable[[], int], *, since: int, until: int
) -> tuple[float, float]:
    """Return the MB of a process and its children at the first counts from ``since``, and at the last to ``until``."""
    megabytes: dict[int, list[float]] = {}
    done = since
    while done < until:
        megabytes.setdefault(done, []).append(sum(map(_resident, (process, *process.children()))))
        time.sleep(0.1)
        done = count()
    some = max(1, min(5, len(megabytes) // 2))
    early, late = (
        [each for number in counts for each in megabytes[number]]
        for counts in (sorted(megabytes)[:some], sorted(megabytes)[-some:])
    )
    return median(early), median(late)


def _resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0
