"""The heartbeat: keeps the lease of what this process holds, and ends the process when the work hangs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import DatabaseError, InterfaceError

from jobs import log_context
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_memory
from jobs.error_codes import STAGE_TIMEOUT
from jobs.errors import safe_error_name
from jobs.outcomes import Retryable
from jobs.settlement import apply_outcome

log = logging.getLogger("accessa.jobs")
RENEW_LEASE = """
    UPDATE upload_jobs SET lease_until = clock_timestamp() + %s
    WHERE job_id = %s AND claim_token = %s AND state = 'working'"""
TIMED_OUT = Retryable(STAGE_TIMEOUT, "The stage took longer than it may.")


class Renewable(Protocol):
    """What a process works on, as the heart keeps it: a job's stage, or a piece of a queue beside the jobs."""

    time_limit: float  # the longest, in seconds, that the work may take
    renew_seconds: float  # how often it is renewed

    def renew(self) -> None:
        """Say that it is still worked on. On the heart's thread and connection, as ``let_go``."""
        ...

    def release(self, *, timed_out: bool) -> None:
        """Give it to another worker: it took longer than it may, or this one has to stop."""
        ...

    def log_context(self) -> AbstractContextManager[object]:
        """Say in every line of the block what it is about."""
        ...


class Lease:
    """A job's present stage, kept by its lease."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.time_limit = claim.time_limit
        self.renew_seconds = settings.JOBS_LEASE_SECONDS / 3

    def __str__(self) -> str:
        return f"job {self.claim.job.pk} does not leave stage {self.claim.job.stage}"

    def renew(self) -> None:
        lease: Any = timedelta(seconds=settings.JOBS_LEASE_SECONDS)
        with connection.cursor() as cursor:
            cursor.execute(RENEW_LEASE, [lease, self.claim.job.pk, self.claim.token])

    def release(self, *, timed_out: bool) -> None:
        apply_outcome(self.claim, TIMED_OUT) if timed_out else self.claim.move("release")

    def log_context(self) -> AbstractContextManager[object]:
        return log_context.job_log_context(self.claim.job)


class WatchedWork(NamedTuple):
    kept: Renewable
    until: float


class Heartbeat:
    """One thread a process, with a connection of its own, started with the first claim after the fork."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: WatchedWork | None = None
        self._pid = 0
        self.may_kill_process = False  # only worker processes may be ended: a test or a command may not

    def watch_claim(self, claim: Claim) -> None:
        """Keep the lease of ``claim`` while its present stage runs, for as long as the stage may take."""
        self.watch(Lease(claim))

    def watch(self, kept: Renewable) -> None:
        """Renew ``kept`` until ``rest``, and end the process when it takes longer than it may."""
        with self._changed:
            self._held = WatchedWork(kept, time.monotonic() + kept.time_limit)
            self._start()
        if self.may_kill_process:
            # The kernel's own alarm: it ends a process whose GIL is held, which no thread of it could.
            signal.alarm(int(kept.time_limit + settings.JOBS_LEASE_SECONDS) + 1)

    def clear(self) -> None:
        """Nothing is held any more."""
        with self._changed:
            self._held = None
        if self.may_kill_process:
            signal.alarm(0)

    def _start(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        renewed = time.monotonic()
        stopping_since: float | None = None
        while True:
            time.sleep(0.25)
            held = self._held
            if held is None:
                renewed, stopping_since = time.monotonic(), None
                continue
            now = time.monotonic()
            if now > held.until:
                self._end(held, timed_out=True)
            if shared_memory.is_stopping():
                stopping_since = stopping_since or now
                if now - stopping_since > settings.JOBS_STOP_GRACE_SECONDS:
                    self._end(held, timed_out=False)
            if now - renewed >= held.kept.renew_seconds:
                renewed = now
                _renew(held.kept)

    def _end(self, held: WatchedWork, *, timed_out: bool) -> None:
        """Let go of what does not come back, then end the process: its thread cannot be stopped."""
        with self._changed:
            if not self.may_kill_process or self._held is not held:
                return
            with held.kept.log_context():
                log.error("Ending this worker: %s.", held.kept)
                try:
                    held.kept.release(timed_out=timed_out)
                except (DatabaseError, InterfaceError, ClaimLost) as error:
                    log.error("Could not let go of it (%s); its time will run out.", safe_error_name(error))
            os.kill(os.getpid(), signal.SIGKILL)


def _renew(kept: Renewable) -> None:
    try:
        close_old_connections()
        kept.renew()
    except (DatabaseError, InterfaceError, ClaimLost) as error:
        # Its time runs out unless a later beat succeeds; the fence refuses what is written after that.
        with kept.log_context():
            log.warning("Could not renew what is held: %s", safe_error_name(error))


HEARTBEAT = Heartbeat()
