"""Side queues: queues of other apps that the workers serve beside the jobs (``settings.JOBS_SIDE_QUEUES``)."""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol, cast

import structlog
from django.conf import settings
from django.db.utils import InterfaceError, OperationalError

from jobs import safe_errors, tracing
from jobs.cluster import shared_state

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")


class SideQueue(Protocol):
    """Interface of each module of ``settings.JOBS_SIDE_QUEUES``."""

    def count_claimable(self, cursor: Any, *, most: int) -> int:
        """Count the workers of this cluster that would find work, up to ``most``. ``cursor`` may be psycopg's."""
        ...

    def drain(self, until: float) -> int:
        """Work until nothing is due or ``time.monotonic()`` reaches ``until``; return how many messages were handled.

        ``jobs.cluster.lease_heartbeat`` watches each message, so that a worker that hangs is killed.
        """
        ...

    def is_idle(self) -> bool:
        """Tell whether nothing is left to do, now or later."""
        ...


def count_claimable(cursor: Any, *, most: int) -> int:
    count = 0
    for queue in _queues():
        count += queue.count_claimable(cursor, most=most - count) if count < most else 0
    return count


def drain_all() -> bool:
    """Give each queue a time slice of JOBS_DRAIN_SECONDS; tell whether one was interrupted with work left.

    The failure of a queue must not keep the jobs from running.
    """
    is_interrupted = False
    for queue in _queues():
        until = time.monotonic() + settings.JOBS_DRAIN_SECONDS
        try:
            count = queue.drain(until)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.error("A side queue failed.", exception=safe_errors.safe_traceback(error), reported=True)
            tracing.report_error(error)
            continue
        is_interrupted |= bool(count) and (shared_state.is_stopping() or time.monotonic() > until)
    return is_interrupted


def are_idle() -> bool:
    return all(queue.is_idle() for queue in _queues())


def _queues() -> Iterator[SideQueue]:
    return (cast(SideQueue, import_module(path)) for path in settings.JOBS_SIDE_QUEUES)
