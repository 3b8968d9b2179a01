"""Event counts: job events, ended syncs and vendor calls as samples of counters, each counted once.

A job event is counted when no older one can be committed any more.
"""

from datetime import datetime, timedelta

from django.db import connection

from jobs.unsaved_stages import MAX_EVENT_AGE_SECONDS
from metrics.distributions import BOUNDS, BUCKETS, MetricSample, timed_sample

# An event is visible from its commit. Any open transaction that has written may commit an event older than its own
# beginning by as much as unsaved stages may be; one that is open for minutes is not waited for.
HORIZON = f"""
SELECT clock_timestamp(), greatest(clock_timestamp() - interval '2 minutes', least(
    clock_timestamp() - interval '1 second',
    (SELECT min(xact_start) FROM pg_stat_activity
     WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid())))
    - interval '{MAX_EVENT_AGE_SECONDS} seconds'
"""
OLDEST = "SELECT min(ts) FROM events WHERE ts >= clock_timestamp() - interval '30 days'"


def _mode(of: str = "") -> str:
    """Return the SQL of a job's mode after a move: worked on, parked until a time, due for a worker, or over."""
    return f"""
    CASE WHEN {of}code = 'CLAIMED' OR ({of}type = 'stage_done' AND {of}origin IS NOT NULL AND NOT {of}outside) THEN 'work'
         WHEN {of}code IN ('WAITING', 'RETRY_SCHEDULED') THEN 'parked'
         WHEN {of}type IN ('finalized', 'error') THEN 'over' ELSE 'queue' END"""


_EVENT = """
    e.job_id, e.ts, e.type, e.code, e.payload, e.payload ->> 'from' AS origin, e.payload ? 'by' AS outside,
    coalesce(e.payload ->> 'from', e.payload ->> 'stage', 'queued') AS stage"""
# A handler's own events are no moves: they end no interval.
_IS_MOVE = "(e.payload ? 'attempt' OR e.code = 'UPLOAD_ACCEPTED')"

_NUMBER = "CASE WHEN jsonb_typeof(payload -> '{0}') = 'number' THEN (payload ->> '{0}')::float8 END"
_SINCE_DECLARED = "extract(epoch FROM ts - declared)::float8"
# metric, labels, number summed up, seconds for the histogram, condition of the rows
_FACTS = (
    ("stage", "ARRAY[pipeline, stage]", "seconds", "seconds", "mode = 'work' AND origin IS NOT NULL AND advanced"),
    ("queue", "ARRAY[pipeline, stage]", "seconds", "seconds", "mode = 'queue' AND code = 'CLAIMED'"),
    ("parked", "ARRAY[pipeline, stage]", "seconds", "seconds", "mode = 'parked'"),
    ("tried", "ARRAY[pipeline]", "seconds", "NULL", "mode = 'work'"),
    ("retried", "ARRAY[stage, error]", "0", "NULL", "type = 'retry' AND code <> 'REQUEUED'"),
    ("failed", "ARRAY[stage, error]", "0", "NULL", "is_move AND type = 'error' AND error NOT IN ('CANCELLED', 'SUPERSEDED')"),
    ("ended", "ARRAY[pipeline, outcome]", "0", "NULL", "is_move AND type IN ('finalized', 'error')"),
    ("reprocessed", "ARRAY[pipeline]", "0", "NULL", "is_move AND type IN ('finalized', 'error') AND retried"),
    ("requeued", "ARRAY[stage]", "0", "NULL", "code = 'REQUEUED'"),
    ("declared", "ARRAY[pipeline]", "0", "NULL", "code = 'UPLOAD_ACCEPTED'"),
    ("pages", "'{}'::text[]", _NUMBER.format("pages"), "NULL", "advanced AND origin = 'queued' AND payload ? 'pages'"),
    ("passages", "'{}'::text[]", _NUMBER.format("chunks"), "NULL", "code = 'CHUNK_COMMITTED'"),
    ("vectors", "'{}'::text[]", _NUMBER.format("vectors"), "NULL", "code IN ('EMBED_COMMITTED', 'EMBED_SHADOWED')"),
    ("time_to", "ARRAY['parse', pipeline]", _SINCE_DECLARED, _SINCE_DECLARED, "advanced AND origin = 'parsing' AND NOT requeued"),
    ("time_to", "ARRAY['chunk', pipeline]", _SINCE_DECLARED, _SINCE_DECLARED, "advanced AND origin = 'chunks_buffered' AND NOT requeued"),
    ("time_to", "ARRAY['first_embedding', pipeline]", _SINCE_DECLARED, _SINCE_DECLARED,
     "(code = 'EMBED_FIRST' OR (advanced AND origin = 'embedding' AND NOT first_embedded)) AND NOT requeued"),
    ("time_to", "ARRAY['complete', pipeline]", _SINCE_DECLARED, _SINCE_DECLARED, "type = 'finalized' AND NOT requeued"),
    ("probe", "ARRAY[CASE WHEN code = 'EMBED_INDEX_TIMEOUT' THEN 'timeout' ELSE 'ok' END]",
     _NUMBER.format("probe_seconds"), _NUMBER.format("probe_seconds"),
     "(type = 'finalized' OR code = 'EMBED_INDEX_TIMEOUT') AND payload ? 'probe_seconds'"),
)  # fmt: skip

EVENT_METRICS = frozenset(metric for metric, *_ in _FACTS)


_FACTS_SQL = " UNION ALL ".join(
    f"""
    SELECT '{metric}' AS metric, {labels} AS labels, ts, greatest({total}, 0)::float8 AS total,
           greatest({seconds}, 0)::float8 AS seconds
    FROM moves WHERE {where}"""
    for metric, labels, total, seconds, where in _FACTS
)
_BUCKET_COUNTS = ", ".join(f"count(*) FILTER (WHERE bucket = {n})" for n in range(BUCKETS))
COUNT = f"""
WITH seen AS MATERIALIZED (
    SELECT {_EVENT}, {_IS_MOVE} AS is_move FROM events e WHERE e.ts > %(since)s AND e.ts <= %(until)s
        AND ({_IS_MOVE} OR e.code IN ('EMBED_FIRST', 'EMBED_INDEX_TIMEOUT'))
), jobs AS MATERIALIZED (
    SELECT s.job_id, coalesce(j.pipeline, '') AS pipeline, j.created_at AS declared, b.*,
           coalesce(h.retried, false) AS retried, coalesce(h.requeued, false) AS requeued,
           coalesce(h.first_embedded, false) AS first_embedded
    FROM (SELECT job_id, min(ts) AS first_ts, bool_or(origin IS NOT NULL) AS is_moving FROM seen GROUP BY job_id) s
    JOIN upload_jobs j ON j.job_id = s.job_id
    LEFT JOIN LATERAL (
        SELECT e.ts AS before_ts, e.type AS before_type, e.code AS before_code,
               e.payload ->> 'from' AS before_origin, e.payload ? 'by' AS before_outside
        FROM events e WHERE e.job_id = s.job_id AND e.ts < s.first_ts AND {_IS_MOVE} ORDER BY e.ts DESC LIMIT 1
    ) b ON true
    LEFT JOIN LATERAL (
        SELECT bool_or(e.type = 'retry') AS retried, bool_or(e.code = 'REQUEUED') AS requeued,
               bool_or(e.code = 'EMBED_FIRST') AS first_embedded
        FROM events e WHERE s.is_moving AND e.job_id = s.job_id AND e.ts <= %(until)s
    ) h ON true
), line AS (
    SELECT s.*, true AS is_new, {_mode()} AS now_mode FROM seen s
    UNION ALL
    SELECT job_id, before_ts, before_type, before_code, NULL, NULL, NULL, NULL, true, false, {_mode("before_")}
    FROM jobs WHERE before_ts IS NOT NULL
), paced AS (
    SELECT *, lag(now_mode) OVER moves_of_job AS mode, ts - lag(ts) OVER moves_of_job AS took
    FROM line WINDOW moves_of_job AS (PARTITION BY job_id, is_move ORDER BY ts, is_new)
), moves AS MATERIALIZED (
    SELECT s.job_id, s.ts, s.type, s.code, s.payload, s.origin, s.stage, s.is_move, j.pipeline, j.declared, j.retried,
           j.requeued, j.first_embedded, CASE WHEN s.is_move THEN s.mode END AS mode,
           CASE WHEN s.is_move THEN extract(epoch FROM s.took)::float8 END AS seconds,
           s.is_move AND s.type IN ('stage_done', 'finalized') AND s.origin IS NOT NULL AS advanced,
           CASE WHEN s.code IN ('RETRY_SCHEDULED', 'LEASE_EXPIRED', 'DLQ_MOVED')
                THEN coalesce(s.payload ->> 'code', 'WORKER_LOST') ELSE s.code END AS error,
           CASE WHEN s.type = 'finalized' THEN 'done' WHEN s.code IN ('CANCELLED', 'SUPERSEDED') THEN 'let_go'
                ELSE 'failed' END AS outcome
    -- A full join is never a nested loop, which the planner would choose, taking thousands of events for a few; nor is
    -- it reduced to another join while the condition is not strict.
    FROM paced s FULL JOIN jobs j USING (job_id) WHERE coalesce(s.is_new AND j.declared IS NOT NULL, false)
), facts AS ({_FACTS_SQL}),
bucketed AS (
    -- Of descending bounds, because a time that equals a bound belongs to the bucket below it.
    SELECT *, cardinality(%(bounds)s::float8[]) - width_bucket(-seconds, %(bounds)s::float8[]) AS bucket
    FROM facts
)
SELECT metric, labels, date_bin('5 minutes', ts, '2000-01-01 00:00Z') AS at, count(*),
       coalesce(sum(total), 0), coalesce(max(coalesce(seconds, total)), 0),
       CASE WHEN count(seconds) > 0 THEN ARRAY[{_BUCKET_COUNTS}] ELSE '{{}}' END
FROM bucketed GROUP BY 1, 2, 3
"""

SYNC, RECORDS = "sync", "records"
ENDED_SYNCS = """
SELECT s.provider, j.kind, CASE j.status WHEN 'completed' THEN 'completed' ELSE coalesce(j.error_message, '') END,
       date_bin('5 minutes', j.finished_at, '2000-01-01 00:00Z'),
       greatest(extract(epoch FROM j.finished_at - j.created_at), 0)::float8,
       j.items_written, j.items_unchanged, j.items_embedded, j.items_deleted, j.items_failed
FROM ingestion_jobs j JOIN connected_sources s ON s.id = j.source_id
WHERE j.finished_at > %s AND j.finished_at <= %s AND j.status IN ('completed', 'failed')"""
RECORD_OUTCOMES = ("written", "unchanged", "embedded", "deleted", "failed")
VENDOR_CALLS_LIMIT = 20_000
POP_VENDOR_CALLS = """
DELETE FROM vendor_calls WHERE id IN (SELECT id FROM vendor_calls ORDER BY id LIMIT %s)
RETURNING vendor, operation, outcome, seconds"""


def visibility_horizon() -> tuple[datetime, datetime]:
    """Return the database's time, and the time up to which every event is visible."""
    with connection.cursor() as cursor:
        cursor.execute(HORIZON)
        now, horizon = cursor.fetchone()
    return now, horizon


def first_event_time(horizon: datetime) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute(OLDEST)
        (oldest,) = cursor.fetchone()
    return (oldest or horizon) - timedelta(microseconds=1)


def count_events(since: datetime, until: datetime) -> list[MetricSample]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('jit', 'off', true)")
        cursor.execute(COUNT, {"since": since, "until": until, "bounds": [-bound for bound in reversed(BOUNDS)]})
        rows = cursor.fetchall()
    return [MetricSample(metric, tuple(labels), at, *rest) for metric, labels, at, *rest in rows]


def count_syncs(since: datetime, until: datetime) -> list[MetricSample]:
    """Count the syncs that ended after ``since``, up to and including ``until``, and the outcomes of their records."""
    times: dict[tuple[datetime, tuple[str, ...]], list[float]] = {}
    records: dict[tuple[datetime, tuple[str, ...]], int] = {}
    with connection.cursor() as cursor:
        cursor.execute(ENDED_SYNCS, [since, until])
        for provider, kind, outcome, at, seconds, *counts in cursor.fetchall():
            times.setdefault((at, (provider, kind, outcome)), []).append(seconds)
            for name, count in zip(RECORD_OUTCOMES, counts, strict=True):
                key = (at, (provider, name))
                records[key] = records.get(key, 0) + count
    return [
        *(timed_sample(SYNC, labels, at, seconds) for (at, labels), seconds in times.items()),
        *(MetricSample(RECORDS, labels, at, 1, float(n), float(n)) for (at, labels), n in records.items()),
    ]


def pop_vendor_calls(now: datetime) -> list[MetricSample]:
    times: dict[tuple[str, str, str], list[float]] = {}
    with connection.cursor() as cursor:
        cursor.execute(POP_VENDOR_CALLS, [VENDOR_CALLS_LIMIT])
        for vendor, operation, outcome, seconds in cursor.fetchall():
            times.setdefault((vendor, operation, outcome), []).append(seconds)
    return [timed_sample("vendor", labels, now, seconds) for labels, seconds in times.items()]
