"""Worker thread of a consumer: runs the jobs of its messages until the process stops."""

import threading

import structlog
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs import services, worker
from jobs.choices import State as JobState
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_state
from jobs.cluster.heartbeat import HEARTBEAT
from jobs.models import UploadJob
from jobs.safe_errors import safe_error_name

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
POLL_SECONDS = 0.5  # how late a due job, or the end of another worker's job, may be noticed


class WorkerThread:
    """Runs jobs until the process stops. ``mortal``: a stage that exceeds its limit ends the process."""

    def __init__(self, *, mortal: bool) -> None:
        self._mortal = mortal
        self._due = threading.Event()
        self.changed = threading.Event()  # set after each drain: jobs may have ended
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        HEARTBEAT.may_kill_process = self._mortal
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, seconds: float) -> None:
        """Wait so long for the current stage to end; call after ``shared_state.request_stop()``."""
        self._due.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def release_jobs(self) -> None:
        """Release the jobs of a stage that does not end. What it writes after that is rejected."""
        for job in UploadJob.objects.filter(state=JobState.WORKING, claimed_by=worker.worker_name()):
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
