"""Metric rollups: samples added up over 5 minutes, an hour, a day and for ever; their series and distributions."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.db import connection
from django.db.models import QuerySet

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
            cursor.executemany(ADD, rows)


def delete_expired(now: datetime) -> None:
    for resolution, retention in RETENTION.items():
        MetricRollup.objects.filter(resolution=resolution, starts_at__lt=now - retention).delete()


def bucket_counts(seconds: Iterable[float]) -> list[int]:
    counts = [0] * BUCKETS
    for each in seconds:
        counts[bisect_left(BOUNDS, each)] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Period:
    """A length of time back from now, in points of ``step``, summed up over rows of ``total_resolution``."""

    name: str
    title: str
    length: timedelta
    resolution: Resolution
    step: timedelta
    total_resolution: Resolution

    def start(self, now: datetime) -> datetime:
        start = now - self.length + self.step
        return start - (start - EPOCH) % self.step

    def points(self, now: datetime) -> list[datetime]:
        since = self.start(now)
        return [since + self.step * n for n in range(int((now - since) / self.step) + 1)]


_5_MINUTES, _HOUR, _6_HOURS, _DAY = timedelta(minutes=5), timedelta(hours=1), timedelta(hours=6), timedelta(days=1)
PERIODS = {
    period.name: period
    for period in (
        Period("1h", "1 hour", timedelta(hours=1), Resolution.MINUTES, _5_MINUTES, Resolution.MINUTES),
        Period("24h", "24 hours", timedelta(hours=24), Resolution.HOUR, _HOUR, Resolution.HOUR),
        Period("7d", "7 days", timedelta(days=7), Resolution.HOUR, _6_HOURS, Resolution.DAY),
        Period("30d", "30 days", timedelta(days=30), Resolution.DAY, _DAY, Resolution.DAY),
    )
}

SERIES = """
SELECT date_bin(%(step)s, starts_at, '2000-01-01 00:00Z') AS at, labels[%(label)s] AS label, sum(count), sum(total),
       max(peak)
FROM metric_rollups WHERE metric = %(metric)s AND resolution = %(resolution)s AND starts_at >= %(since)s
GROUP BY 1, 2"""


@dataclass(frozen=True, slots=True)
class Point:
    count: int
    total: float
    peak: float

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


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


def series(metric: str, period: Period, now: datetime, *, label: int | None = 1) -> dict[str, dict[datetime, Point]]:
    """Return a metric's points for each value of its ``label``-th label; for None of all together, under ""."""
    params: dict[str, Any] = {"metric": metric, "resolution": period.resolution.value, "label": label}
    params |= {"step": period.step, "since": period.start(now)}
    points: dict[str, dict[datetime, Point]] = {}
    with connection.cursor() as cursor:
        cursor.execute(SERIES, params)
        for at, name, count, total, peak in cursor.fetchall():
            points.setdefault(name or "", {})[at] = Point(int(count), total, peak)
    return points


def distributions(metric: str, period: Period, now: datetime, *, label: int | None = 1) -> dict[str, Distribution]:
    """Return a metric's times over the whole period for each value of its ``label``-th label; for None under ""."""
    by_label: dict[str, Distribution] = {}
    for labels, count, total, peak, histogram in _total_rows(metric, period, now):
        name = "" if label is None else labels[label - 1]
        by_label[name] = merge(Distribution(count, total, peak, histogram), by_label.get(name, EMPTY_DISTRIBUTION))
    return by_label


def totals(metric: str, period: Period, now: datetime) -> dict[tuple[str, ...], Point]:
    points: dict[tuple[str, ...], Point] = {}
    for labels, count, total, peak, _ in _total_rows(metric, period, now):
        before = points.get(tuple(labels), Point(0, 0.0, 0.0))
        points[tuple(labels)] = Point(before.count + count, before.total + total, max(before.peak, peak))
    return points


def _total_rows(metric: str, period: Period, now: datetime) -> QuerySet[MetricRollup, Any]:
    rows = MetricRollup.objects.filter(
        metric=metric, resolution=period.total_resolution, starts_at__gte=now - period.length
    )
    return rows.values_list("labels", "count", "total", "peak", "histogram")


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def oldest_rollup() -> datetime | None:
    days = MetricRollup.objects.filter(resolution=Resolution.DAY).order_by("starts_at")
    return days.values_list("starts_at", flat=True).first()
