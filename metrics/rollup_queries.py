"""Queries of metric rollups: periods, series, distributions with percentiles, totals."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from metrics.distributions import EMPTY_DISTRIBUTION, Distribution, merge
from metrics.models import MetricRollup, Resolution
from metrics.rollup_writer import EPOCH

_5_MINUTES, _HOUR, _6_HOURS, _DAY = timedelta(minutes=5), timedelta(hours=1), timedelta(hours=6), timedelta(days=1)


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


def oldest_rollup() -> datetime | None:
    days = MetricRollup.objects.filter(resolution=Resolution.DAY).order_by("starts_at")
    return days.values_list("starts_at", flat=True).first()


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now
