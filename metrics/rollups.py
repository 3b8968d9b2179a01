"""Metric rollups: samples added up over 5 minutes, an hour, a day and for ever, and their distributions."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TypeVar

from django.db import connection

from metrics.models import MetricRollup, Resolution

WIDTHS = {
    Resolution.MINUTES: timedelta(minutes=5),
    Resolution.HOUR: timedelta(hours=1),
    Resolution.DAY: timedelta(days=1),
}
RETENTION = {
    Resolution.MINUTES: timedelta(days=2),
    Resolution.HOUR: timedelta(days=90),
    Resolution.DAY: timedelta(days=800),
}
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# Upper bounds of the histograms' buckets in seconds; the last bucket has none. They are the same for all workers,
# stages and days, so that counts can be added up.
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    14400.0,
)  # fmt: skip
BUCKETS = len(BOUNDS) + 1

ROWS_OF_A_STATEMENT = 500
ADD = """
INSERT INTO metric_rollups AS r (metric, resolution, starts_at, labels, count, total, peak, histogram)
VALUES {rows}
ON CONFLICT (metric, resolution, starts_at, labels) DO UPDATE SET
    count = r.count + excluded.count, total = r.total + excluded.total, peak = greatest(r.peak, excluded.peak),
    histogram = CASE WHEN cardinality(r.histogram) = 0 THEN excluded.histogram
        WHEN cardinality(excluded.histogram) = 0 THEN r.histogram
        ELSE ARRAY(SELECT a + b FROM unnest(r.histogram, excluded.histogram) WITH ORDINALITY AS u (a, b, n) ORDER BY n)
        END
"""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """Events of a counter, or samples of a gauge: ``count`` of them at about ``at``."""

    metric: str
    labels: tuple[str, ...]
    at: datetime
    count: int
    total: float
    peak: float
    histogram: Sequence[int] = ()


def timed_sample(metric: str, labels: tuple[str, ...], at: datetime, seconds: Sequence[float]) -> MetricSample:
    return MetricSample(metric, labels, at, len(seconds), sum(seconds), max(seconds), bucket_counts(seconds))


def add_samples(samples: Iterable[MetricSample], *, now: datetime) -> None:
    """Add samples to the rollups, in the caller's transaction. Calls with the same samples count them twice."""
    merged: dict[tuple[str, Resolution, datetime, tuple[str, ...]], MetricSample] = {}
    for sample in samples:
        for resolution in Resolution:
            if resolution != Resolution.EVER and sample.at < now - RETENTION[resolution]:
                continue  # it comes late, and would be deleted at once
            starts_at = EPOCH
            if resolution != Resolution.EVER:
                starts_at = sample.at - (sample.at - EPOCH) % WIDTHS[resolution]
            key = (sample.metric, resolution, starts_at, sample.labels)
            merged[key] = merge(merged[key], sample) if key in merged else sample
    rows = [
        (metric, resolution.value, starts_at, list(labels), row.count, row.total, row.peak, list(row.histogram))
        for (metric, resolution, starts_at, labels), row in sorted(merged.items(), key=lambda pair: pair[0])
    ]
    if rows:
        with connection.cursor() as cursor:
            for at in range(0, len(rows), ROWS_OF_A_STATEMENT):
                batch = rows[at : at + ROWS_OF_A_STATEMENT]
                sql = ADD.format(rows=", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s)"] * len(batch)))
                cursor.execute(sql, list(chain.from_iterable(batch)))


def delete_expired(now: datetime) -> None:
    for resolution, retention in RETENTION.items():
        MetricRollup.objects.filter(resolution=resolution, starts_at__lt=now - retention).delete()


def bucket_counts(seconds: Iterable[float]) -> list[int]:
    counts = [0] * BUCKETS
    for each in seconds:
        counts[bisect_left(BOUNDS, each)] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Distribution:
    count: int
    total: float
    peak: float
    histogram: Sequence[int]

    def percentile(self, share: float) -> float | None:
        """Return the seconds that ``share`` of the times do not exceed, or None when there are none.

        Exact up to the width of the bucket; never more than ``peak``, the longest time.
        """
        total = sum(self.histogram)
        if not total:
            return None
        rank, before = share * total, 0
        for index, count in enumerate(self.histogram):
            if count and before + count >= rank:
                low = BOUNDS[index - 1] if index else 0.0
                high = min(BOUNDS[index], self.peak) if index < len(BOUNDS) else self.peak
                return min(low + max(high - low, 0.0) * (rank - before) / count, self.peak)
            before += count
        return self.peak


EMPTY_DISTRIBUTION = Distribution(0, 0.0, 0.0, ())
Counted = TypeVar("Counted", MetricSample, Distribution)


def merge(one: Counted, other: Counted) -> Counted:
    histogram = one.histogram or other.histogram
    if one.histogram and other.histogram:
        histogram = [a + b for a, b in zip(one.histogram, other.histogram, strict=True)]
    peak = max(one.peak, other.peak)
    return replace(one, count=one.count + other.count, total=one.total + other.total, peak=peak, histogram=histogram)


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now
