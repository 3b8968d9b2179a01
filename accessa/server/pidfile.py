"""Pidfile with a lock: one process at a time."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AlreadyRunning(Exception):
    """Another process holds the file; its number is the argument."""


@contextmanager
def lock_pidfile(path: Path) -> Iterator[None]:
    """Lock the file while the block runs. The lock ends with the process, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(read_pid(path)) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
        file.truncate(0)


def read_pid(path: Path) -> int | None:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return int(path.read_text() or 0) or None
    return None


def stop_process(path: Path, timeout: float) -> bool:
    """Send SIGTERM to the holder and wait for its end; return whether there was one. Raises TimeoutError."""
    process = read_pid(path)
    if process is None:
        return False
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while read_pid(path) == process:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Process {process} has not ended within {timeout:.0f} s.")
        time.sleep(0.05)
    return True
