"""The calls of vendors, taken from where the gate puts them: each is counted once and forgotten."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from metrics import histograms
from metrics.rollups import MetricSample

MOST = 20_000
TAKE = """
DELETE FROM vendor_calls WHERE id IN (SELECT id FROM vendor_calls ORDER BY id LIMIT %s)
RETURNING vendor, operation, outcome, seconds"""


def pop_vendor_calls(now: datetime) -> list[MetricSample]:
    """Return the calls since the last time, in the caller's transaction."""
    found: dict[tuple[str, str, str], list[float]] = {}
    with connection.cursor() as cursor:
        cursor.execute(TAKE, [MOST])
        for vendor, operation, outcome, seconds in cursor.fetchall():
            found.setdefault((vendor, operation, outcome), []).append(seconds)
    return [
        MetricSample("vendor", labels, now, len(times), sum(times), max(times), histograms.bucket_counts(times))
        for labels, times in found.items()
    ]
