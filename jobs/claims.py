"""Claims on jobs: the token that fences a worker's writes, and the moves made under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction

from jobs import claim_queries, failpoints, lifecycle, unsaved_stages
from jobs.claim_queries import NIL_UUID
from jobs.error_codes import BUG
from jobs.lifecycle import CHECK_CLAIM, LOCK_CLAIM, LOCK_CLAIM_AT_STAGE, LOCK_CLAIM_NO_FSYNC
from jobs.models import Event, UploadJob
from jobs.outcomes import Advance, Moved, Permanent, Retryable, RunOutcome, Wait
from jobs.pipeline import Step, get_pipeline
from jobs.retry_policy import retry_delay
from jobs.safe_errors import safe_traceback
from jobs.unsaved_stages import MAX_UNSAVED_SECONDS, UnsavedStage, WriteFailed


class ClaimLost(Exception):
    """The claim is lost: its lease ran out, or the job was cancelled or deleted. Nothing was written."""


class Claim:
    """A job held by this worker until its lease ends. Only the holder of the token may write for the job."""

    def __init__(self, job: UploadJob) -> None:
        self.job = job
        self.token = cast(UUID, job.claim_token)
        self.renewed_at = self.stage_began = time.monotonic()
        # Whether consecutive stages may share a commit. Not after a crash: then the stage that crashes is to be known.
        self.shares_commits = False
        # A later stage's work that is done already, and its seconds: the stages before it end earlier by them.
        self.done_ahead: Any = None
        self.lead_seconds = 0.0
        self._unsaved: list[UnsavedStage] = []
        # Those whose writes are in the current transaction, and not their moves; with the seconds of all writes so far.
        self._unmoved: list[tuple[UnsavedStage, float]] = []
        self._saved_job = job
        self._lock = threading.RLock()  # held while stages are saved: the heartbeat's thread may save them too

    @property
    def next_step(self) -> Step | None:
        return get_pipeline(self.job.pipeline).next_step(self.job.stage)

    @property
    def has_unsaved(self) -> bool:
        return bool(self._unsaved)

    def unsaved_result(self, stage: str) -> Any:
        """Return what ``end_stage`` got as ``result``, or None when the stage is saved: then read what it wrote."""
        return next((each.result for each in self._unsaved if each.job.stage == stage), None)

    def end_stage(
        self,
        write: Callable[[], object] | None = None,
        *,
        durable: bool = False,
        when_lost: Callable[[], object] | None = None,
        result: Any = None,
        code: str | None = None,
        event: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Moved:
        """End the stage: make ``write``, and the move to the next stage, which sets ``fields``, in one transaction.

        The worker saves them after the handler, or with stages that follow (``Step.joins_commit``). ``write`` is called
        in a later moment, maybe twice, maybe by another thread. ``when_lost`` is called instead when the claim is lost.
        """
        step = self.next_step
        if step is None:
            raise ValueError("The last stage ends its job in a transaction of its own.")
        stage = UnsavedStage(
            self.job,
            step,
            code,
            event or {},
            fields,
            at=time.monotonic() - self.lead_seconds,
            began=self.stage_began,
            write=write,
            durable=durable,
            when_lost=when_lost,
            result=result,
        )
        with self._lock:
            self._unsaved.append(stage)
            self.job = stage.next_job()
        return Moved()

    def may_continue_unsaved(self) -> bool:
        """Tell whether the next stage may begin before those that ended are saved."""
        step = get_pipeline(self.job.pipeline).step(self.job.stage)
        # A job that was past the stage before may skip it by its rows, which have to be there.
        joins = self.shares_commits and step.joins_commit and self.job.total_pct <= step.total_pct
        return joins and not self._is_overdue()

    def save(self) -> None:
        """Save the stages that have ended, in one transaction. Raises ``ClaimLost`` and ``WriteFailed``."""
        with self._lock:
            if self._unsaved:
                try:
                    self.job = self._save()
                except (ClaimLost, WriteFailed):
                    raise
                except Exception as error:  # of the moves, or of the commit
                    raise WriteFailed(self._unsaved[0], error) from error

    def save_overdue(self) -> None:
        """Save what waits too long because a stage is slow. Called on the heartbeat's thread while the stage runs."""
        if self._is_overdue() and self._lock.acquire(blocking=False):
            try:
                with suppress(WriteFailed):  # the worker will meet it too, and charge the stage
                    self._save()
            finally:
                self._lock.release()

    def _save(self) -> UploadJob:
        if any(each.write for each in self._unsaved):
            with self._transaction([], durable=False):
                pass
        else:
            self._unmoved = [(stage, 0.0) for stage in self._unsaved]
            self.save_moves(durable=False)
            self._unsaved = []
        return self._saved_job

    def _is_overdue(self) -> bool:
        return any(time.monotonic() - first.began > MAX_UNSAVED_SECONDS for first in self._unsaved[:1])

    def return_to(self, stage: UnsavedStage) -> None:
        """Undo, in memory, a stage whose write failed, and those after it, unless the heartbeat has just saved them."""
        with self._lock:
            if stage in self._unsaved:
                self._unsaved = self._unsaved[: self._unsaved.index(stage)]
                self.job = stage.job

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Open the transaction of the stage's one write; raise ``ClaimLost`` when the claim is lost.

        Stages that have ended are saved in it first; call ``save_moves`` before reading the job's row. Use
        ``durable=False``, which commits with ``synchronous_commit=off``, only for writes that running the stage again
        recreates. Commit durably before any paid or external side effect: earlier commits are then on disk too. An
        object may be stored before the commit, because the next attempt stores it at the same path.
        """
        with self._transaction([self.job.stage], durable=durable):
            yield

    @contextmanager
    def _transaction(self, own: list[str], *, durable: bool) -> Iterator[None]:
        with self._lock:
            points = [each.job.stage for each in self._unsaved if each.write] + own
            if len(points) > 1:
                points.append("chain")
            try:
                with transaction.atomic():
                    is_durable = durable or any(each.durable for each in self._unsaved)
                    self.ensure_held(LOCK_CLAIM if is_durable else LOCK_CLAIM_NO_FSYNC)
                    self._write_unsaved()
                    yield
                    self.save_moves()
                    for point in points:
                        failpoints.failpoint(f"{point}:before-commit")
            except ClaimLost:
                for when_lost in [each.when_lost for each in self._unsaved if each.when_lost]:
                    when_lost()
                raise
            finally:
                self._unmoved = []
            self._unsaved = []
        for point in points:
            failpoints.failpoint(f"{point}:after-commit")

    def _write_unsaved(self) -> None:
        self._unmoved, began = [], time.monotonic()
        for stage in self._unsaved:
            try:
                if stage.write:
                    stage.write()
            except ClaimLost:
                raise
            except Exception as error:
                raise WriteFailed(stage, error) from error
            self._unmoved.append((stage, time.monotonic() - began))

    def save_moves(self, *, durable: bool = True) -> None:
        """Move the job's row over the stages whose writes have been made, for a write that reads the row."""
        if self._unmoved:
            params = {"job_id": self.job.pk, "held": self.token, **unsaved_stages.move_params(self._unmoved)}
            self._unmoved = []
            rows = lifecycle.advance_stages(LOCK_CLAIM_AT_STAGE, durable=durable, **params)
            self._saved_job = self._load(rows)

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
        if self._unmoved:  # with those before it, in one statement
            stage = UnsavedStage(self.job, step, code, event or {}, fields, at=time.monotonic())
            self._unmoved.append((stage, 0.0))
            self.save_moves()
            self.job = self._saved_job
            return Moved()
        columns = {"stage": step.stage.value, "total_pct": step.total_pct}
        self.move("advance", code=code, event=event, fields=fields, durable=durable, **columns)
        return Moved()

    def save_progress(self, *, total_pct: float, **fields: Any) -> None:
        """Set ``fields`` without a move. Call inside ``transaction()``."""
        self.save_moves()
        high_water = "total_pct = greatest(u.total_pct, %(total_pct)s)"
        sets = ", ".join([*lifecycle.set_clauses(list(fields)), high_water, "updated_at = clock_timestamp()"])
        sql = f"UPDATE upload_jobs u SET {sets} WHERE job_id = %(job_id)s RETURNING job_id"
        lifecycle.execute(sql, {**fields, "total_pct": total_pct, "job_id": self.job.pk})

    def log_event(self, code: str, **payload: Any) -> None:
        """Write an event of this job; inside ``transaction()`` it is part of the same write."""
        lifecycle.log_event(self.job, code, Event.Type.STAGE_DONE, payload={"stage": self.job.stage, **payload})

    def move(self, name: str, *, event: Mapping[str, Any] | None = None, **params: Any) -> None:
        """Make one of ``lifecycle.MOVES``, with the options of ``make_move``, or raise ``ClaimLost``."""
        self.save_moves()
        event = {"from": self.job.stage, **(event or {})}
        rows = lifecycle.make_move(name, LOCK_CLAIM, event=event, job_id=self.job.pk, held=self.token, **params)
        self.job = self._load(rows)

    def _load(self, rows: list[dict[str, Any]]) -> UploadJob:
        if not rows:
            raise ClaimLost(str(self.job.pk))
        return lifecycle.load_job(rows[0])

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

    def should_yield(self) -> bool:
        """Tell whether a job of normal priority would run if this one released its worker.

        A job of low priority yields to any of them, a job in a slot that not every user has to another user's job.
        """
        job = self.job
        if not job.low_priority and (job.slot or 0) < settings.JOBS_ACTIVE_PER_USER:
            return False
        but = NIL_UUID if job.low_priority else job.user_id
        params = {"job_id": job.pk, "last": NIL_UUID, "but": but, **claim_queries.concurrency_params()}
        return bool(lifecycle.execute(claim_queries.SHOULD_YIELD, params)[0]["wanted"])


def claim_next(worker: str, last: UUID = NIL_UUID) -> Claim | None:
    """Claim the next due job (queued -> working), the users after ``last`` first, or None."""
    rows = claim_queries.claim_next(worker, last)
    return Claim(lifecycle.load_job(rows[0])) if rows else None
