"""What is due, and whose turn it is: the selections that moves lean on. The row is the queue."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings

from jobs import lifecycle

NOBODY = UUID(int=0)

# The fence: the row, locked, if the token is still the one that holds it.
HELD = "SELECT job_id FROM upload_jobs WHERE job_id = %(job_id)s AND claim_token = %(held)s FOR UPDATE"

# The skip scan: hop from user to user through ix_jobs_due, those after the user served last first, and take the oldest
# due row of the first who has a free slot. Lazy: it stops at the first row found. First-in-first-out would read past
# every row of a user who is at the cap (750 ms a claim at a million rows, where this takes 1 to 3).
_HOPS = """
    {name} AS (
        (SELECT user_id FROM upload_jobs WHERE state = 'queued' AND run_after IS NULL {after}
         ORDER BY user_id, created_at, job_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.user_id FROM upload_jobs j
                WHERE j.state = 'queued' AND j.run_after IS NULL AND j.user_id > h.user_id
                ORDER BY j.user_id, j.created_at, j.job_id LIMIT 1)
        FROM {name} h WHERE h.user_id IS NOT NULL
    ),"""
_TURNS = _HOPS.format(name="ahead", after="AND user_id > %(last)s") + _HOPS.format(name="around", after="")
_DUE = """
    SELECT q.job_id, s.slot
    FROM (SELECT user_id FROM ahead UNION ALL SELECT user_id FROM around) t
    CROSS JOIN LATERAL (
        SELECT n::smallint AS slot FROM generate_series(0, %(cap)s - 1) n
        WHERE NOT EXISTS (SELECT 1 FROM upload_jobs w
                          WHERE w.user_id = t.user_id AND w.state = 'working' AND w.slot = n {freed})
        ORDER BY n LIMIT 1) s
    CROSS JOIN LATERAL (
        SELECT d.job_id FROM upload_jobs d
        WHERE d.user_id = t.user_id AND d.state = 'queued' AND d.run_after IS NULL
        ORDER BY d.created_at, d.job_id LIMIT 1 {lock}) q
    WHERE t.user_id IS NOT NULL {provided}
    LIMIT {most}"""
_LOCK = "FOR UPDATE SKIP LOCKED"

# A claim by itself need not wait for the disk: lost with the server, it leaves the row as due as it was, and the fence
# refuses whoever believes to hold it. Set in the statement, so that the setting ends with its own commit.
CLAIM = f"""
    WITH RECURSIVE {_TURNS}
    {lifecycle.ctes("claim", _DUE.format(freed="", provided="", lock=_LOCK, most="1"))}
    SELECT *, set_config('synchronous_commit', 'off', true) FROM claim_moved"""

# Ending a job and claiming the next share one commit. The statement's snapshot still shows the ended job as working,
# so the slot that it frees is named. Whoever had lost the ended job claims nothing: nobody would run what it claims.
_FREED = "AND w.job_id NOT IN (SELECT job_id FROM finish_moved)"
_FINISHED = "AND EXISTS (SELECT 1 FROM finish_moved)"
FINISH_AND_CLAIM = f"""
    WITH RECURSIVE {lifecycle.ctes("finish", HELD)}, {_TURNS}
    {lifecycle.ctes("claim", _DUE.format(freed=_FREED, provided=_FINISHED, lock=_LOCK, most="1"))}
    SELECT f.finished, c.* FROM (SELECT count(*) AS finished FROM finish_moved) f LEFT JOIN claim_moved c ON true"""

# How many users have something that may run now, counted up to %(most)s. Distinct: a user is met ahead and around.
CLAIMABLE = f"""
    WITH RECURSIVE {_TURNS} due AS ({_DUE.format(freed="", provided="", lock="", most="%(most)s")})
    SELECT count(DISTINCT job_id) FROM due"""

# The document's job, while it waits for something.
WAITING = """
    SELECT job_id FROM upload_jobs
    WHERE document_id = %(document_id)s AND state = 'queued' AND run_after IS NOT NULL FOR UPDATE"""
WAKE_WORKING = f"""
    UPDATE upload_jobs SET wait_reason = '{lifecycle.WOKEN}'
    WHERE document_id = %(document_id)s AND state = 'working' RETURNING job_id"""

# At most so many rows a statement: a sweep after a long outage must not hold thousands of row locks at once.
PARKED = """
    SELECT job_id FROM upload_jobs WHERE run_after <= clock_timestamp()
    ORDER BY run_after LIMIT 500 FOR UPDATE SKIP LOCKED"""
EXPIRED = """
    SELECT job_id FROM upload_jobs
    WHERE state = 'working' AND lease_until < clock_timestamp() AND {tries}
    ORDER BY lease_until LIMIT 100 FOR UPDATE SKIP LOCKED"""
EXPIRED_AGAIN = EXPIRED.format(tries="attempts <= %(retries)s")
EXPIRED_ONCE_TOO_OFTEN = EXPIRED.format(tries="attempts > %(retries)s")


def claimable(cursor: Any, *, most: int) -> int:
    """Return how many users have a job that a worker could claim now, counted up to ``most``: for whoever rings."""
    cursor.execute(CLAIMABLE, {"last": NOBODY, "cap": settings.JOBS_ACTIVE_PER_USER, "most": most})
    row = cursor.fetchone()
    return int(row[0])
