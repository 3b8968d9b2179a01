"""Maintenance loop of a cluster's main process: due and expired jobs, periodic tasks, hang watchdog."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import psycopg
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import DatabaseError, InterfaceError
from django.utils.module_loading import import_string

from jobs import services, side_queues
from jobs.choices import ACTIVE, State
from jobs.cluster import live_clusters, shared_state
from jobs.cluster.cpu_meter import CpuMeter
from jobs.models import UploadJob
from jobs.safe_errors import safe_error_name

log = logging.getLogger("accessa.jobs")
TICK_SECONDS = 1.0  # between two looks for work; a timeout within that time ends the pause
SHORTEST_TICK_SECONDS = 0.1
IDLE_FACTOR = 2  # periodic tasks are half as frequent while the workers have nothing to do
OVERLOAD_FACTOR = 10  # how much longer a cluster may hang while its processes wait for a core


class MaintenanceLoop:
    def __init__(self) -> None:
        self._last_periodic = self._last_heartbeat = 0.0
        self._due_since: float | None = None
        self._cpu = CpuMeter()  # of the whole cluster, while it seems to hang

    def tick(self) -> float:
        """Run one round and return the seconds until the next; while the database is unavailable, only log it."""
        pause = TICK_SECONDS
        try:
            close_old_connections()
            work = _find_work()
            if work.seconds_to_timeout is not None:
                pause = min(max(work.seconds_to_timeout, SHORTEST_TICK_SECONDS), pause)
                if work.seconds_to_timeout <= 0 and services.requeue_due_and_expired():
                    services.notify_workers()
            if work.claimable:
                shared_state.record_work_seen()
            self._run_periodic_tasks()
            self._kill_hanging_cluster(is_due=bool(work.claimable))
            self._record_heartbeat()
        except (DatabaseError, InterfaceError) as error:
            log.warning("The maintenance loop cannot reach the database: %s", safe_error_name(error))
            self._due_since = None
            connection.close()
        return pause

    def _run_periodic_tasks(self) -> None:
        is_idle = shared_state.seconds_since_claim_attempt() > settings.JOBS_PERIODIC_SECONDS
        pause = settings.JOBS_PERIODIC_SECONDS * (IDLE_FACTOR if is_idle else 1)
        if time.monotonic() - self._last_periodic < pause:
            return
        self._last_periodic = time.monotonic()
        for path in settings.JOBS_PERIODIC_TASKS:
            task: Callable[[], object] = import_string(path)
            task()

    def _record_heartbeat(self) -> None:
        if time.monotonic() - self._last_heartbeat < live_clusters.HEARTBEAT_SECONDS:
            return
        self._last_heartbeat = time.monotonic()
        try:
            live_clusters.record_heartbeat()
        except (DatabaseError, InterfaceError) as error:  # the jobs go on without it
            log.warning("This cluster cannot record its heartbeat: %s", safe_error_name(error))
            connection.close()

    def _kill_hanging_cluster(self, *, is_due: bool) -> None:
        """Kill the cluster when work has been due for long and none of its workers has tried to claim any.

        A SIGKILL of an idle worker can leave django-q2's queue locked for ever (VENDORS §4.3). Workers that are all
        busy do not claim either, and hold leases: that is no hang. Busy at a side queue, they record claim attempts.
        Nor is it one while they wait for a core: a hang wants none.
        """
        idle_seconds = shared_state.seconds_since_claim_attempt()
        if is_due and idle_seconds > TICK_SECONDS:
            services.notify_workers()  # a notification was lost, or the broker is one that does not poll
        if not is_due or idle_seconds < settings.JOBS_HANG_SECONDS:
            self._due_since = None
            return
        if self._due_since is None:
            self._due_since = time.monotonic()
            self._cpu.restart()
        self._cpu.sample()
        is_recent = time.monotonic() - self._due_since < settings.JOBS_HANG_SECONDS / 3
        if is_recent or count_held_jobs() >= settings.WORKERS:
            return
        if self._cpu.is_overloaded() and idle_seconds < settings.JOBS_HANG_SECONDS * OVERLOAD_FACTOR:
            self._due_since = None
            return
        log.critical("Work is due and no worker claims it: this cluster hangs and ends itself.")
        kill_cluster()


def _find_work() -> side_queues.Work:
    """Look for work once a second, by a prepared statement: planning it takes longer than running it."""
    connection.ensure_connection()
    connection.connection.prepare_threshold = 0
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return side_queues.find_work(cursor, most=1)


def count_held_jobs() -> int:
    """Count the jobs that the workers of this cluster hold by a valid lease."""
    jobs = UploadJob.objects.filter(state=State.WORKING, claimed_by__startswith=f"{shared_state.cluster_name()}:")
    return jobs.extra(where=["lease_until > clock_timestamp()"]).count()


def may_hold_jobs() -> bool:
    """Tell whether a worker of this cluster holds a job, or the database cannot tell."""
    try:
        return count_held_jobs() > 0
    except (DatabaseError, InterfaceError):
        connection.close()
        return True


def kill_cluster(code: int | None = None) -> None:
    """Kill every process of this cluster at once; their leases expire, and the supervisor starts a new cluster.

    The main process exits with ``code``; without one it kills itself too.
    """
    for process in reversed(psutil.Process().children(recursive=True)):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    if code is not None:
        os._exit(code)
    os.kill(os.getpid(), signal.SIGKILL)


def is_idle() -> bool:
    has_active_job = UploadJob.objects.filter(state__in=ACTIVE).exists()
    return not has_active_job and all(queue.is_idle() for queue in side_queues.side_queues())


def start_in_background(name: str, work: Callable[[], object], *, log: logging.Logger, broke_off: str) -> None:
    """Run a long periodic task in a thread with a connection of its own, unless a thread of that name runs already.

    A database error ends it with a warning that begins with ``broke_off``; the next run of the task starts it again.
    """

    def run() -> None:
        try:
            work()
        except (DatabaseError, InterfaceError) as error:
            log.warning("%s: %s", broke_off, safe_error_name(error))
        finally:
            connection.close()

    if not any(thread.name == name for thread in threading.enumerate()):
        threading.Thread(target=run, name=name, daemon=True).start()
