"""The heartbeat: keeps the lease of what this process holds, and ends the process when the work hangs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import DatabaseError, InterfaceError

from jobs import cluster, context
from jobs.claims import Claim, Superseded
from jobs.faults import named
from jobs.outcomes import Retryable
from jobs.settling import settle

log = logging.getLogger("accessa.jobs")
RENEW = """
    UPDATE upload_jobs SET lease_until = clock_timestamp() + %s
    WHERE job_id = %s AND claim_token = %s AND state = 'working'"""
TIMED_OUT = Retryable("STAGE_TIMEOUT", "The stage took longer than it may.")


class Held(NamedTuple):
    claim: Claim
    until: float


class Heart:
    """One thread a process, with a connection of its own, started with the first claim after the fork."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: Held | None = None
        self._pid = 0
        self.mortal = False  # only worker processes may be ended: a test or a command may not

    def watch(self, claim: Claim) -> None:
        """Keep the lease of ``claim`` while its present stage runs, for as long as the stage may take."""
        limit = claim.limit
        with self._changed:
            self._held = Held(claim, time.monotonic() + limit)
            self._start()
        if self.mortal:
            # The kernel's own alarm: it ends a process whose GIL is held, which no thread of it could.
            signal.alarm(int(limit + settings.JOBS_LEASE_SECONDS) + 1)

    def rest(self) -> None:
        """Nothing is held any more."""
        with self._changed:
            self._held = None
        if self.mortal:
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
                self._end(held, TIMED_OUT)
            if cluster.stopping():
                stopping_since = stopping_since or now
                if now - stopping_since > settings.JOBS_STOP_GRACE_SECONDS:
                    self._end(held, None)
            if now - renewed >= settings.JOBS_LEASE_SECONDS / 3:
                renewed = now
                _renew(held.claim)

    def _end(self, held: Held, ending: Retryable | None) -> None:
        """Let go of a job whose handler does not come back, then end the process: its thread cannot be stopped."""
        with self._changed:
            if not self.mortal or self._held is not held:
                return
            with context.about(held.claim.job):
                log.error(
                    "Ending this worker: job %s does not leave stage %s.", held.claim.job.pk, held.claim.job.stage
                )
                try:
                    settle(held.claim, ending) if ending else held.claim.move("release")
                except (DatabaseError, InterfaceError, Superseded) as error:
                    log.error("Could not let go of the job (%s); its lease will run out.", named(error))
            os.kill(os.getpid(), signal.SIGKILL)


def _renew(claim: Claim) -> None:
    lease: Any = timedelta(seconds=settings.JOBS_LEASE_SECONDS)
    try:
        close_old_connections()
        with connection.cursor() as cursor:
            cursor.execute(RENEW, [lease, claim.job.pk, claim.token])
    except (DatabaseError, InterfaceError) as error:
        # The lease runs out unless a later beat succeeds; the fence refuses what is written after that.
        with context.about(claim.job):
            log.warning("Could not renew a lease: %s", named(error))


HEART = Heart()
