"""How it stands now: exact counts by status, the kinds of not moving, and how long the work has waited."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from jobs import queries
from jobs.cluster import registry
from jobs.models import UploadJob
from jobs.progress import DUE, USERS_AT_LIMIT, starved_filter
from jobs.states import STATUSES, State
from metrics import connector_gauges, statute_gauges
from metrics.rollups import MetricSample

KINDS = ("queued", "starved", "waiting", "retrying", "working", "dead")

# Index-only, over idx_upload_jobs_status and ix_jobs_state: still a million entries, so never in a request.
STATUS = "SELECT status, count(*) FROM upload_jobs GROUP BY status"
STATE = "SELECT state, count(*) FROM upload_jobs GROUP BY state"
PARKED = "SELECT count(*) FROM upload_jobs WHERE state = 'queued' AND run_after IS NOT NULL"
DEAD = """
SELECT stage, last_error ->> 'code', count(*), extract(epoch FROM clock_timestamp() - min(finished_at))::float8
FROM upload_jobs WHERE state = 'deadletter' GROUP BY 1, 2"""

# Through the indexes, at any size: what may be asked in a request. The head of each user's line, as the claim sees it,
# of those who have a free slot; of very many users the first thousand.
LAG = f"""
WITH RECURSIVE users AS (
    (SELECT user_id, 1 AS n FROM upload_jobs WHERE state = 'queued' AND run_after IS NULL AND campaign_id IS NULL
     ORDER BY user_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.user_id FROM upload_jobs j WHERE j.state = 'queued' AND j.run_after IS NULL
            AND j.campaign_id IS NULL AND j.user_id > u.user_id ORDER BY j.user_id LIMIT 1), u.n + 1
    FROM users u WHERE u.user_id IS NOT NULL AND u.n < 1000
)
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(head.updated_at)), 0)::float8
FROM users u CROSS JOIN LATERAL (
    SELECT j.updated_at FROM upload_jobs j WHERE j.user_id = u.user_id AND j.state = 'queued' AND j.run_after IS NULL
        AND j.campaign_id IS NULL ORDER BY j.created_at, j.job_id LIMIT 1) head
WHERE u.user_id IS NOT NULL AND u.user_id NOT IN ({USERS_AT_LIMIT})"""
LONGEST = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM (
    {of_states}) oldest"""
_OLDEST = "(SELECT created_at FROM upload_jobs WHERE state = '{}' ORDER BY created_at LIMIT 1)"
LONGEST_WAITING = LONGEST.format(
    of_states=" UNION ALL ".join(
        _OLDEST.format(state.value) for state in (State.QUEUED, State.WORKING, State.RETRYABLE)
    )
)
WORKING = "SELECT count(*) FROM upload_jobs WHERE state = 'working' AND lease_until IS NOT NULL"


def _one(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, queries.concurrency_params())
        return cursor.fetchone()[0]


def _all(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, queries.concurrency_params())
        return list(cursor.fetchall())


def queue_lag() -> float:
    """Return for how many seconds the work that a worker could take has been due, in the worst user's case."""
    return float(_one(LAG))


def longest_waiting() -> float:
    """Return the age in seconds of the oldest job that has not ended."""
    return float(_one(LONGEST_WAITING))


def jobs_working() -> int:
    return int(_one(WORKING))


def collect_gauges() -> dict[str, Any]:
    """Return how it stands, as JSON takes it. Reads the index of every job: aside only."""
    states = dict(_all(STATE))
    parked, without_slot = int(_one(PARKED)), UploadJob.objects.filter(DUE, starved_filter()).count()
    dead = [{"stage": stage, "code": code or "", "jobs": jobs, "oldest": age} for stage, code, jobs, age in _all(DEAD)]
    return {
        "status": dict.fromkeys(STATUSES, 0) | dict(_all(STATUS)),
        "standing": {
            "queued": max(states.get(State.QUEUED, 0) - parked - without_slot, 0),
            "starved": without_slot,
            "waiting": parked,
            "retrying": states.get(State.RETRYABLE, 0),
            "working": states.get(State.WORKING, 0),
            "dead": states.get(State.DEADLETTER, 0),
        },
        "dead": sorted(dead, key=lambda each: -int(each["jobs"])),
        "lag": queue_lag(),
        "longest": longest_waiting(),
        "workers": registry.count_workers(),
        "connectors": connector_gauges.collect_connector_gauges(),
        "statutes": statute_gauges.collect_statute_gauges(),
    }


def gauge_samples(told: dict[str, Any], at: datetime) -> list[MetricSample]:
    """Return one look as samples, so that the figures know how it stood over time."""
    seen: list[tuple[str, tuple[str, ...], Any]] = [
        ("status", (status,), jobs) for status, jobs in told["status"].items()
    ]
    seen += [("standing", (kind,), jobs) for kind, jobs in told["standing"].items()]
    seen += [(name, (), told[name]) for name in ("lag", "longest", "workers")]
    return [MetricSample(measure, labels, at, 1, float(value), float(value)) for measure, labels, value in seen]
