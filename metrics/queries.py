"""Reading the figures back: how something went over a period, and how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from metrics import histograms
from metrics.models import MeasurementRun, MetricRollup, Resolution
from metrics.rollups import BEGINNING


@dataclass(frozen=True, slots=True)
class Period:
    """So long back from now, in points of ``step``; times are summed up over rows of ``whole``."""

    name: str
    title: str
    length: timedelta
    span: Resolution
    step: timedelta
    whole: Resolution

    def since(self, now: datetime) -> datetime:
        begin = now - self.length + self.step
        return begin - (begin - BEGINNING) % self.step

    def points(self, now: datetime) -> list[datetime]:
        since = self.since(now)
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
SELECT date_bin(%(step)s, begin, '2000-01-01 00:00Z') AS at, labels[%(label)s] AS label, sum(count), sum(total),
       max(peak)
FROM metric_rollups WHERE measure = %(measure)s AND span = %(span)s AND begin >= %(since)s
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
    """How long something took, over a period."""

    count: int
    total: float
    peak: float
    histogram: Sequence[int]

    def percentile(self, share: float) -> float | None:
        return histograms.percentile(self.histogram, share, peak=self.peak)

    def merge(self, other: Distribution) -> Distribution:
        counted = histograms.add_counts(self.histogram, other.histogram)
        return Distribution(self.count + other.count, self.total + other.total, max(self.peak, other.peak), counted)


EMPTY_DISTRIBUTION = Distribution(0, 0.0, 0.0, ())


def series(measure: str, period: Period, now: datetime, *, label: int | None = 1) -> dict[str, dict[datetime, Point]]:
    """Return the points of a measure, for each value of its ``label``-th label; of all together, under "", for None."""
    values: dict[str, Any] = {
        "measure": measure,
        "span": period.span.value,
        "step": period.step,
        "since": period.since(now),
        "label": label,
    }
    found: dict[str, dict[datetime, Point]] = {}
    with connection.cursor() as cursor:
        cursor.execute(SERIES, values)
        for at, name, count, total, peak in cursor.fetchall():
            found.setdefault(name or "", {})[at] = Point(int(count), total, peak)
    return found


def distributions(measure: str, period: Period, now: datetime, *, label: int | None = 1) -> dict[str, Distribution]:
    """Return the times of a measure over the whole period, for each value of its ``label``-th label.

    Of all together, under "", for None.
    """
    since = now - period.length
    rows = MetricRollup.objects.filter(measure=measure, span=period.whole, begin__gte=since)
    found: dict[str, Distribution] = {}
    for labels, count, total, peak, histogram in rows.values_list("labels", "count", "total", "peak", "histogram"):
        name = "" if label is None else labels[label - 1]
        found[name] = Distribution(count, total, peak, histogram).merge(found.get(name, EMPTY_DISTRIBUTION))
    return found


def totals(measure: str, period: Period, now: datetime) -> dict[tuple[str, ...], Point]:
    """Return what a measure came to over the whole period, for each of its labels."""
    found: dict[tuple[str, ...], Point] = {}
    rows = MetricRollup.objects.filter(measure=measure, span=period.whole, begin__gte=now - period.length)
    for labels, count, total, peak in rows.values_list("labels", "count", "total", "peak"):
        before = found.get(tuple(labels), Point(0, 0.0, 0.0))
        found[tuple(labels)] = Point(before.count + count, before.total + total, max(before.peak, peak))
    return found


@dataclass(frozen=True, slots=True)
class Measurement:
    """When something was last measured; ``told`` is what was seen then."""

    seconds: float
    took: float
    told: dict[str, Any]


def measurements() -> dict[str, Measurement]:
    """Return how old each kind of measurement is; of the journal, up to when it has been counted."""
    now = database_time()
    return {
        last.name: Measurement((now - (last.upto or last.measured_at)).total_seconds(), last.seconds, last.told)
        for last in MeasurementRun.objects.all()
    }


def database_time() -> datetime:
    """Return the database's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def oldest_rollup() -> datetime | None:
    """Return since when there are figures, or None when there are none."""
    return MetricRollup.objects.filter(span=Resolution.DAY).order_by("begin").values_list("begin", flat=True).first()
