"""Adding to the figures: each fact once, into the span of five minutes, the hour, the day and for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from metrics import histograms
from metrics.models import MetricRollup, Resolution

WIDTHS = {
    Resolution.MINUTES: timedelta(minutes=5),
    Resolution.HOUR: timedelta(hours=1),
    Resolution.DAY: timedelta(days=1),
}
KEPT = {Resolution.MINUTES: timedelta(days=2), Resolution.HOUR: timedelta(days=90), Resolution.DAY: timedelta(days=800)}
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

Key = tuple[str, Resolution, datetime, tuple[str, ...]]

ADD = """
INSERT INTO metric_rollups AS f (measure, span, begin, labels, count, total, peak, histogram)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (measure, span, begin, labels) DO UPDATE SET
    count = f.count + excluded.count, total = f.total + excluded.total, peak = greatest(f.peak, excluded.peak),
    histogram = CASE WHEN f.histogram = '{}' THEN excluded.histogram WHEN excluded.histogram = '{}' THEN f.histogram
        ELSE ARRAY(SELECT a + b FROM unnest(f.histogram, excluded.histogram) WITH ORDINALITY AS u (a, b, n) ORDER BY n)
        END
"""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """What happened, or was seen, ``count`` times at about ``at``."""

    measure: str
    labels: tuple[str, ...]
    at: datetime
    count: int
    total: float
    peak: float
    histogram: Sequence[int] = ()


def rollup_start(at: datetime, span: Resolution) -> datetime:
    """Return when the span began that ``at`` falls into, by UTC."""
    if span == Resolution.EVER:
        return BEGINNING
    return at - (at - BEGINNING) % WIDTHS[span]


def add_samples(tallies: Iterable[MetricSample], *, now: datetime) -> None:
    """Add to what the figures say already, in the caller's transaction. Calls with the same facts count them twice."""
    merged: dict[Key, MetricSample] = {}
    for tally in tallies:
        for span in Resolution:
            if span != Resolution.EVER and tally.at < now - KEPT[span]:
                continue  # found late, and would be forgotten at once
            key = (tally.measure, span, rollup_start(tally.at, span), tally.labels)
            merged[key] = _together(merged[key], tally) if key in merged else tally
    if merged:
        _write([(key, merged[key]) for key in sorted(merged)])


def _together(one: MetricSample, other: MetricSample) -> MetricSample:
    return MetricSample(
        one.measure,
        one.labels,
        one.at,
        one.count + other.count,
        one.total + other.total,
        max(one.peak, other.peak),
        histograms.add_counts(one.histogram, other.histogram),
    )


def _write(rows: Sequence[tuple[Key, MetricSample]]) -> None:
    values = [
        (measure, span.value, begin, list(labels), tally.count, tally.total, tally.peak, list(tally.histogram))
        for (measure, span, begin, labels), tally in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(ADD, values)


def delete_expired(now: datetime) -> None:
    """Drop what is older than its span is kept."""
    for span, kept in KEPT.items():
        MetricRollup.objects.filter(span=span, begin__lt=now - kept).delete()
