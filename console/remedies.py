"""Remedies of error codes: those declared (of failed jobs, by pipeline, and of waits), and retries that staff tried."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from accounts.common_error_codes import UNDECLARED
from accounts.errors import Context, ErrorCode, find_error_code
from console.timeline import PHASES
from jobs.choices import State
from statutes.intake import PIPELINE

MAX_RETRIES = 50  # of a code, the newest: what helped a year ago may not help now

# The newest retries of each code along ix_audit_retries, and the first event of each that ended the job afterwards.
TRIED = """
    SELECT wanted.code, tried.stage, count(*) FILTER (WHERE ended.code = 'FINALIZED'),
           count(*) FILTER (WHERE ended.code <> 'FINALIZED'), count(*) FILTER (WHERE ended.code IS NULL),
           max(tried.at) FILTER (WHERE ended.code = 'FINALIZED'),
           (array_agg(tried.reason ORDER BY tried.at DESC) FILTER (WHERE ended.code = 'FINALIZED'))[1]
    FROM unnest(%(codes)s::text[]) wanted (code)
    CROSS JOIN LATERAL (
        SELECT a.at, a.object_id::uuid AS job_id, a.reason,
               CASE WHEN a.action = 'jobs.retry_from' THEN a.details ->> 'to' ELSE '' END AS stage
        FROM audit_entries a
        WHERE a.action IN ('jobs.retry', 'jobs.retry_from') AND a.details ->> 'code' = wanted.code
        ORDER BY a.at DESC LIMIT %(most)s) tried
    LEFT JOIN LATERAL (
        SELECT e.code FROM events e
        WHERE e.job_id = tried.job_id AND e.ts > tried.at AND e.code = ANY(%(ends)s)
        ORDER BY e.ts LIMIT 1) ended ON true
    GROUP BY wanted.code, tried.stage
    ORDER BY 3 DESC, 4, tried.stage"""
ENDS = [code for code, phase in PHASES.items() if phase in (State.DONE, State.DEADLETTER)]


@dataclass(frozen=True, slots=True)
class TriedRemedy:
    """Staff's newest retries of jobs with a code: from a ``stage``, or "" from the last one whose invariant holds.

    ``worked`` were done afterwards, ``failed`` ended otherwise, ``open`` have not ended (or their job is deleted).
    """

    stage: str
    worked: int
    failed: int
    open: int
    last_worked_at: datetime | None
    reason: str | None  # of the last one that worked

    @property
    def tried(self) -> int:
        return self.worked + self.failed + self.open


def tried_remedies(codes: Iterable[str]) -> dict[str, list[TriedRemedy]]:
    """Return what was tried for each code, what worked most first."""
    found: dict[str, list[TriedRemedy]] = {}
    values: dict[str, Any] = {"codes": sorted(set(codes)), "most": MAX_RETRIES, "ends": ENDS}
    with connection.cursor() as cursor:
        cursor.execute(TRIED, values)
        for code, *columns in cursor.fetchall():
            found.setdefault(code, []).append(TriedRemedy(*columns))
    return found


def find_failure(code: str | None, pipeline: str = "") -> ErrorCode:
    """Return a dead letter's code. The same code may have another remedy for a statute than for a tenant's document."""
    contexts = (Context.FAILURE, Context.STATUTE_FAILURE)
    return find_error_code(code, *(contexts[::-1] if pipeline == PIPELINE else contexts)) or UNDECLARED


def find_wait(reason: str | None) -> ErrorCode | None:
    return find_error_code(reason, Context.WAIT, Context.STATUTE_WAIT)
