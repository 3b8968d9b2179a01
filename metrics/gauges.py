"""Gauges: jobs by status and reason for waiting, connector queue, statute consumers, vendors' breakers and pauses."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from embeddings import hnsw_indexes, sentence_vectors
from integrations.sync.pgmq import ARCHIVE, TABLE
from jobs import claim_queries
from jobs.choices import FAILED_STATUSES, STATUSES, State
from jobs.claim_queries import LOW_PRIORITY, NORMAL
from jobs.cluster import live_clusters
from jobs.display_status import USERS_AT_LIMIT, USERS_AT_LOW_PRIORITY_LIMIT
from metrics.distributions import MetricSample
from statutes.models import ALIVE, Consumer

KINDS = ("queued", "starved", "waiting", "retrying", "working", "dead")
CONSUMER_OUTCOMES = ("received", "ended", "failed")

# Index-only, over idx_upload_jobs_status: still a million entries, so never in a request, and in one process. Parallel
# ones would read the whole table, and take the cores from the workers meanwhile.
ONE_PROCESS = (
    "SELECT set_config('max_parallel_workers_per_gather', '0', true), set_config('enable_seqscan', 'off', true)"
)
STATUS = "SELECT status, count(*) FROM upload_jobs GROUP BY status"
PARKED = "SELECT state, count(*) FROM upload_jobs WHERE run_after IS NOT NULL GROUP BY state"
STARVED = " + ".join(
    f"""(SELECT count(*) FROM ({users}) u JOIN upload_jobs j USING (user_id)
         WHERE {due})"""
    for users, due in ((USERS_AT_LIMIT, NORMAL), (USERS_AT_LOW_PRIORITY_LIMIT, LOW_PRIORITY))
)
DEAD = """
SELECT stage, last_error ->> 'code', count(*), extract(epoch FROM clock_timestamp() - min(finished_at))::float8
FROM upload_jobs WHERE state = 'deadletter' GROUP BY 1, 2"""
ARCHIVED = f"SELECT count(*) FROM {ARCHIVE}"
SOURCES = "SELECT provider, status, count(*) FROM connected_sources GROUP BY 1, 2 ORDER BY 1, 2"
LAWS = "SELECT status, count(*) FROM laws GROUP BY 1"
VERSIONS = "SELECT status, count(*) FROM law_versions GROUP BY 1"

# Through the indexes, at any size: fit for a request. The head of each user's line, as the claim sees it, of those
# who have a free slot; of very many users the first thousand.
LAG = f"""
WITH RECURSIVE users AS (
    (SELECT user_id, 1 AS n FROM upload_jobs WHERE {NORMAL} ORDER BY user_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.user_id FROM upload_jobs j WHERE {NORMAL} AND j.user_id > u.user_id
            ORDER BY j.user_id LIMIT 1), u.n + 1
    FROM users u WHERE u.user_id IS NOT NULL AND u.n < 1000
)
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(head.updated_at)), 0)::float8
FROM users u CROSS JOIN LATERAL (
    SELECT j.updated_at FROM upload_jobs j WHERE j.user_id = u.user_id AND {NORMAL}
    ORDER BY j.created_at, j.job_id LIMIT 1) head
WHERE u.user_id IS NOT NULL AND u.user_id NOT IN ({USERS_AT_LIMIT})"""
_OLDEST = " UNION ALL ".join(
    f"(SELECT created_at FROM upload_jobs WHERE state = '{state.value}' ORDER BY created_at LIMIT 1)"
    for state in (State.QUEUED, State.WORKING, State.RETRYABLE)
)
LONGEST_WAITING = f"""
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM ({_OLDEST}) oldest"""
WORKING = "SELECT count(*) FROM upload_jobs WHERE state = 'working' AND lease_until IS NOT NULL"
# A message is a page of a running sync: there are as many as syncs, so they may be counted at a scrape.
QUEUE = f"""
SELECT count(*) FILTER (WHERE vt <= clock_timestamp()), count(*) FILTER (WHERE vt > clock_timestamp()),
       coalesce(extract(epoch FROM clock_timestamp() - min(enqueued_at)), 0)::float8,
       coalesce(extract(epoch FROM clock_timestamp() - min(vt) FILTER (WHERE vt <= clock_timestamp())), 0)::float8
FROM {TABLE}"""
# By the index on the status: however many versions there are, few are being processed. By ``updated_at``, because a
# version that is processed again may be years old.
STALL = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(updated_at)), 0)::float8
FROM law_versions WHERE status IN ('processing', 'normalized')"""
SILENCE = "SELECT extract(epoch FROM clock_timestamp() - max(seen_at))::float8 FROM sqs_consumers"
# By each endpoint's first message in ix_outbox_due. Endpoints that fail are left alone on purpose.
OUTBOX_LAG = """
SELECT coalesce(extract(epoch FROM max(clock_timestamp() - first.due_at)), 0)::float8
FROM webhook_endpoints e CROSS JOIN LATERAL (
    SELECT due_at FROM outbox o WHERE o.target_id = e.id AND o.state = 'queued' ORDER BY due_at LIMIT 1) first
WHERE e.failures = 0 AND first.due_at <= clock_timestamp()"""
BREAKERS = """
SELECT split_part(key, ':', 1), split_part(key, '/', 2), state, faults FROM vendor_breakers ORDER BY 1, 2"""
PAUSES = """
SELECT split_part(key, ':', 1), coalesce(pause_reason, ''), max(extract(epoch FROM paused_until - clock_timestamp()))
FROM vendor_rate_limits WHERE paused_until > clock_timestamp() GROUP BY 1, 2"""


class ConnectorQueue(NamedTuple):
    """Messages that a worker may take, and those that a worker holds or that wait for a provider.

    ``oldest``: age of the oldest in seconds. ``due``: seconds for which the one that waits longest has been visible.
    """

    visible: int
    held: int
    oldest: float
    due: float


class BreakerState(NamedTuple):
    vendor: str
    part: str
    state: str
    faults: int


def _rows(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, claim_queries.concurrency_params())
        return list(cursor.fetchall())


def _number(sql: str) -> Any:
    return _rows(sql)[0][0]


def queue_lag() -> float:
    return float(_number(LAG))


def longest_waiting() -> float:
    return float(_number(LONGEST_WAITING))


def jobs_working() -> int:
    return int(_number(WORKING))


def outbox_lag() -> float:
    """Return for how many seconds a message has been due whose receiver does not fail."""
    return float(_number(OUTBOX_LAG))


def connector_queue() -> ConnectorQueue:
    return ConnectorQueue(*_rows(QUEUE)[0])


def statute_consumers() -> dict[str, int]:
    counts = dict.fromkeys(Consumer.State.values, 0)
    for state in Consumer.objects.filter(ALIVE).values_list("state", flat=True):
        counts[state] += 1
    return counts


def statute_messages() -> list[tuple[str, str, int]]:
    """Return the counts of each consumer by outcome: each starts at 0, as a process' own counters do."""
    rows = Consumer.objects.order_by("name").values_list("name", *CONSUMER_OUTCOMES)
    return [(name, *pair) for name, *counts in rows for pair in zip(CONSUMER_OUTCOMES, counts, strict=True)]


def consumer_silence() -> float | None:
    seconds = _number(SILENCE)
    return None if seconds is None else float(seconds)


def statute_stall() -> float:
    return float(_number(STALL))


def breaker_states() -> list[BreakerState]:
    """Return the state of each vendor's breakers; of several keys the worst."""
    order = ("closed", "half-open", "open")
    worst: dict[tuple[str, str], BreakerState] = {}
    for row in map(BreakerState._make, _rows(BREAKERS)):
        other = worst.get((row.vendor, row.part))
        if other is None or order.index(row.state) > order.index(other.state):
            worst[row.vendor, row.part] = row
    return list(worst.values())


def vendor_pauses() -> list[tuple[Sequence[str], float]]:
    return [([vendor, reason], float(seconds)) for vendor, reason, seconds in _rows(PAUSES)]


def collect_gauges() -> dict[str, Any]:
    """Return all gauges as JSON. Reads the index of every job: in the background only."""
    _rows(ONE_PROCESS)
    status = dict.fromkeys(STATUSES, 0) | dict(_rows(STATUS))
    not_due = {"starved": int(_number(f"SELECT {STARVED}")), "working": jobs_working()}
    parked = dict(_rows(PARKED))
    not_due |= {"waiting": parked.get(State.QUEUED, 0), "retrying": parked.get(State.RETRYABLE, 0)}
    not_due["dead"] = sum(status[name] for name in FAILED_STATUSES)
    dead = [{"stage": stage, "code": code or "", "jobs": jobs, "oldest": age} for stage, code, jobs, age in _rows(DEAD)]
    return {
        "status": status,
        # Counted one after another: those that moved meanwhile may be missing.
        "standing": {"queued": max(sum(status.values()) - status["complete"] - sum(not_due.values()), 0), **not_due},
        "dead": sorted(dead, key=lambda group: -int(group["jobs"])),
        "unindexed": hnsw_indexes.longest_tail(),
        "without_sentences": sentence_vectors.count_pending(),
        "lag": queue_lag(),
        "longest": longest_waiting(),
        "workers": live_clusters.count_workers(),
        "connectors": {"archived": _number(ARCHIVED), "sources": [list(row) for row in _rows(SOURCES)]},
        "statutes": {"laws": dict(_rows(LAWS)), "versions": dict(_rows(VERSIONS))},
    }


def gauge_samples(gauges: dict[str, Any], at: datetime) -> list[MetricSample]:
    samples: list[tuple[str, tuple[str, ...], Any]] = [
        *(("status", (status,), jobs) for status, jobs in gauges["status"].items()),
        *(("standing", (kind,), jobs) for kind, jobs in gauges["standing"].items()),
        *((name, (), gauges[name]) for name in ("lag", "longest", "workers")),
    ]
    return [MetricSample(metric, labels, at, 1, float(number), float(number)) for metric, labels, number in samples]
