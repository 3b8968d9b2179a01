"""The work, beside the queue: a thread that carries due jobs as any worker does."""

from __future__ import annotations

import signal
import threading

import structlog
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs import services, worker
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_memory
from jobs.cluster.heartbeat import HEARTBEAT
from jobs.errors import safe_error_name
from jobs.models import UploadJob
from jobs.states import State

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
PAUSE = 0.5  # how late a timer may be


class WorkerThread:
    """Works until the process is told to stop. ``mortal``: a stage that takes too long ends the process."""

    def __init__(self, *, mortal: bool) -> None:
        self._mortal = mortal
        self._due = threading.Event()
        self.changed = threading.Event()  # a turn is over: look at the jobs again
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)

    def start(self) -> None:
        HEARTBEAT.may_kill_process = self._mortal
        self._thread.start()

    def wake(self) -> None:
        """Something is due."""
        self._due.set()

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, seconds: float) -> None:
        """Wait so long for the present stage to end; call after ``cluster.stop()``."""
        self._due.set()
        self._thread.join(seconds)

    def release_jobs(self) -> None:
        """Release what a stage that does not come back holds. What it writes after that is refused."""
        for job in UploadJob.objects.filter(state=State.WORKING, claimed_by=worker.worker_name()):
            try:
                Claim(job).move("release")
            except ClaimLost:
                continue

    def _work(self) -> None:
        while not shared_memory.is_stopping():
            if self._turn() == 0:
                self._due.wait(PAUSE)
            self._due.clear()
        connection.close()
        self.changed.set()

    def _turn(self) -> int:
        """Move what time moves, and carry what is due; return how many jobs were let go of."""
        try:
            services.requeue_due_and_expired()
            return worker.drain()
        except (DatabaseError, InterfaceError) as error:
            log.warning("The database is away.", error=safe_error_name(error))
            connection.close()
        except worker.DrainFailed as error:
            log.error("A turn broke off.", error=str(error))
        finally:
            self.changed.set()
        return 0


def disarm_stage_alarm(*, at_last: int = 0) -> None:
    """Take the stage's alarm off: from here on the process ends by itself, or else ``at_last``, so many seconds on.

    The kernel's alarm ends what hangs, be it a call to a store that no longer answers. 0: nothing ends it.
    """
    HEARTBEAT.may_kill_process = False
    signal.alarm(at_last)
