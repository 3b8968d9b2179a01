"""CPU time that a tree of processes got and waited for, from Linux' scheduler statistics (/proc/PID/schedstat)."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
Times = tuple[int, int]  # nanoseconds that a thread ran, and that it waited for a core while it could have run


class CpuMeter:
    """CPU times of this process and its descendants since ``restart``.

    They are sums of what each ``sample`` finds: a process that has died since the last one takes the rest with it.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Times] = {}
        self._started = time.monotonic()
        self._ran = self._waited = 0

    def restart(self) -> None:
        self._seen = dict(_thread_times(os.getpid()))
        self._started = time.monotonic()
        self._ran = self._waited = 0

    def sample(self) -> None:
        seen = dict(_thread_times(os.getpid()))
        for thread, (ran, waited) in seen.items():
            ran_before, waited_before = self._seen.get(thread, (0, 0))
            self._ran += ran - ran_before
            self._waited += waited - waited_before
        self._seen = seen

    def is_overloaded(self) -> bool:
        """Tell whether they got less than half a core, and waited for one longer than they had it.

        A process that waits for a vendor, or sleeps, wants no core: a quarter of the time must be such a wait. Always
        False where the kernel keeps no such statistics.
        """
        elapsed = (time.monotonic() - self._started) * 1e9
        return self._ran < elapsed / 2 and self._waited > max(self._ran, elapsed / 4)


def _thread_times(process: int) -> Iterator[tuple[int, Times]]:
    """Yield each thread of the process and of its descendants, with its times."""
    processes = [process]
    while processes:
        folder = PROC / str(processes.pop()) / "task"
        with suppress(OSError):  # it has ended, or this is not Linux
            for thread in os.listdir(folder):
                with suppress(OSError):
                    ran, waited, _ = (folder / thread / "schedstat").read_text().split()
                    yield int(thread), (int(ran), int(waited))
                    processes += map(int, (folder / thread / "children").read_text().split())
