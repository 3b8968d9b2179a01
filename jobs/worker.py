"""What a worker does when the doorbell rings: claim, and carry a job through its stages."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection
from django.db.utils import InterfaceError, OperationalError

from jobs import claims, errors, failpoints, log_context, queries, services, tracing
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_memory, side_queues
from jobs.cluster.heartbeat import HEARTBEAT
from jobs.error_codes import BUG
from jobs.outcomes import Advance, Moved, Permanent, Retryable, Wait
from jobs.settlement import RunOutcome, apply_outcome

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")


def drain() -> int:
    """Claim and run until nothing is due or a few seconds have passed; return how many jobs were let go of.

    Rings carry nothing: a lost one is made up by the next, a repeated one finds nothing due. The queues beside the jobs
    have their turn first, and the jobs theirs after it: neither waits for the other to be empty.
    """
    turn = DrainSlice()
    try:
        _pin_plans()
        cut_short = side_queues.drain_all()
        turn.start()
        claim = turn.claim_next()
        while claim is not None:
            claim = run_job(claim, turn)
        if (cut_short or turn.is_over) and not shared_memory.is_stopping():
            services.notify_workers()  # work is left: brokers that do not poll must be told
    except (OperationalError, InterfaceError) as error:
        # What is held expires and is picked up again, by this worker or by another.
        log.warning("The database is away.", error=errors.safe_error_name(error))
        connection.close()
    except Exception as error:
        # django-q2 would log the message and keep it in its table of failures.
        tracing.report_error(error)
        raise DrainFailed(errors.safe_error_name(error)) from None
    return turn.ended


class DrainFailed(Exception):
    """A bug outside of any stage: the next ring drains again. Says which kind, and no value."""


@dataclass
class DrainSlice:
    """One drain: until when it goes on, and how many jobs it has let go of."""

    until: float = 0.0
    ended: int = 0

    # The user whose job this process ran last: the rotation goes on from there, in the next drain too.
    last_user: ClassVar[UUID] = queries.NIL_UUID

    def start(self) -> None:
        self.until = time.monotonic() + settings.JOBS_DRAIN_SECONDS

    @property
    def is_over(self) -> bool:
        return shared_memory.is_stopping() or time.monotonic() > self.until

    def claim_next(self) -> Claim | None:
        shared_memory.record_claim_attempt()
        return None if self.is_over else claims.claim_next(worker_name(), DrainSlice.last_user)


def run_job(claim: Claim, turn: DrainSlice) -> Claim | None:
    """Carry one job as far as it goes; return the next claim, or None when the turn is over or nothing is due."""
    DrainSlice.last_user = claim.job.user_id
    following = None
    try:
        with log_context.job_log_context(claim.job, worker=worker_name()):
            following = _carry(claim, turn)
    except ClaimLost:
        log.info("Lost the claim; what it would have written was refused.", **log_context.job_fields(claim.job))
    finally:
        HEARTBEAT.clear()
    turn.ended += 1
    return following or turn.claim_next()


def _carry(claim: Claim, turn: DrainSlice) -> Claim | None:
    while True:
        if shared_memory.is_stopping():
            claim.move("release")
            return None
        HEARTBEAT.watch_claim(claim)
        stage = claim.job.stage
        failpoints.failpoint(f"{stage}:begin")
        ending = _timed(claim)
        failpoints.failpoint(f"{stage}:end")
        if isinstance(ending, Advance) and _only_finishes(claim, ending) and not turn.is_over:
            shared_memory.record_claim_attempt()
            return claim.finish_and_claim_next(worker_name(), event=ending.payload)
        going_on = not ending.ended if isinstance(ending, Moved) else apply_outcome(claim, ending)
        if not going_on:
            return None
        if claim.should_yield():
            claim.move("release", code="GAVE_WAY")
            return None


def _only_finishes(claim: Claim, ending: Advance) -> bool:
    """Tell whether the try ended the job with nothing to write: then the next claim can share its commit."""
    return not ending.fields and claim.pipeline.next_step(claim.job.stage) is None


def _timed(claim: Claim) -> RunOutcome:
    """Run one try, and say how it went in log and trace."""
    job, began = claim.job, time.monotonic()
    log_context.update_stage(job)
    about = log_context.job_fields(job) if tracing.is_enabled() else {}
    with tracing.span("stage", stage=str(job.stage), attempt=job.attempts, **about) as note:
        ending = run_stage(claim)
        level, outcome = _told(claim, ending)
        note(outcome=outcome)
    log.log(level, "Stage ended.", outcome=outcome, duration_ms=round((time.monotonic() - began) * 1000, 1))
    return ending


def _told(claim: Claim, ending: RunOutcome) -> tuple[int, str]:
    """Return how loud to be about an ending, and its code."""
    match ending:
        case Wait():
            return logging.INFO, ending.reason
        case Retryable() | Permanent():
            return logging.WARNING, ending.code
    is_last = ending.ended if isinstance(ending, Moved) else claim.pipeline.next_step(claim.job.stage) is None
    return logging.INFO, "FINALIZED" if is_last else "ADVANCED"


def run_stage(claim: Claim) -> RunOutcome:
    """Run one try of the stage at which the job stands; a failure is an answer too."""
    try:
        step, following = claim.step, claim.pipeline.next_step(claim.job.stage)
        if step.skippable and _was_further(claim) and following is not None and not following.invariant([claim.job.pk]):
            return Advance(code="ALREADY_DONE")
        return step.handler(claim)
    except ClaimLost:
        raise
    except (Permanent, Retryable, Wait) as outcome:
        return outcome
    except Exception as error:  # a bug: kept for staff, retried, and never shown with its values
        if errors.is_database_unavailable(error):
            raise
        if wait := errors.infrastructure_wait(error):
            log.error("Stage %s waits: %s", claim.job.stage, wait.reason)
            return wait
        log.error("Stage %s failed.", claim.job.stage, exception=errors.safe_traceback(error), reported=True)
        tracing.report_error(error)
        bug = Retryable(BUG)
        bug.__cause__ = error
        return bug


def _was_further(claim: Claim) -> bool:
    """Tell whether the job has been past its stage before: only then can the stage's work be done already."""
    return claim.job.total_pct > claim.step.total_pct


def worker_name() -> str:
    """Return ``host:cluster:worker``: the watchdog recognizes the claims of its own cluster by the first two."""
    return f"{shared_memory.cluster_name()}:{os.getpid()}"


def _pin_plans() -> None:
    """Keep this connection's planner from sequential scans: statistics lag behind a queue that fills in seconds."""
    connection.ensure_connection()
    raw = connection.connection
    if not getattr(raw, "accessa_pinned", False):
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")
        raw.prepare_threshold = (
            0  # Django switches prepared statements off: planning a claim costs more than running it
        )
        raw.accessa_pinned = True
