"""Queues that are worked through beside the jobs, by the same workers: the engine knows their modules by name only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol, cast

import structlog
from django.conf import settings
from django.db.utils import InterfaceError, OperationalError

from jobs import errors, tracing
from jobs.cluster import shared_memory

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")


class SideQueue(Protocol):
    """What each module of ``settings.JOBS_SIDE_QUEUES`` has."""

    def count_claimable(self, cursor: Any, *, most: int) -> int:
        """Return how many workers of this cluster would find work, up to ``most``. ``cursor`` may be psycopg's."""
        ...

    def drain(self, until: float) -> int:
        """Work until nothing is due or ``time.monotonic()`` says ``until``; return how many pieces were worked on.

        What it works on is kept by ``jobs.cluster.heartbeat``, so that a worker that hangs ends.
        """
        ...

    def is_idle(self) -> bool:
        """Tell whether nothing is left to do, now or later."""
        ...


def count_claimable(cursor: Any, *, most: int) -> int:
    found = 0
    for queue in _queues():
        found += queue.count_claimable(cursor, most=most - found) if found < most else 0
    return found


def drain_all() -> bool:
    """Give each queue a turn of JOBS_DRAIN_SECONDS; tell whether one had to stop before its work was done.

    A queue that is broken must not keep the jobs from their turn.
    """
    cut_short = False
    for queue in _queues():
        until = time.monotonic() + settings.JOBS_DRAIN_SECONDS
        try:
            worked = queue.drain(until)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.error("A queue beside the jobs failed.", exception=errors.safe_traceback(error), reported=True)
            tracing.report_error(error)
            continue
        cut_short |= bool(worked) and (shared_memory.is_stopping() or time.monotonic() > until)
    return cut_short


def are_idle() -> bool:
    return all(queue.is_idle() for queue in _queues())


def _queues() -> Iterator[SideQueue]:
    return (cast(SideQueue, import_module(path)) for path in settings.JOBS_SIDE_QUEUES)
