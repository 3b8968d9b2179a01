"""Claims on jobs: the token that fences a worker's writes, the moves made under it, and the claim of the next job."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.db.utils import IntegrityError
from psycopg.types.json import Jsonb

from jobs import claim_queries, failpoints, lifecycle
from jobs.error_codes import BUG
from jobs.events import log_event
from jobs.models import Event, UploadJob
from jobs.outcomes import Advance, Moved, Permanent, Retryable, RunOutcome, Wait
from jobs.pipeline import DEFAULT_TIME_LIMIT, Step, get_pipeline
from jobs.safe_errors import safe_traceback

MAX_SLOT_COLLISIONS = 8


class ClaimLost(Exception):
    """The claim is lost: its lease ran out, or the job was cancelled or deleted. Nothing was written."""


class Claim:
    """A job held by this worker until its lease ends. Only the holder of the token may write for the job."""

    def __init__(self, job: UploadJob) -> None:
        self.job = job
        self.token = cast(UUID, job.claim_token)

    @property
    def step(self) -> Step:
        return get_pipeline(self.job.pipeline).step(self.job.stage)

    @property
    def next_step(self) -> Step | None:
        return get_pipeline(self.job.pipeline).next_step(self.job.stage)

    @property
    def time_limit(self) -> float:
        """The time limit of the current stage in seconds."""
        try:
            return self.step.time_limit
        except ImproperlyConfigured:  # the pipeline is not deployed here: the attempt will say so
            return DEFAULT_TIME_LIMIT

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Open the transaction of the stage's one write; raise ``ClaimLost`` when the claim is lost.

        ``durable=False`` commits with ``synchronous_commit=off``. Use it only for writes that running the stage again
        recreates. Commit durably before any paid or external side effect: earlier commits are then on disk too. An
        object may be stored before the commit, because the next attempt stores it at the same path.
        """
        stage = self.job.stage
        with transaction.atomic():
            self._require(claim_queries.LOCK_CLAIM if durable else claim_queries.LOCK_CLAIM_NO_FSYNC)
            yield
            failpoints.failpoint(f"{stage}:before-commit")
        failpoints.failpoint(f"{stage}:after-commit")

    def ensure_held(self) -> None:
        """Raise ``ClaimLost`` when the claim is lost by now; it may be lost a moment later."""
        self._require(claim_queries.CHECK_CLAIM)

    def _require(self, sql: str) -> None:
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
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE upload_jobs u SET {sets} WHERE job_id = %(job_id)s",
                {**lifecycle.adapt_fields(fields), "total_pct": total_pct, "job_id": self.job.pk},
            )

    def log_event(self, code: str, **payload: Any) -> None:
        """Write an event of this job; inside ``transaction()`` it is part of the same write."""
        log_event(self.job, code, Event.Type.STAGE_DONE, payload={"stage": self.job.stage, **payload})

    def move(
        self,
        name: str,
        *,
        code: str | None = None,
        event: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        durable: bool = True,
        **params: Any,
    ) -> None:
        """Make one of ``lifecycle.MOVES``, or raise ``ClaimLost`` when another worker has the job."""
        fields = fields or {}
        sql = lifecycle.move_statement(name, claim_queries.LOCK_CLAIM, fields=tuple(fields), durable=durable)
        rows = lifecycle.execute(sql, self._params(name, code, event) | lifecycle.adapt_fields(fields) | params)
        if not rows:
            raise ClaimLost(str(self.job.pk))
        self.job = lifecycle.load_job(rows[0])

    def _params(self, name: str, code: str | None, event: Mapping[str, Any] | None) -> dict[str, Any]:
        event = {"from": self.job.stage, **(event or {})}
        return {"job_id": self.job.pk, "held": self.token, **lifecycle.event_params(name, event, code)}

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
            case Retryable() if self.job.attempts <= settings.JOBS_MAX_RETRIES:
                pause = retry_delay(self.job.attempts, outcome.retry_after)
                self.move("retry", event={"code": outcome.code}, pause=pause, **self._error_columns(outcome))
            case Permanent() | Retryable():
                self.move("discard", event={"code": outcome.code}, **self._error_columns(outcome))
        return False

    def _error_columns(self, failure: Permanent | Retryable) -> dict[str, Any]:
        error = {"code": failure.code, "detail": failure.detail, "stage": self.job.stage, "attempt": self.job.attempts}
        if isinstance(failure, Permanent):
            error["permanent"] = True  # distinguishes it from a failure that has used up its attempts
        traceback = safe_traceback(failure.__cause__ or failure) if failure.code == BUG else None
        return {"error": Jsonb(error), "traceback": traceback}

    def finish_and_claim_next(self, worker: str, *, event: Mapping[str, Any] | None = None) -> Claim | None:
        """Finish this job (working -> done) and claim the next due one, in one statement and one commit."""
        params = self._params("finish", None, event)
        rows = _execute_claim(claim_queries.FINISH_AND_CLAIM, worker, self.job.user_id, params)
        if not rows:  # too many collisions over the next job: end this one by itself
            self.move("finish", event=event)
            return None
        if not rows[0].pop("finished"):
            raise ClaimLost(str(self.job.pk))
        return Claim(lifecycle.load_job(rows[0])) if rows[0]["job_id"] else None

    def should_yield(self) -> bool:
        """Tell whether a tenant's job would run if this one released its worker.

        A campaign's job yields to any tenant's job, a job in a slot that not every user has to another user's job.
        """
        job = self.job
        is_campaign = job.campaign_id is not None
        if not is_campaign and (job.slot or 0) < settings.JOBS_ACTIVE_PER_USER:
            return False
        but = claim_queries.NIL_UUID if is_campaign else job.user_id
        params = {"job_id": job.pk, "last": claim_queries.NIL_UUID, "but": but, **claim_queries.concurrency_params()}
        return bool(lifecycle.execute(claim_queries.SHOULD_YIELD, params)[0]["wanted"])


def claim_next(worker: str, last: UUID = claim_queries.NIL_UUID) -> Claim | None:
    """Claim the next due job (queued -> working), the users after ``last`` first. None when nothing may run.

    A campaign's job is claimed when no tenant's may run.
    """
    rows = _execute_claim(claim_queries.CLAIM, worker, last) or _execute_claim(
        claim_queries.CLAIM_CAMPAIGN_JOB, worker, last
    )
    return Claim(lifecycle.load_job(rows[0])) if rows else None


def _execute_claim(sql: str, worker: str, last: UUID, params: Mapping[str, Any] | None = None) -> list[lifecycle.Row]:
    """Run a claiming statement; repeat it when another worker takes the same slot of the user first."""
    params = {
        **(params or {}),
        "worker": worker,
        "last": last,
        **claim_queries.concurrency_params(),
        "lease": timedelta(seconds=settings.JOBS_LEASE_SECONDS),
        **lifecycle.event_params("claim", {"worker": worker}),
    }
    for _ in range(MAX_SLOT_COLLISIONS):
        try:
            return lifecycle.execute(sql, {**params, "token": uuid.uuid4()})
        except IntegrityError as error:
            if "uq_job_user_slot" not in str(error):
                raise
    return []


def retry_delay(attempts: int, floor: float = 0.0) -> timedelta:
    """Return the pause after the given number of attempts: 3, 6 and 12 s (RFC001, 002 §14), or ``floor`` if longer."""
    return timedelta(seconds=max(settings.JOBS_RETRY_BASE_SECONDS * 2 ** (attempts - 1), floor))
