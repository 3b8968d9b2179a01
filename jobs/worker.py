"""The worker: claims due jobs, runs their stages, and turns exceptions into outcomes."""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError, OperationalError

from jobs import claim_queries, failpoints, infrastructure_errors, pauses, safe_errors, services, side_queues, telemetry
from jobs.claim_batches import LOST_CLAIM, ClaimBatch
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_state
from jobs.cluster.heartbeat import HEARTBEAT, Lease
from jobs.error_codes import BUG
from jobs.outcomes import Advance, Moved, Outcome, Permanent, Retryable, RunOutcome, Wait
from jobs.pipeline import get_pipeline, joins_batch
from jobs.unsaved_stages import WriteFailed

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")

RECONNECT_SECONDS = 0.2


def drain() -> int:
    """Claim and run jobs until nothing is due or a few seconds have passed; return how many were released or ended.

    A notification carries nothing: the next one makes up for a lost one, a repeated one finds nothing due. The side
    queues have their time slice first, then the jobs: neither waits for the other to be empty.
    """
    time_slice = DrainSlice()
    claim: Claim | None = None
    try:
        with HEARTBEAT.draining():
            configure_connection()
            time_slice.paused = pauses.read_pauses()
            has_side_work_left = side_queues.drain_side_queues()
            time_slice.until = time.monotonic() + settings.JOBS_DRAIN_SECONDS
            claim = time_slice.claim_next()
            while claim is not None:
                claim = run_job(claim, time_slice)
            if (has_side_work_left or time_slice.is_over) and not shared_state.is_stopping():
                services.notify_workers()  # work is left: brokers that do not poll must be told
    except (OperationalError, InterfaceError) as error:
        log.warning("The database is unavailable.", error=safe_errors.safe_error_name(error))
        _release_after_outage(time_slice.batch, claim)
    except Exception as error:
        # django-q2 would log the message and keep it in its table of failures.
        telemetry.report_error(error)
        _end_batch(time_slice.batch)
        raise DrainFailed(safe_errors.safe_error_name(error)) from None
    return time_slice.ended


def _release_after_outage(batch: ClaimBatch, claim: Claim | None) -> None:
    """Release what this worker holds as soon as the database answers again, rather than let the leases expire.

    Like an overload it costs the job that ran no attempt: jobs in hand would else be dead letters of a database that
    restarts four times. What cannot be released within a lease has expired.
    """
    until = time.monotonic() + settings.JOBS_LEASE_SECONDS
    while time.monotonic() < until and not shared_state.is_stopping():
        connection.close()
        try:
            batch.end()
            if claim is not None and claim.job.overloads < services.MAX_OVERLOADS:
                claim.move("overload", code="DATABASE_LOST")
            services.notify_workers()
            return
        except ClaimLost:
            return
        except (DatabaseError, InterfaceError):  # a standby that is not promoted yet only reads
            time.sleep(RECONNECT_SECONDS)


def _end_batch(batch: ClaimBatch) -> None:
    """Finish and release what a failed drain holds besides the job that failed, rather than let the leases expire."""
    with suppress(DatabaseError, InterfaceError):
        if batch.end():
            services.notify_workers()


class DrainFailed(Exception):
    """A bug outside of any stage: the next notification drains again. The message has no values."""


@dataclass
class DrainSlice:
    """Time slice of one drain, its claims, and the count of the jobs that it has released or ended."""

    until: float = 0.0
    ended: int = 0
    batch: ClaimBatch = field(default_factory=ClaimBatch)
    paused: pauses.Pauses = field(default_factory=pauses.Pauses)

    # The user whose job this process ran last: the rotation continues from there, in the next drain too.
    last_user: ClassVar[UUID] = claim_queries.NIL_UUID

    @property
    def is_over(self) -> bool:
        return shared_state.is_stopping() or time.monotonic() > self.until

    def claim_next(self) -> Claim | None:
        """Return the next claim, or finish and release what is left of the batch when the slice is over."""
        shared_state.record_claim_attempt()
        if self.is_over:
            self.batch.end()
            return None
        return self.batch.next_claim() or self.batch.claim_next(worker_name(), DrainSlice.last_user)


def run_job(claim: Claim, time_slice: DrainSlice) -> Claim | None:
    """Run a job until it ends or waits; return the next claim, or None when the slice is over or nothing is due."""
    DrainSlice.last_user = claim.job.user_id
    claim.shares_commits = claim.job.attempts == 1
    claimed, began = claim.job, time.monotonic()
    try:
        with telemetry.job_log_context(claimed, worker=worker_name()):
            try:
                _run_stages(claim, time_slice)
            except ClaimLost:
                log.info(LOST_CLAIM, **telemetry.job_fields(claim.job))
        time_slice.batch.record_run(claimed, time.monotonic() - began)
        time_slice.ended += 1
        return time_slice.claim_next()
    finally:
        HEARTBEAT.clear()


def _run_stages(claim: Claim, time_slice: DrainSlice) -> None:
    while True:
        if shared_state.is_stopping() and not claim.has_unsaved:
            claim.move("release")
            return
        wait = None if claim.has_unsaved else time_slice.paused.find_wait(claim.job)
        if wait is not None:
            claim.settle(wait)
            return
        HEARTBEAT.watch(Lease(claim, time_slice.batch))
        stage = claim.job.stage
        failpoints.failpoint(f"{stage}:begin")
        outcome = _run_logged(claim)
        failpoints.failpoint(f"{stage}:end")
        # The last stage had nothing to write: finishing shares a commit with others, and with the next claim.
        if isinstance(outcome, Advance) and not outcome.fields and claim.next_step is None:
            time_slice.batch.finish_later(claim, outcome.payload)
            return
        if claim.has_unsaved:
            failpoints.failpoint("chain:middle")
        elif not claim.settle(outcome):
            return
        elif claim.should_yield():
            claim.move("release", code="GAVE_WAY")
            return
        if not joins_batch(claim.job.pipeline, claim.job.stage):
            time_slice.batch.end()  # no other job waits for it


def _run_logged(claim: Claim) -> RunOutcome:
    job, began = claim.job, time.monotonic()
    structlog.contextvars.bind_contextvars(stage=str(job.stage), attempt=job.attempts)
    fields = telemetry.job_fields(job)
    with telemetry.span("stage", stage=str(job.stage), attempt=job.attempts, **fields) as set_attributes:
        outcome = run_stage(claim)
        level = logging.INFO
        match outcome:
            case Wait():
                code = str(outcome.reason)
            case Retryable() | Permanent():
                level, code = logging.WARNING, str(outcome.code)
            case _:
                ended = outcome.ended if isinstance(outcome, Moved) else claim.next_step is None
                code = "FINALIZED" if ended else "ADVANCED"
        set_attributes(outcome=code)
    log.log(level, "Stage ended.", outcome=code, duration_ms=round((time.monotonic() - began) * 1000, 1))
    return outcome


def run_stage(claim: Claim) -> RunOutcome:
    """Run one attempt of the job's stage, and save it unless the next one joins its commit; return its outcome.

    When it fails, the stages before it that are not saved yet are saved. When one of those cannot be, the outcome is
    its failure.
    """
    outcome = _attempt(claim, partial(_run_handler, claim))
    while claim.has_unsaved and not (isinstance(outcome, Moved) and _may_continue_unsaved(claim)):
        saved = _attempt(claim, partial(_save, claim))
        outcome = outcome if isinstance(saved, Moved) else saved
    return outcome


def _may_continue_unsaved(claim: Claim) -> bool:
    return not shared_state.is_stopping() and claim.may_continue_unsaved()


def _save(claim: Claim) -> Outcome:
    claim.save()
    return Moved()


def _run_handler(claim: Claim) -> Outcome:
    step, next_step = get_pipeline(claim.job.pipeline).step(claim.job.stage), claim.next_step
    claim.stage_began = time.monotonic()
    # Only a job that was past this stage before can have its work done already.
    may_be_done = step.skippable and claim.job.total_pct > step.total_pct
    if may_be_done and next_step is not None and not next_step.invariant([claim.job.pk]):
        return claim.end_stage(code="ALREADY_DONE")
    outcome = step.handler(claim)
    if isinstance(outcome, Advance) and next_step is not None:
        return claim.end_stage(code=outcome.code, event=outcome.payload, **outcome.fields)
    return outcome


def _attempt(claim: Claim, work: Callable[[], Outcome]) -> RunOutcome:
    """Return the outcome of ``work``, also when it fails; the job is at the stage that failed."""
    try:
        return work()
    except ClaimLost:
        raise
    except WriteFailed as failed:
        claim.return_to(failed.stage)
        return _failure(claim, failed.reason)
    except Exception as error:
        return _failure(claim, error)


def _failure(claim: Claim, error: Exception) -> Wait | Permanent | Retryable:
    if isinstance(error, (Permanent, Retryable, Wait)):
        return error
    # A bug: kept for staff, retried, and never shown with its values.
    if infrastructure_errors.is_database_unavailable(error):
        raise error
    if wait := infrastructure_errors.infrastructure_wait(error):
        log.error("Stage %s waits: %s", claim.job.stage, wait.reason)
        return wait
    log.error("Stage %s failed.", claim.job.stage, exception=safe_errors.safe_traceback(error), reported=True)
    telemetry.report_error(error)
    bug = Retryable(BUG)
    bug.__cause__ = error
    return bug


def worker_name() -> str:
    """Return ``host:cluster:worker``: the watchdog recognizes the claims of its own cluster by the first two."""
    return f"{shared_state.cluster_name()}:{os.getpid()}"


def configure_connection() -> None:
    """Disable sequential scans, because statistics lag behind a queue that fills in seconds; prepare statements."""
    connection.ensure_connection()
    raw = connection.connection
    if not getattr(raw, "accessa_pinned", False):
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")
        raw.prepare_threshold = 0  # Django sets None; planning a claim costs more than running it
        raw.accessa_pinned = True
