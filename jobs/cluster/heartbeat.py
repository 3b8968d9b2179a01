"""Heartbeat thread: renews the lease of running work and kills a worker that exceeds its time limit."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError, InterfaceError

from jobs import services, telemetry
from jobs.claim_batches import ClaimBatch
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_state
from jobs.cluster.cpu_meter import CpuMeter
from jobs.error_codes import STAGE_TIMEOUT
from jobs.outcomes import Retryable
from jobs.pipeline import DEFAULT_TIME_LIMIT, get_pipeline
from jobs.safe_errors import safe_error_name
from jobs.unsaved_stages import MAX_UNSAVED_SECONDS, WriteFailed

log = logging.getLogger("accessa.jobs")
IDLE_SECONDS = 10.0  # then a worker closes its connections: the next job pays for new ones
CPU = CpuMeter()  # of this process, since the last renewal of a job's lease
# With the lease goes whether the machine is too busy for the job: nobody could ask a worker that is killed or stalled.
RENEW_LEASE = """
    UPDATE upload_jobs SET lease_until = clock_timestamp() + %s, overloaded = %s, in_batch = false
    WHERE job_id = %s AND claim_token = %s AND state = 'working'"""


class Renewable(Protocol):
    """Work that a process holds: a job's stage, or a message of a side queue."""

    time_limit: float  # in seconds
    renew_seconds: float

    def renew(self) -> None:
        """Extend the lease. Called on the heartbeat's thread and connection, as ``release``."""

    def release(self, *, timed_out: bool) -> None:
        """Give the work to another worker: it exceeded its time limit, or this worker has to stop."""

    def log_context(self) -> AbstractContextManager[object]: ...


class Lease:
    def __init__(self, claim: Claim, batch: ClaimBatch) -> None:
        self.claim, self.batch = claim, batch
        try:
            self.time_limit = get_pipeline(claim.job.pipeline).step(claim.job.stage).time_limit
        except ImproperlyConfigured:  # the pipeline is not deployed here: the attempt will say so
            self.time_limit = DEFAULT_TIME_LIMIT
        self.renew_seconds = MAX_UNSAVED_SECONDS / 4

    def __str__(self) -> str:
        return f"job {self.claim.job.pk} exceeded the time limit of stage {self.claim.job.stage}"

    def renew(self) -> None:
        self.claim.save_overdue()
        is_alone_now = self.batch.end_if_slow()  # the others' leases are not to be renewed, and its own attempt counts
        if is_alone_now or time.monotonic() - self.claim.renewed_at >= settings.JOBS_LEASE_SECONDS / 3:
            self.claim.renewed_at = time.monotonic()
            self.extend()
        if is_alone_now:
            services.notify_workers()  # what was released is due, while this worker is busy

    def extend(self) -> None:
        lease: Any = timedelta(seconds=settings.JOBS_LEASE_SECONDS)
        with connection.cursor() as cursor:
            cursor.execute(RENEW_LEASE, [lease, CPU.is_overloaded(), self.claim.job.pk, self.claim.token])
        CPU.restart()

    def release(self, *, timed_out: bool) -> None:
        with suppress(WriteFailed):
            self.claim.save()
        self.claim.settle(Retryable(STAGE_TIMEOUT)) if timed_out else self.claim.move("release")

    def log_context(self) -> AbstractContextManager[object]:
        return telemetry.job_log_context(self.claim.job)


class WatchedWork(NamedTuple):
    work: Renewable
    until: float


class Heartbeat:
    """One thread per process, with a connection of its own, started with the first drain after the fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: WatchedWork | None = None
        self._pid = 0
        self._draining = threading.Lock()  # held while the worker's main thread uses its connection
        self._drained_at = 0.0
        self._main_connection: BaseDatabaseWrapper | None = None
        self.may_kill_process = False  # only of worker processes: not of a test or a command

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Keep the connection of the calling thread for the block; some idle seconds later the heartbeat closes it."""
        with self._draining:
            yield
            self._main_connection, self._drained_at = connections[DEFAULT_DB_ALIAS], time.monotonic()
        if self.may_kill_process:
            with self._lock:
                self._start()

    def close_idle_connections(self) -> None:
        """Close the worker's connection and this thread's own, unless a drain has begun or just ended."""
        if self._main_connection is None or time.monotonic() - self._drained_at < IDLE_SECONDS:
            return
        if not self.may_kill_process or not self._draining.acquire(blocking=False):
            return
        try:
            self._main_connection.inc_thread_sharing()
            self._main_connection.close()
            self._main_connection.dec_thread_sharing()
            self._main_connection = None
            connection.close()
        finally:
            self._draining.release()

    def watch(self, work: Renewable) -> None:
        """Renew ``work`` until ``clear``, and kill the process when it exceeds its time limit.

        Not in an open transaction, as a test's is: this thread's connection would not see the rows, or wait for them.
        """
        if connection.in_atomic_block:
            return
        with self._lock:
            self._watched = WatchedWork(work, time.monotonic() + work.time_limit)
            self._start()
        if self.may_kill_process:
            # The kernel's alarm also ends a process whose GIL is held, which no thread of it could.
            signal.alarm(int(work.time_limit + settings.JOBS_LEASE_SECONDS) + 1)

    def _start(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def clear(self) -> None:
        """Stop renewing: the process holds nothing."""
        with self._lock:
            self._watched = None
        if self.may_kill_process:
            signal.alarm(0)

    def _run(self) -> None:
        renewed = time.monotonic()
        stopping_since: float | None = None
        while True:
            time.sleep(0.25)
            watched = self._watched
            if watched is None:
                renewed, stopping_since = time.monotonic(), None
                CPU.restart()
                self.close_idle_connections()
                continue
            CPU.sample()
            now = time.monotonic()
            if now > watched.until:
                self._kill_process(watched, timed_out=True)
            if shared_state.is_stopping():
                stopping_since = stopping_since or now
                if now - stopping_since > settings.JOBS_STOP_GRACE_SECONDS:
                    self._kill_process(watched, timed_out=False)
            if now - renewed >= watched.work.renew_seconds:
                renewed = now
                try:
                    close_old_connections()
                    watched.work.renew()
                except Exception as error:  # of the store too, when a lost claim's objects are deleted
                    # The lease expires unless a later renewal succeeds; the fence rejects what is written after that.
                    with watched.work.log_context():
                        log.warning("Could not renew the lease: %s", safe_error_name(error))

    def _kill_process(self, watched: WatchedWork, *, timed_out: bool) -> None:
        """Release the work, then kill the process: its thread cannot be stopped."""
        with self._lock:
            if not self.may_kill_process or self._watched is not watched:
                return
            with watched.work.log_context():
                log.error("Killing this worker: %s.", watched.work)
                try:
                    watched.work.release(timed_out=timed_out)
                except (DatabaseError, InterfaceError, ClaimLost) as error:
                    log.error("Could not release the lease (%s); it will expire.", safe_error_name(error))
            os.kill(os.getpid(), signal.SIGKILL)


HEARTBEAT = Heartbeat()
