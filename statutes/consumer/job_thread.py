"""Worker thread of a consumer: runs due jobs as any worker does."""

import signal
import threading

import structlog
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs import services, worker
from jobs.choices import State
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_state
from jobs.cluster.lease_heartbeat import HEARTBEAT
from jobs.models import UploadJob
from jobs.safe_errors import safe_error_name

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
POLL_SECONDS = 0.5


class WorkerThread:
    """Runs jobs until the process is told to stop. ``mortal``: a stage that exceeds its limit ends the process."""

    def __init__(self, *, mortal: bool) -> None:
        self._mortal = mortal
        self._due = threading.Event()
        self.changed = threading.Event()  # set after each drain: jobs may have ended
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        HEARTBEAT.may_kill_process = self._mortal
        self._thread.start()

    def wake(self) -> None:
        """Look for due jobs now."""
        self._due.set()

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, seconds: float) -> None:
        """Wait so long for the current stage to end; call after ``shared_state.request_stop()``."""
        self._due.set()
        self._thread.join(seconds)

    def release_jobs(self) -> None:
        """Release the jobs of a stage that does not end. What it writes after that is rejected."""
        for job in UploadJob.objects.filter(state=State.WORKING, claimed_by=worker.worker_name()):
            try:
                Claim(job).move("release")
            except ClaimLost:
                continue

    def _run(self) -> None:
        while not shared_state.is_stopping():
            count = 0
            try:
                services.requeue_due_and_expired()
                count = worker.drain()
            except (DatabaseError, InterfaceError) as error:
                log.warning("The database is away.", error=safe_error_name(error))
                connection.close()
            except worker.DrainFailed as error:
                log.error("A drain failed.", error=str(error))
            self.changed.set()
            if count == 0:
                self._due.wait(POLL_SECONDS)
            self._due.clear()
        connection.close()
        self.changed.set()


def disarm_stage_alarm(*, at_last: int = 0) -> None:
    """Disarm the alarm of the stage's time limit: from here on the process ends by itself.

    After ``at_last`` seconds the kernel's alarm ends whatever hangs, such as a call to a store that no longer answers;
    0 sets no alarm.
    """
    HEARTBEAT.may_kill_process = False
    signal.alarm(at_last)
