"""Choice of the next job: user after user in turn, concurrency limits per user, jobs of low priority last."""

import json
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.utils import IntegrityError

from accounts.prepared_statements import Row
from jobs import lifecycle
from jobs.lifecycle import LOCK_CLAIM

MAX_SLOT_COLLISIONS = 8
NIL_UUID = UUID(int=0)


# Due jobs, as the two partial indexes spell it. A job of low priority is claimed when no other can be, and never in a
# user's first slot where there are more: the user's own upload always finds one.
_NORMAL = "state = 'queued' AND run_after IS NULL AND NOT low_priority"
_LOW_PRIORITY = "state = 'queued' AND run_after IS NULL AND low_priority"
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


CLAIM = _claim(_NORMAL, _ANY_SLOT)


CLAIM_LOW_PRIORITY = _claim(_LOW_PRIORITY, _NOT_THE_FIRST)


# Finishing a job and claiming the next share one commit. The statement's snapshot still shows the finished job as
# working, so its slot is excluded. A worker that had lost the finished job claims nothing: it would not run the job.
_FREED = "AND w.job_id NOT IN (SELECT job_id FROM finish_moved)"
_FINISHED = "AND EXISTS (SELECT 1 FROM finish_moved)"
FINISH_AND_CLAIM = f"""
    WITH RECURSIVE {lifecycle.move_ctes("finish", LOCK_CLAIM)}, {_turns(_NORMAL)}
    {lifecycle.move_ctes("claim", _next(_NORMAL, freed=_FREED, provided=_FINISHED, lock=_LOCK))}
    SELECT f.finished, c.* FROM (SELECT count(*) AS finished FROM finish_moved) f LEFT JOIN claim_moved c ON true"""


# Users who have a job that may run now, counted up to %(most)s; a user with jobs of both priorities counts twice.
# UNION, because both scans may meet a user.
COUNT_CLAIMABLE = f"""
    WITH RECURSIVE {_turns(_NORMAL)} {_turns(_LOW_PRIORITY, low="low_")}
    due AS ({_next(_NORMAL, lock="", most="%(most)s")}),
    low_due AS ({_next(_LOW_PRIORITY, low="low_", first=_NOT_THE_FIRST, lock="", most="%(most)s")})
    SELECT least(count(*), %(most)s) FROM (SELECT job_id FROM due UNION SELECT job_id FROM low_due) claimable"""


# Whether a job of normal priority, but not one of %(but)s, could be claimed if the worker released %(job_id)s.
_FREED_BY_US, _NOT_THEIRS = "AND w.job_id <> %(job_id)s", "AND t.user_id <> %(but)s"


SHOULD_YIELD = f"""
    WITH RECURSIVE {_turns(_NORMAL)}
    due AS ({_next(_NORMAL, freed=_FREED_BY_US, provided=_NOT_THEIRS, lock="")})
    SELECT EXISTS (SELECT FROM due) AS wanted"""


def execute_claim(sql: str, worker: str, last: UUID, params: Mapping[str, Any] | None = None) -> list[Row]:
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


def claim_next(worker: str, last: UUID) -> list[Row]:
    """Claim the next due job (queued -> working), the users after ``last`` first; return its row."""
    return execute_claim(CLAIM, worker, last) or execute_claim(CLAIM_LOW_PRIORITY, worker, last)


def count_claimable(cursor: Any, *, most: int) -> int:
    """Count the users who have a job that a worker could claim now, up to ``most``. ``cursor`` may be psycopg's."""
    cursor.execute(COUNT_CLAIMABLE, count_params(most))
    return int(cursor.fetchone()[0])


def count_params(most: int) -> dict[str, Any]:
    """Return the parameters of ``COUNT_CLAIMABLE``."""
    return {"last": NIL_UUID, "most": most, **concurrency_params()}
