"""Resource limits of a sandboxed child. Standard library only."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

PR_SET_PDEATHSIG = 1
OPEN_FILES = 32


def apply_limits(*, memory_mb: int, cpu_seconds: int, parent: int) -> None:
    """Drop everything that a parser does not need. Call first after the fork."""
    os.setsid()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and the prctl
            exit_process(1)
    _limit(resource.RLIMIT_AS, memory_mb << 20)
    _limit(resource.RLIMIT_CPU, cpu_seconds)
    _limit(resource.RLIMIT_CORE, 0)  # a core file would hold the tenant's text
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _limit(resource.RLIMIT_FSIZE, 0)  # the response leaves by a pipe, which this does not limit


def forbid_opening_files() -> None:
    """Let no file and no socket be opened from here on, whatever a document asks for."""
    _limit(resource.RLIMIT_NOFILE, 0)


def limit_cpu_time(seconds: float) -> None:
    """Restart the CPU timer: SIGPROF kills the process when it has used this much CPU time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


@contextlib.contextmanager
def limited_memory(megabytes: int) -> Iterator[None]:
    """Limit the address space of this process for a while."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_lower(megabytes << 20, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def exit_process(code: int) -> NoReturn:
    """Skip the interpreter's and the engines' clean-up, which would walk a hostile document's objects once more."""
    os._exit(code)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    most = _lower(most, hard)
    # The CPU limit's SIGXCPU comes at the soft limit; at an equal hard one Linux would send an anonymous SIGKILL.
    over = 1 if which == resource.RLIMIT_CPU and most != hard else 0
    resource.setrlimit(which, (most, most + over))


def _lower(most: int, hard: int) -> int:
    return most if hard == resource.RLIM_INFINITY else min(most, hard)
