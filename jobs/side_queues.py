"""Side queues: queues of other apps, which the workers serve beside the jobs."""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

import structlog
from django.conf import settings
from django.db import connection
from django.db.utils import InterfaceError, OperationalError

from jobs import claim_queries, safe_errors, services, telemetry
from jobs.cluster import shared_state

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")


class SideQueue(Protocol):
    """Interface of the queues of other apps: of each module of ``settings.JOBS_SIDE_QUEUES``."""

    DUE: str  # the SQL of a query that has rows while messages are due

    def count_claimable(self, cursor: Any, *, most: int) -> int:
        """Count the workers of this cluster that would find work, up to ``most``. ``cursor`` may be psycopg's."""

    def drain(self, until: float) -> int:
        """Work until nothing is due or ``time.monotonic()`` reaches ``until``; return how many messages were handled.

        The heartbeat watches each message, so that a worker that hangs is killed.
        """

    def is_idle(self) -> bool: ...


def side_queues() -> Iterator[SideQueue]:
    return (cast(SideQueue, import_module(path)) for path in settings.JOBS_SIDE_QUEUES)


def drain_side_queues() -> bool:
    """Give each queue a time slice of JOBS_DRAIN_SECONDS; tell whether one was interrupted with work left."""
    is_interrupted = False
    for queue in _due_queues():
        until = time.monotonic() + settings.JOBS_DRAIN_SECONDS
        try:
            count = queue.drain(until)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:  # must not keep the jobs from running
            log.error("A side queue failed.", exception=safe_errors.safe_traceback(error), reported=True)
            telemetry.report_error(error)
            continue
        is_interrupted |= bool(count) and (shared_state.is_stopping() or time.monotonic() > until)
    return is_interrupted


def _due_queues() -> list[SideQueue]:
    """Return the queues that have due messages, by one statement for all of them."""
    queues = list(side_queues())
    if not queues:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"EXISTS ({queue.DUE})" for queue in queues))
        dues = cursor.fetchone()
    return [queue for queue, is_due in zip(queues, dues, strict=True) if is_due]


class Work(NamedTuple):
    """What a cluster finds when it looks for work."""

    claimable: int  # workers that would find a due job or a side queue's message
    seconds_to_timeout: float | None  # of the first parked or leased job, if there is one


def find_work(cursor: Any, *, most: int) -> Work:
    """Look for work, counting workers up to ``most``, in one statement while there is none. ``cursor`` is psycopg's."""
    queues = list(side_queues())
    are_due = "".join(f", EXISTS ({queue.DUE})" for queue in queues)
    sql = f"SELECT ({claim_queries.COUNT_CLAIMABLE}), {services.SECONDS_TO_TIMEOUT}{are_due}"
    count, seconds_to_timeout, *dues = cursor.execute(sql, claim_queries.count_params(most)).fetchone()
    for queue, is_due in zip(queues, dues, strict=True):
        count += queue.count_claimable(cursor, most=most - count) if is_due and count < most else 0
    return Work(count, seconds_to_timeout)
