"""SQL of claims: the next job of each user in turn, concurrency limits per user, jobs of low priority last."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.utils import IntegrityError, OperationalError
from psycopg.errors import DeadlockDetected

from accounts.prepared_statements import Row
from jobs import lifecycle
from jobs.lifecycle import EVENTS_OF_JOBS, LOCK_CLAIMS

MAX_SLOT_COLLISIONS = 8
NIL_UUID = UUID(int=0)


# Due jobs, as the conditions of ix_jobs_due and ix_jobs_due_low. A job of low priority is claimed when no other can be,
# and never in a user's first slot where there are more: the user's own upload always finds one.
_DUE = "claim_token IS NULL AND finished_at IS NULL AND run_after IS NULL"
NORMAL, LOW_PRIORITY = f"{_DUE} AND NOT low_priority", f"{_DUE} AND low_priority"
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
def _hops(name: str, due: str, among: str) -> str:
    return f"""
    {name} AS (
        (SELECT user_id FROM upload_jobs j WHERE {due} AND {among}
         ORDER BY user_id, created_at, job_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.user_id FROM upload_jobs j WHERE {due} AND {among} AND j.user_id > h.user_id
                ORDER BY j.user_id, j.created_at, j.job_id LIMIT 1)
        FROM {name} h WHERE h.user_id IS NOT NULL
    ),"""


def _turns(due: str, *, low: str = "") -> str:
    return _hops(f"{low}ahead", due, "j.user_id > %(last)s") + _hops(f"{low}around", due, "j.user_id <= %(last)s")


def _next(
    due: str,
    *,
    low: str = "",
    first: str = _ANY_SLOT,
    freed: str = "",
    provided: str = "",
    columns: str = "d.job_id",
    lock: str,
    most: str = "1",
) -> str:
    return f"""
    SELECT q.*, s.slot
    FROM (SELECT user_id FROM {low}ahead UNION ALL SELECT user_id FROM {low}around) t
    CROSS JOIN LATERAL (
        SELECT n::smallint AS slot FROM generate_series({first}, {_CAP} - 1) n
        WHERE n <> ALL (ARRAY(SELECT w.slot FROM upload_jobs w
                              WHERE w.user_id = t.user_id AND w.slot IS NOT NULL {freed} ORDER BY w.slot))
        ORDER BY n LIMIT 1) s
    CROSS JOIN LATERAL (
        SELECT {columns} FROM upload_jobs d WHERE d.user_id = t.user_id AND {due}
        ORDER BY d.created_at, d.job_id LIMIT 1 {lock}) q
    WHERE t.user_id IS NOT NULL {provided}
    LIMIT {most}"""


_LOCK = "FOR UPDATE SKIP LOCKED"
# A batch is the next claims in their order, one of each user, up to the first job that may not join it. A job that was
# lost before is claimed alone: if it kills its worker again, its attempt is counted.
_JOINS = "(d.pipeline, d.stage, d.attempts, d.overloads) = (%(pipeline)s, %(stage)s, 0, 0) AS joins"
# A batch passes over the users for whom another one is being claimed: waiting for their slots, in orders that differ,
# the two would deadlock.
_NOT_BEING_CLAIMED = "AND (%(most)s = 1 OR pg_try_advisory_xact_lock(hashtextextended('claim:' || t.user_id::text, 0)))"


def _batch(due: str, **options: str) -> str:
    options |= {"columns": f"d.job_id, {_JOINS}", "provided": _NOT_BEING_CLAIMED, "lock": _LOCK, "most": "%(most)s"}
    return f"""
    SELECT job_id, slot, count(*) OVER () > 1 AS in_batch FROM (
        SELECT job_id, slot, turn, bool_and(joins) OVER (ORDER BY turn) AS all_join FROM (
            SELECT n.*, row_number() OVER () AS turn FROM ({_next(due, **options)}) n) numbered) joined
    WHERE turn = 1 OR all_join"""


# A claim commits asynchronously: if a crash of the server loses it, the row is still due, and the fence rejects the
# worker that made it. Set in the statement, so that the setting ends with the statement's commit.
def _claim(due: str, first: str) -> str:
    return f"""
    WITH RECURSIVE {_turns(due)}
    {lifecycle.move_ctes("claim", _batch(due, first=first))}
    SELECT *, set_config('synchronous_commit', 'off', true) FROM claim_moved"""


CLAIM = _claim(NORMAL, _ANY_SLOT)


CLAIM_LOW_PRIORITY = _claim(LOW_PRIORITY, _NOT_THE_FIRST)


# Finishing jobs and claiming the next ones share one commit. The statement's snapshot still shows the finished jobs as
# working, so their slots are excluded.
_FREED = "AND w.job_id NOT IN (SELECT job_id FROM finish_moved)"
FINISH_AND_CLAIM = f"""
    WITH RECURSIVE {lifecycle.move_ctes("finish", LOCK_CLAIMS, events=EVENTS_OF_JOBS)}, {_turns(NORMAL)}
    {lifecycle.move_ctes("claim", _batch(NORMAL, freed=_FREED))}
    SELECT f.finished, c.* FROM (SELECT array_agg(job_id) AS finished FROM finish_moved) f
    LEFT JOIN claim_moved c ON true"""


# Users who have a job that may run now, counted up to %(most)s; a user with jobs of both priorities counts twice.
COUNT_CLAIMABLE = f"""
    WITH RECURSIVE {_turns(NORMAL)} {_turns(LOW_PRIORITY, low="low_")}
    due AS ({_next(NORMAL, lock="", most="%(most)s")}),
    low_due AS ({_next(LOW_PRIORITY, low="low_", first=_NOT_THE_FIRST, lock="", most="%(most)s")})
    SELECT least(count(*), %(most)s) FROM (SELECT job_id FROM due UNION ALL SELECT job_id FROM low_due) claimable"""


# Whether a job of normal priority, but not one of %(but)s, could be claimed if the worker released %(job_id)s.
_FREED_BY_US, _NOT_THEIRS = "AND w.job_id <> %(job_id)s", "AND t.user_id <> %(but)s"


SHOULD_YIELD = f"""
    WITH RECURSIVE {_turns(NORMAL)}
    due AS ({_next(NORMAL, freed=_FREED_BY_US, provided=_NOT_THEIRS, lock="")})
    SELECT EXISTS (SELECT FROM due) AS wanted"""


class BatchLimit(NamedTuple):
    """How many jobs a claim may take at once: all of them at one stage of one pipeline."""

    pipeline: str = ""
    stage: str = ""
    most: int = 1


NO_BATCH = BatchLimit()


def execute_claim(
    sql: str, worker: str, last: UUID, limit: BatchLimit, params: Mapping[str, Any] | None = None
) -> list[Row]:
    """Run a claiming statement; repeat it when another worker takes the same slot of a user first."""
    lease = timedelta(seconds=settings.JOBS_LEASE_SECONDS)
    claim = {"worker": worker, "last": last, "lease": lease, "claim_code": None, "claim_event": {"worker": worker}}
    params = {**(params or {}), **claim, **limit._asdict(), **concurrency_params()}
    for _ in range(MAX_SLOT_COLLISIONS):
        try:
            return lifecycle.execute(sql, params)
        except (IntegrityError, OperationalError) as error:
            # Two claims that end jobs too may wait for each other's slots.
            if "uq_job_user_slot" not in str(error) and not isinstance(error.__cause__, DeadlockDetected):
                raise
    return []


def claim_next(worker: str, last: UUID, limit: BatchLimit = NO_BATCH) -> list[Row]:
    """Claim the next due jobs (queued -> working), the users after ``last`` first; return their rows in this order."""
    rows = (
        execute_claim(CLAIM, worker, last, limit)
        or (limit.most > 1 and execute_claim(CLAIM, worker, last, NO_BATCH))
        or execute_claim(CLAIM_LOW_PRIORITY, worker, last, NO_BATCH)
    )
    return in_turn(rows, last)


def in_turn(rows: Iterable[Row], last: UUID) -> list[Row]:
    """Return claimed rows in the order of their users' turns, which a statement's rows need not have."""
    return sorted(rows, key=lambda row: (row["user_id"] <= last, row["user_id"]))


def count_claimable(cursor: Any, *, most: int) -> int:
    """Count the users who have a job that a worker could claim now, up to ``most``. ``cursor`` may be psycopg's."""
    cursor.execute(COUNT_CLAIMABLE, count_params(most))
    return int(cursor.fetchone()[0])


def count_params(most: int) -> dict[str, Any]:
    """Return the parameters of ``COUNT_CLAIMABLE``."""
    return {"last": NIL_UUID, "most": most, **concurrency_params()}
