"""SQL of the queue: the fence of a claim, the fair selection of due jobs by a skip scan, parked and expired jobs."""

import json
from typing import Any
from uuid import UUID

from django.conf import settings

from jobs import lifecycle

NIL_UUID = UUID(int=0)

# The fence: locks the row if the claim still has it.
_OURS = "FROM upload_jobs WHERE job_id = %(job_id)s AND claim_token = %(held)s"
LOCK_CLAIM = f"SELECT job_id {_OURS} FOR UPDATE"
# The same for a transaction that commits asynchronously.
LOCK_CLAIM_NO_FSYNC = f"SELECT job_id, set_config('synchronous_commit', 'off', true) {_OURS} FOR UPDATE"
# The same without the lock.
CHECK_CLAIM = f"SELECT job_id {_OURS}"

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

LOCK_JOB = "SELECT job_id FROM upload_jobs WHERE job_id = %(job_id)s FOR UPDATE"
ACTIVE_CAMPAIGN_JOB = """
    SELECT job_id FROM upload_jobs
    WHERE document_id = %(document_id)s AND campaign_id IS NOT NULL AND state IN ('queued', 'working', 'retryable')
    FOR UPDATE"""
# The document's job while it waits.
WAITING = """
    SELECT job_id FROM upload_jobs
    WHERE document_id = %(document_id)s AND state = 'queued' AND run_after IS NOT NULL FOR UPDATE"""
WAKE_WORKING = f"""
    UPDATE upload_jobs SET wait_reason = '{lifecycle.WOKEN}'
    WHERE document_id = %(document_id)s AND state = 'working' RETURNING job_id"""

# Limited, so that the first run after a long outage does not lock thousands of rows at once.
PARKED = """
    SELECT job_id FROM upload_jobs WHERE run_after <= clock_timestamp()
    ORDER BY run_after LIMIT 500 FOR UPDATE SKIP LOCKED"""
EXPIRED = """
    SELECT job_id FROM upload_jobs
    WHERE state = 'working' AND lease_until < clock_timestamp() AND {tries}
    ORDER BY lease_until LIMIT 100 FOR UPDATE SKIP LOCKED"""
EXPIRED_AGAIN = EXPIRED.format(tries="attempts <= %(retries)s")
EXPIRED_ONCE_TOO_OFTEN = EXPIRED.format(tries="attempts > %(retries)s")


def count_claimable(cursor: Any, *, most: int) -> int:
    """Count the users who have a job that a worker could claim now, up to ``most``."""
    cursor.execute(COUNT_CLAIMABLE, {"last": NIL_UUID, "most": most, **concurrency_params()})
    return int(cursor.fetchone()[0])
