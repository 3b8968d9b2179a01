"""Batches of claims: jobs that are claimed in one statement and finished in one, while they take no time."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import structlog

from jobs import claim_queries, failpoints, lifecycle, telemetry
from jobs.claim_queries import BatchLimit
from jobs.claims import Claim
from jobs.lifecycle import LOCK_CLAIMS
from jobs.models import UploadJob
from jobs.pipeline import joins_batch

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")

LOST_CLAIM = "Lost the claim; its writes were rejected."
MAX_JOBS = 20
QUICK_SECONDS = 0.005  # the most that a job may take, from its claim to its end, for others to be claimed with it
MAX_SECONDS = 0.02  # from the claim on; then what has ended is finished, and what has not begun is released
FIRST_SIZE = 1 / 8

# Jobs of a pipeline's stage to claim at once: from four quick jobs alone on, twice as many after each batch that
# ends in time; as many as have begun after one that does not; one again after a job that is not quick.
_sizes: defaultdict[tuple[str, str], float] = defaultdict(lambda: FIRST_SIZE)


class ClaimBatch:
    """The claims of one worker: those that wait for their turn, and those whose jobs have ended and are not finished.

    Both are empty while a job runs that was claimed alone. The heartbeat's thread calls ``end_if_slow``.
    """

    def __init__(self) -> None:
        self.waiting: deque[Claim] = deque()
        self._ended: list[tuple[Claim, Mapping[str, Any]]] = []  # of one job, a lost claim may be beside the held one
        self._claimed, self._claimed_at = 0, 0.0
        self.limit = claim_queries.NO_BATCH
        self._lock = threading.RLock()

    def record_run(self, claimed: UploadJob, seconds: float) -> None:
        """Set the size of the next batch by the job that has just run: how long it took from its claim to its end."""
        with self._lock:
            key = (claimed.pipeline, claimed.stage)
            if seconds > QUICK_SECONDS or not joins_batch(*key):
                self._set_size(key, FIRST_SIZE)
            elif not self.waiting:
                self._set_size(key, min(MAX_JOBS, _sizes[key] * 2))

    def _set_size(self, key: tuple[str, str], size: float) -> None:
        _sizes[key] = size
        self.limit = BatchLimit(*key, max(1, int(size)))

    def finish_later(self, claim: Claim, event: Mapping[str, Any]) -> None:
        """Finish the job with the batch, or with the next claim when it is alone. It has nothing more to write."""
        with self._lock:
            self._ended.append((claim, {"from": claim.job.stage, **event}))

    def next_claim(self) -> Claim | None:
        """Return the claim of the batch whose turn it is, or None when there is none or the batch is over."""
        with self._lock:
            if not self.waiting or self._is_overdue():
                return None
            failpoints.failpoint("batch:middle")
            return self.waiting.popleft()

    def claim_next(self, worker: str, last: UUID) -> Claim | None:
        """End the batch, and claim the next jobs, in one statement if none is to be released; return the first."""
        with self._lock:
            self._release_waiting()
            rows = self._finish_and_claim(worker, last) if self._ended else []
            rows = rows or claim_queries.claim_next(worker, last, self.limit)
            claims = [Claim(lifecycle.load_job(row)) for row in rows]
            self.waiting, self._claimed, self._claimed_at = deque(claims), len(claims), time.monotonic()
            return self.waiting.popleft() if claims else None

    def end(self) -> bool:
        """Finish what has ended and release what has not begun; tell whether there was either."""
        with self._lock:
            was_empty = not self.waiting and not self._ended
            self._release_waiting()
            if self._ended:
                rows = lifecycle.make_move("finish", LOCK_CLAIMS, by_job=self._events(), **_keys(self._claims()))
                self._forget_ended({row["job_id"] for row in rows})
            return not was_empty

    def end_if_slow(self) -> bool:
        """End the batch while one of its jobs runs, if that takes long. Called on the heartbeat's thread."""
        if not self._is_overdue() or not self._lock.acquire(blocking=False):
            return False
        try:
            return self.end()
        finally:
            self._lock.release()

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._claimed_at > MAX_SECONDS

    def _claims(self) -> list[Claim]:
        return [claim for claim, _ in self._ended]

    def _events(self) -> dict[str, Mapping[str, Any]]:
        return {str(claim.job.pk): event for claim, event in self._ended}

    def _finish_and_claim(self, worker: str, last: UUID) -> list[dict[str, Any]]:
        """Return the claimed rows; none after too many collisions over a slot, when nothing is finished either."""
        point = "batch" if len(self._ended) > 1 else "alone"
        failpoints.failpoint(f"{point}:before-commit")
        params = {"finish_code": None, "finish_events": self._events(), **_keys(self._claims())}
        rows = claim_queries.execute_claim(claim_queries.FINISH_AND_CLAIM, worker, last, self.limit, params)
        failpoints.failpoint(f"{point}:after-commit")
        if not rows:
            self.end()
            return []
        self._forget_ended(set(rows[0]["finished"] or ()))
        return claim_queries.in_turn([row for row in rows if row["job_id"]], last)

    def _forget_ended(self, finished: set[UUID]) -> None:
        for claim, _ in self._ended:
            if claim.job.pk not in finished:
                log.info(LOST_CLAIM, **telemetry.job_fields(claim.job))
        self._ended = []

    def _release_waiting(self) -> None:
        if self.waiting:
            key = (self.waiting[0].job.pipeline, self.waiting[0].job.stage)
            self._set_size(key, min(_sizes[key], self._claimed - len(self.waiting)))
            lifecycle.make_move("release", LOCK_CLAIMS, event={"from": key[1]}, **_keys(self.waiting))
            self.waiting.clear()


def _keys(claims: Iterable[Claim]) -> dict[str, Any]:
    claims = list(claims)
    return {"jobs": [claim.job.pk for claim in claims], "tokens": [claim.token for claim in claims]}
