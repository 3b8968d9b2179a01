"""Shared memory of a cluster: stop flag, last claim attempt, work seen, main pid. No lock for a SIGKILL to leave."""

import os
import socket
import time
from ctypes import c_bool, c_double
from multiprocessing.sharedctypes import RawValue

_stopping = RawValue(c_bool, False)
_claimed = RawValue(c_double, 0.0)
_work_seen = RawValue(c_double, 0.0)
_main = RawValue(c_double, 0.0)


def start_cluster() -> None:
    """Make this process the main one of a cluster; the processes forked from it share its flags."""
    _main.value = float(os.getpid())
    _stopping.value = False
    record_claim_attempt()


def cluster_name() -> str:
    """Return ``host:pid`` of the cluster, or of this process when it belongs to none."""
    return f"{socket.gethostname()}:{int(_main.value) or os.getpid()}"


def request_stop() -> None:
    """Tell the workers to claim nothing more and to release their jobs. Safe in a signal handler."""
    _stopping.value = True


def is_stopping() -> bool:
    return bool(_stopping.value)


def record_claim_attempt() -> None:
    """Record that a worker of this cluster has just looked for work, for the hang watchdog."""
    _claimed.value = time.monotonic()


def seconds_since_claim_attempt() -> float:
    return time.monotonic() - float(_claimed.value)


def record_work_seen() -> None:
    """Record that the maintenance loop has just seen claimable work, for the broker."""
    _work_seen.value = time.monotonic()


def has_seen_work_since(moment: float) -> bool:
    """Tell whether the maintenance loop has seen claimable work after ``moment``, by ``time.monotonic()``."""
    return float(_work_seen.value) > moment
