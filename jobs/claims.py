"""Claims on jobs: the token that fences a worker's writes, and the moves made under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction

from jobs import failpoints, fair_queue, lifecycle
from jobs.error_codes import BUG
from jobs.fair_queue import NIL_UUID
from jobs.lifecycle import CHECK_CLAIM, LOCK_CLAIM, LOCK_CLAIM_NO_FSYNC
from jobs.models import Event, UploadJob
from jobs.outcomes import Advance, Moved, Permanent, Retryable, RunOutcome, Wait
from jobs.pipeline import Step, get_pipeline
from jobs.retry_policy import retry_delay
from jobs.safe_errors import safe_traceback


class ClaimLost(Exception):
    """The claim is lost: its lease ran out, or the job was cancelled or deleted. Nothing was written."""


class Claim:
    """A job held by this worker until its lease ends. Only the holder of the token may write for the job."""

    def __init__(self, job: UploadJob) -> None:
        self.job = job
        self.token = cast(UUID, job.claim_token)

    @property
    def next_step(self) -> Step | None:
        return get_pipeline(self.job.pipeline).next_step(self.job.stage)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Open the transaction of the stage's one write; raise ``ClaimLost`` when the claim is lost.

        ``durable=False`` commits with ``synchronous_commit=off``. Use it only for writes that running the stage again
        recreates. Commit durably before any paid or external side effect: earlier commits are then on disk too. An
        object may be stored before the commit, because the next attempt stores it at the same path.
        """
        stage = self.job.stage
        with transaction.atomic():
            self.ensure_held(LOCK_CLAIM if durable else LOCK_CLAIM_NO_FSYNC)
            yield
            failpoints.failpoint(f"{stage}:before-commit")
        failpoints.failpoint(f"{stage}:after-commit")

    def ensure_held(self, sql: str = CHECK_CLAIM) -> None:
        """Raise ``ClaimLost`` when the claim is lost by now; without a lock it may be lost a moment later."""
        if not lifecycle.execute(sql, {"job_id": self.job.pk, "held": self.token}):
            raise ClaimLost(str(self.job.pk))

    def advance(
        self, *, code: str | None = None, event: Mapping[str, Any] | None = None, durable: bool = True, **fields: Any
    ) -> Moved:
        """Move to the next stage (working -> working) and set ``fields``. Call inside ``transaction()``.

        Outside of it, where nothing else was written, ``durable=False`` may be set: after a crash the stage runs again.
        """
        step = self.next_step
        if step is None:
            self.move("finish", code=code, event=event, fields=fields)
            return Moved(ended=True)
        columns = {"stage": step.stage.value, "total_pct": step.total_pct}
        self.move("advance", code=code, event=event, fields=fields, durable=durable, **columns)
        return Moved()

    def save_progress(self, *, total_pct: float, **fields: Any) -> None:
        """Set ``fields`` without a move. Call inside ``transaction()``."""
        high_water = "total_pct = greatest(u.total_pct, %(total_pct)s)"
        sets = ", ".join([*lifecycle.set_clauses(list(fields)), high_water, "updated_at = clock_timestamp()"])
        sql = f"UPDATE upload_jobs u SET {sets} WHERE job_id = %(job_id)s RETURNING job_id"
        lifecycle.execute(sql, {**fields, "total_pct": total_pct, "job_id": self.job.pk})

    def log_event(self, code: str, **payload: Any) -> None:
        """Write an event of this job; inside ``transaction()`` it is part of the same write."""
        lifecycle.log_event(self.job, code, Event.Type.STAGE_DONE, payload={"stage": self.job.stage, **payload})

    def move(self, name: str, *, event: Mapping[str, Any] | None = None, **params: Any) -> None:
        """Make one of ``lifecycle.MOVES``, with the options of ``make_move``, or raise ``ClaimLost``."""
        event = {"from": self.job.stage, **(event or {})}
        rows = lifecycle.make_move(name, LOCK_CLAIM, event=event, job_id=self.job.pk, held=self.token, **params)
        if not rows:
            raise ClaimLost(str(self.job.pk))
        self.job = lifecycle.load_job(rows[0])

    def settle(self, outcome: RunOutcome) -> bool:
        """Make the move that the outcome of an attempt calls for; return whether the claim goes on."""
        match outcome:
            case Moved():
                return not outcome.ended
            case Advance():
                return not self.advance(code=outcome.code, event=outcome.payload, durable=False, **outcome.fields).ended
            case Wait():
                pause = timedelta(seconds=outcome.seconds)
                self.move("wait", event={"reason": outcome.reason}, reason=outcome.reason, pause=pause)
            case Permanent() | Retryable():
                job, code = self.job, outcome.code
                error = {"code": code, "detail": outcome.detail, "stage": job.stage, "attempt": job.attempts}
                if isinstance(outcome, Permanent):
                    error["permanent"] = True  # distinguishes it from a failure that has used up its attempts
                traceback = safe_traceback(outcome.__cause__ or outcome) if code == BUG else None
                columns: dict[str, Any] = {"event": {"code": code}, "error": error, "traceback": traceback}
                if isinstance(outcome, Retryable) and (delay := retry_delay(job.attempts, outcome.retry_after)):
                    self.move("retry", pause=delay, **columns)
                else:
                    self.move("discard", **columns)
        return False

    def finish_and_claim_next(self, worker: str, *, event: Mapping[str, Any] | None = None) -> Claim | None:
        """Finish this job (working -> done) and claim the next due one, in one statement and one commit."""
        finish_event = {"from": self.job.stage, **(event or {})}
        params = {"job_id": self.job.pk, "held": self.token, "finish_code": None, "finish_event": finish_event}
        rows = fair_queue.execute_claim(fair_queue.FINISH_AND_CLAIM, worker, self.job.user_id, params)
        if not rows:  # too many collisions over the next job: end this one by itself
            self.move("finish", event=event)
            return None
        if not rows[0].pop("finished"):
            raise ClaimLost(str(self.job.pk))
        return Claim(lifecycle.load_job(rows[0])) if rows[0]["job_id"] else None

    def should_yield(self) -> bool:
        """Tell whether a job of normal priority would run if this one released its worker.

        A job of low priority yields to any of them, a job in a slot that not every user has to another user's job.
        """
        job = self.job
        if not job.low_priority and (job.slot or 0) < settings.JOBS_ACTIVE_PER_USER:
            return False
        but = NIL_UUID if job.low_priority else job.user_id
        params = {"job_id": job.pk, "last": NIL_UUID, "but": but, **fair_queue.concurrency_params()}
        return bool(lifecycle.execute(fair_queue.SHOULD_YIELD, params)[0]["wanted"])


def claim_next(worker: str, last: UUID = NIL_UUID) -> Claim | None:
    """Claim the next due job (queued -> working), the users after ``last`` first, or None."""
    rows = fair_queue.claim_next(worker, last)
    return Claim(lifecycle.load_job(rows[0])) if rows else None
