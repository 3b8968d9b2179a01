"""What the main process of a cluster does beside django-q2: move what time moves, and end a cluster that hangs."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import DatabaseError, InterfaceError
from django.utils.module_loading import import_string

from jobs import queries, services
from jobs.cluster import registry, shared_memory, side_queues
from jobs.errors import safe_error_name
from jobs.models import UploadJob
from jobs.states import ACTIVE, State

log = logging.getLogger("accessa.jobs")
TICK_SECONDS = 0.5  # how late a timer may be


class MaintenanceLoop:
    def __init__(self) -> None:
        self._swept = self._said = 0.0
        self._due_since: float | None = None

    def tick(self) -> None:
        """Do one round; a database that is away is waited for."""
        try:
            close_old_connections()
            if services.requeue_due_and_expired():
                services.notify_workers()
            self._sweep_apps()
            self._watch()
            self._say()
        except (DatabaseError, InterfaceError) as error:
            log.warning("The keeper cannot reach the database: %s", safe_error_name(error))
            self._due_since = None
            connection.close()

    def _sweep_apps(self) -> None:
        if time.monotonic() - self._swept < settings.JOBS_PERIODIC_SECONDS:
            return
        self._swept = time.monotonic()
        for path in settings.JOBS_PERIODIC_TASKS:
            sweep: Callable[[], object] = import_string(path)
            sweep()

    def _say(self) -> None:
        if time.monotonic() - self._said < registry.HEARTBEAT_SECONDS:
            return
        self._said = time.monotonic()
        try:
            registry.record_heartbeat()
        except (DatabaseError, InterfaceError) as error:  # work goes on without it
            log.warning("This cluster cannot say that it is up: %s", safe_error_name(error))
            connection.close()

    def _watch(self) -> None:
        """End the process group when work has been due for long and no worker of ours has looked for any.

        A SIGKILL of an idle worker can leave django-q2's queue locked for ever (VENDORS §4.3). Workers that are all
        busy look for nothing either, and hold leases: that is no hang. At a page beside they give signs of life.
        """
        with connection.cursor() as cursor:
            due = queries.count_claimable(cursor, most=1) or side_queues.count_claimable(cursor, most=1)
        if due and shared_memory.seconds_since_claim_attempt() > TICK_SECONDS:
            services.notify_workers()  # a ring was lost, or the broker is one that does not look for itself
        if not due or shared_memory.seconds_since_claim_attempt() < settings.JOBS_HANG_SECONDS:
            self._due_since = None
            return
        self._due_since = self._due_since or time.monotonic()
        if time.monotonic() - self._due_since < settings.JOBS_HANG_SECONDS / 3 or count_held_jobs() >= settings.WORKERS:
            return
        log.critical("Work is due and no worker takes it: this cluster hangs and ends itself.")
        kill_cluster()


def count_held_jobs() -> int:
    """Return how many jobs the workers of this cluster hold by a lease in force."""
    ours = UploadJob.objects.filter(state=State.WORKING, claimed_by__startswith=f"{shared_memory.cluster_name()}:")
    return ours.extra(where=["lease_until > clock_timestamp()"]).count()


def may_hold_jobs() -> bool:
    """Tell whether a worker of this cluster holds a job; when the database does not say, one may."""
    try:
        return count_held_jobs() > 0
    except (DatabaseError, InterfaceError):
        connection.close()
        return True


def kill_cluster(code: int | None = None) -> None:
    """Kill every process of this cluster at once; what they hold expires, the supervisor starts a new one.

    With a ``code`` the main process leaves with it, without one it dies by the same signal.
    """
    for process in reversed(psutil.Process().children(recursive=True)):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    if code is not None:
        os._exit(code)
    os.kill(os.getpid(), signal.SIGKILL)


def is_idle() -> bool:
    """Tell whether no job is active any more, and nothing is left in the queues beside."""
    return not UploadJob.objects.filter(state__in=ACTIVE).exists() and side_queues.are_idle()
