"""Claims on jobs: the token that fences a worker's writes, the moves made under it, and the claim of the next job."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.utils import IntegrityError

from jobs import failpoints, lifecycle
from jobs.error_codes import BUG
from jobs.models import Event, UploadJob
from jobs.outcomes import Advance, Moved, Permanent, Retryable, RunOutcome, Wait
from jobs.pipeline import Step, get_pipeline
from jobs.retry_policy import retry_delay
from jobs.safe_errors import safe_traceback

MAX_SLOT_COLLISIONS = 8
NIL_UUID = UUID(int=0)

# The fence: locks the row if the claim still has it.
_OURS = "FROM upload_jobs WHERE job_id = %(job_id)s AND claim_token = %(held)s"
LOCK_CLAIM = f"SELECT job_id {_OURS} FOR UPDATE"
# The same for a transaction that commits asynchronously.
LOCK_CLAIM_NO_FSYNC = f"SELECT job_id, set_config('synchronous_commit', 'off', true) {_OURS} FOR UPDATE"
# The same without the lock.
CHECK_CLAIM = f"SELECT job_id {_OURS}"


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
        rows = _execute_claim(FINISH_AND_CLAIM, worker, self.job.user_id, params)
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
        but = NIL_UUID if is_campaign else job.user_id
        params = {"job_id": job.pk, "last": NIL_UUID, "but": but, **concurrency_params()}
        return bool(lifecycle.execute(SHOULD_YIELD, params)[0]["wanted"])


# Due jobs, as the two partial indexes spell it. A campaign's job is claimed when no other can be, and never in a
# user's first slot where there are more: the user's own upload always finds one.
_TENANT = "state = 'queued' AND run_after IS NULL AND campaign_id IS NULL"
_CAMPAIGN = "state = 'queued' AND run_after IS NULL AND campaign_id IS NOT NULL"
_ANY_SLOT = "0"


def concurrency_limit_sql(user: str) -> str:
    """Return the SQL of how many jobs of a user run at once; its parameters are those of ``caps``."""
    return f"coalesce((%(caps)s::jsonb ->> {user}::text)::int, %(cap)s)"


def concurrency_params() -> dict[str, Any]:
    """Return ``cap``, the default limit, and ``caps``, the limits of users who have another."""
    limits = {str(user_id): limit for user_id, limit in settings.JOBS_ACTIVE_OF.items()}
    return {"cap": settings.JOBS_ACTIVE_PER_USER, "caps": json.dumps(limits)}


_CAP = concurrency_limit_sql("t.user_id")
_NOT_THE_FIRST = f"least(1, {_CAP} - 1)"


# The skip scan: step from user to user through ix_jobs_due, beginning after the user served last, and take the oldest
# due row of the first user who has a free slot. It stops at the first row. First-in-first-out would read past every
# row of a user who is at the limit (750 ms a claim at a million rows, where this takes 1 to 3).
def _hops(name: str, due: str, after: str) -> str:
    return f"""
    {name} AS (
        (SELECT user_id FROM upload_jobs WHERE {due} {after}
         ORDER BY user_id, created_at, job_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.user_id FROM upload_jobs j WHERE {due} AND j.user_id > h.user_id
                ORDER BY j.user_id, j.created_at, j.job_id LIMIT 1)
        FROM {name} h WHERE h.user_id IS NOT NULL
    ),"""


def _turns(due: str, *, low: str = "") -> str:
    return _hops(f"{low}ahead", due, "AND user_id > %(last)s") + _hops(f"{low}around", due, "")


def _next(
    due: str, *, low: str = "", first: str = _ANY_SLOT, freed: str = "", provided: str = "", lock: str, most: str = "1"
) -> str:
    return f"""
    SELECT q.job_id, s.slot
    FROM (SELECT user_id FROM {low}ahead UNION ALL SELECT user_id FROM {low}around) t
    CROSS JOIN LATERAL (
        SELECT n::smallint AS slot FROM generate_series({first}, {_CAP} - 1) n
        WHERE NOT EXISTS (SELECT 1 FROM upload_jobs w
                          WHERE w.user_id = t.user_id AND w.state = 'working' AND w.slot = n {freed})
        ORDER BY n LIMIT 1) s
    CROSS JOIN LATERAL (
        SELECT d.job_id FROM upload_jobs d WHERE d.user_id = t.user_id AND {due}
        ORDER BY d.created_at, d.job_id LIMIT 1 {lock}) q
    WHERE t.user_id IS NOT NULL {provided}
    LIMIT {most}"""


_LOCK = "FOR UPDATE SKIP LOCKED"


# A claim commits asynchronously: if a crash of the server loses it, the row is still due, and the fence rejects the
# worker that made it. Set in the statement, so that the setting ends with the statement's commit.
def _claim(due: str, first: str) -> str:
    return f"""
    WITH RECURSIVE {_turns(due)}
    {lifecycle.move_ctes("claim", _next(due, first=first, lock=_LOCK))}
    SELECT *, set_config('synchronous_commit', 'off', true) FROM claim_moved"""


CLAIM = _claim(_TENANT, _ANY_SLOT)
CLAIM_CAMPAIGN_JOB = _claim(_CAMPAIGN, _NOT_THE_FIRST)

# Finishing a job and claiming the next share one commit. The statement's snapshot still shows the finished job as
# working, so its slot is excluded. A worker that had lost the finished job claims nothing: it would not run the job.
_FREED = "AND w.job_id NOT IN (SELECT job_id FROM finish_moved)"
_FINISHED = "AND EXISTS (SELECT 1 FROM finish_moved)"
FINISH_AND_CLAIM = f"""
    WITH RECURSIVE {lifecycle.move_ctes("finish", LOCK_CLAIM)}, {_turns(_TENANT)}
    {lifecycle.move_ctes("claim", _next(_TENANT, freed=_FREED, provided=_FINISHED, lock=_LOCK))}
    SELECT f.finished, c.* FROM (SELECT count(*) AS finished FROM finish_moved) f LEFT JOIN claim_moved c ON true"""

# Users who have a job that may run now, counted up to %(most)s; a user with a campaign's job too counts twice. UNION,
# because both scans may meet a user.
COUNT_CLAIMABLE = f"""
    WITH RECURSIVE {_turns(_TENANT)} {_turns(_CAMPAIGN, low="low_")}
    due AS ({_next(_TENANT, lock="", most="%(most)s")}),
    low_due AS ({_next(_CAMPAIGN, low="low_", first=_NOT_THE_FIRST, lock="", most="%(most)s")})
    SELECT least(count(*), %(most)s) FROM (SELECT job_id FROM due UNION SELECT job_id FROM low_due) claimable"""

# Whether a tenant's job, but not one of %(but)s, could be claimed if the worker released %(job_id)s.
_FREED_BY_US, _NOT_THEIRS = "AND w.job_id <> %(job_id)s", "AND t.user_id <> %(but)s"
SHOULD_YIELD = f"""
    WITH RECURSIVE {_turns(_TENANT)}
    due AS ({_next(_TENANT, freed=_FREED_BY_US, provided=_NOT_THEIRS, lock="")})
    SELECT EXISTS (SELECT FROM due) AS wanted"""


def claim_next(worker: str, last: UUID = NIL_UUID) -> Claim | None:
    """Claim the next due job (queued -> working), the users after ``last`` first, or a campaign's, or None."""
    rows = _execute_claim(CLAIM, worker, last) or _execute_claim(CLAIM_CAMPAIGN_JOB, worker, last)
    return Claim(lifecycle.load_job(rows[0])) if rows else None


def _execute_claim(sql: str, worker: str, last: UUID, params: Mapping[str, Any] | None = None) -> list[lifecycle.Row]:
    """Run a claiming statement; repeat it when another worker takes the same slot of the user first."""
    lease = timedelta(seconds=settings.JOBS_LEASE_SECONDS)
    claim = {"worker": worker, "last": last, "lease": lease, "claim_code": None, "claim_event": {"worker": worker}}
    params = {**(params or {}), **claim, **concurrency_params()}
    for _ in range(MAX_SLOT_COLLISIONS):
        try:
            return lifecycle.execute(sql, {**params, "token": uuid.uuid4()})
        except IntegrityError as error:
            if "uq_job_user_slot" not in str(error):
                raise
    return []


def count_claimable(cursor: Any, *, most: int) -> int:
    """Count the users who have a job that a worker could claim now, up to ``most``. ``cursor`` may be psycopg's."""
    cursor.execute(COUNT_CLAIMABLE, {"last": NIL_UUID, "most": most, **concurrency_params()})
    return int(cursor.fetchone()[0])
