"""Metric rollups: samples and histograms, added up over five minutes, an hour, a day and for ever."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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

ADD = """
INSERT INTO metric_rollups AS r (metric, resolution, starts_at, labels, count, total, peak, histogram)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (metric, resolution, starts_at, labels) DO UPDATE SET
    count = r.count + excluded.count, total = r.total + excluded.total, peak = greatest(r.peak, excluded.peak),
    histogram = CASE WHEN r.histogram = '{}' THEN excluded.histogram WHEN excluded.histogram = '{}' THEN r.histogram
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
    """Return the sample of events that took ``seconds``."""
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
            merged[key] = _merge(merged[key], sample) if key in merged else sample
    rows = [
        (metric, resolution.value, starts_at, list(labels), row.count, row.total, row.peak, list(row.histogram))
        for (metric, resolution, starts_at, labels), row in sorted(merged.items(), key=lambda pair: pair[0])
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(ADD, rows)


def _merge(one: MetricSample, other: MetricSample) -> MetricSample:
    return MetricSample(
        one.metric,
        one.labels,
        one.at,
        one.count + other.count,
        one.total + other.total,
        max(one.peak, other.peak),
        add_counts(one.histogram, other.histogram),
    )


def delete_expired(now: datetime) -> None:
    """Delete the rollups that are older than their retention."""
    for resolution, retention in RETENTION.items():
        MetricRollup.objects.filter(resolution=resolution, starts_at__lt=now - retention).delete()


def bucket_counts(seconds: Iterable[float]) -> list[int]:
    """Return how many of ``seconds`` fall into each bucket."""
    counts = [0] * BUCKETS
    for each in seconds:
        counts[bisect_left(BOUNDS, each)] += 1
    return counts


def add_counts(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the sums of two histograms' buckets; either may be empty."""
    if not one or not other:
        return list(one or other)
    return [a + b for a, b in zip(one, other, strict=True)]


def percentile(counts: Sequence[int], share: float, *, peak: float) -> float | None:
    """Return the seconds that ``share`` of the times do not exceed, or None when there are none.

    Exact up to the width of the bucket; never more than ``peak``, the longest time.
    """
    total = sum(counts)
    if not total:
        return None
    rank, before = share * total, 0
    for index, count in enumerate(counts):
        if count and before + count >= rank:
            low = BOUNDS[index - 1] if index else 0.0
            high = min(BOUNDS[index], peak) if index < len(BOUNDS) else peak
            return min(low + max(high - low, 0.0) * (rank - before) / count, peak)
        before += count
    return peak
