"""The connectors' queue, sources and syncs: what stands now, and what has ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from integrations.sync.pgmq import ARCHIVE, TABLE
from metrics import histograms
from metrics.rollups import MetricSample

SYNC, RECORDS = "sync", "records"
# A message is a page of a sync that is going on: there are as many as syncs, so they may be counted at a scrape.
QUEUE = f"""
SELECT count(*) FILTER (WHERE vt <= clock_timestamp()), count(*) FILTER (WHERE vt > clock_timestamp()),
       coalesce(extract(epoch FROM clock_timestamp() - min(enqueued_at)), 0)::float8,
       coalesce(extract(epoch FROM clock_timestamp() - min(vt) FILTER (WHERE vt <= clock_timestamp())), 0)::float8
FROM {TABLE}"""
ARCHIVED = f"SELECT count(*) FROM {ARCHIVE}"
SOURCES = "SELECT provider, status, count(*) FROM connected_sources GROUP BY 1, 2 ORDER BY 1, 2"
ENDED = """
SELECT s.provider, j.kind, CASE j.status WHEN 'completed' THEN 'completed' ELSE coalesce(j.error_message, '') END,
       date_bin('5 minutes', j.finished_at, '2000-01-01 00:00Z'),
       greatest(extract(epoch FROM j.finished_at - j.created_at), 0)::float8,
       j.items_written, j.items_unchanged, j.items_embedded, j.items_deleted, j.items_failed
FROM ingestion_jobs j JOIN connected_sources s ON s.id = j.source_id
WHERE j.finished_at > %s AND j.finished_at <= %s AND j.status IN ('completed', 'failed')"""
OUTCOMES = ("written", "unchanged", "embedded", "deleted", "failed")


class ConnectorQueue(NamedTuple):
    """Messages that a worker may take, and those that are being worked at or held; seconds of the oldest.

    ``due``: for how long the one that has been visible the longest has been so.
    """

    visible: int
    held: int
    oldest: float
    due: float


def connector_queue() -> ConnectorQueue:
    with connection.cursor() as cursor:
        cursor.execute(QUEUE)
        return ConnectorQueue(*cursor.fetchone())


def collect_connector_gauges() -> dict[str, Any]:
    """Return what is counted row by row, as JSON takes it: aside only."""
    with connection.cursor() as cursor:
        cursor.execute(ARCHIVED)
        (archived,) = cursor.fetchone()
        cursor.execute(SOURCES)
        return {"archived": archived, "sources": [list(row) for row in cursor.fetchall()]}


def count_syncs(since: datetime, upto: datetime) -> list[MetricSample]:
    """Count the syncs that ended after ``since``, up to and with ``upto``, and what became of their records."""
    times: dict[tuple[datetime, tuple[str, ...]], list[float]] = {}
    records: dict[tuple[datetime, tuple[str, ...]], int] = {}
    with connection.cursor() as cursor:
        cursor.execute(ENDED, [since, upto])
        for provider, kind, outcome, at, seconds, *found in cursor.fetchall():
            times.setdefault((at, (provider, kind, outcome)), []).append(seconds)
            for name, number in zip(OUTCOMES, found, strict=True):
                key = (at, (provider, name))
                records[key] = records.get(key, 0) + number
    return _syncs(times) + [
        MetricSample(RECORDS, labels, at, 1, float(number), float(number)) for (at, labels), number in records.items()
    ]


def _syncs(times: Mapping[tuple[datetime, tuple[str, ...]], list[float]]) -> list[MetricSample]:
    return [
        MetricSample(SYNC, labels, at, len(took), sum(took), max(took), histograms.bucket_counts(took))
        for (at, labels), took in times.items()
    ]
