"""Adding to the figures: each fact once, into the span of five minutes, the hour, the day and for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from metrics import histograms
from metrics.models import Figure, Span

WIDTHS = {Span.MINUTES: timedelta(minutes=5), Span.HOUR: timedelta(hours=1), Span.DAY: timedelta(days=1)}
KEPT = {Span.MINUTES: timedelta(days=2), Span.HOUR: timedelta(days=90), Span.DAY: timedelta(days=800)}
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

Key = tuple[str, Span, datetime, tuple[str, ...]]

ADD = """
INSERT INTO figures AS f (measure, span, begin, labels, count, total, peak, histogram)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (measure, span, begin, labels) DO UPDATE SET
    count = f.count + excluded.count, total = f.total + excluded.total, peak = greatest(f.peak, excluded.peak),
    histogram = CASE WHEN f.histogram = '{}' THEN excluded.histogram WHEN excluded.histogram = '{}' THEN f.histogram
        ELSE ARRAY(SELECT a + b FROM unnest(f.histogram, excluded.histogram) WITH ORDINALITY AS u (a, b, n) ORDER BY n)
        END
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened, or was seen, ``count`` times at about ``at``."""

    measure: str
    labels: tuple[str, ...]
    at: datetime
    count: int
    total: float
    peak: float
    histogram: Sequence[int] = ()


def begin_of(at: datetime, span: Span) -> datetime:
    """Return when the span began that ``at`` falls into, by UTC."""
    if span == Span.EVER:
        return BEGINNING
    return at - (at - BEGINNING) % WIDTHS[span]


def add(tallies: Iterable[Tally], *, now: datetime) -> None:
    """Add to what the figures say already, in the caller's transaction. Calls with the same facts count them twice."""
    merged: dict[Key, Tally] = {}
    for tally in tallies:
        for span in Span:
            if span != Span.EVER and tally.at < now - KEPT[span]:
                continue  # found late, and would be forgotten at once
            key = (tally.measure, span, begin_of(tally.at, span), tally.labels)
            merged[key] = _together(merged[key], tally) if key in merged else tally
    if merged:
        _write([(key, merged[key]) for key in sorted(merged)])


def _together(one: Tally, other: Tally) -> Tally:
    return Tally(
        one.measure,
        one.labels,
        one.at,
        one.count + other.count,
        one.total + other.total,
        max(one.peak, other.peak),
        histograms.added(one.histogram, other.histogram),
    )


def _write(rows: Sequence[tuple[Key, Tally]]) -> None:
    values = [
        (measure, span.value, begin, list(labels), tally.count, tally.total, tally.peak, list(tally.histogram))
        for (measure, span, begin, labels), tally in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(ADD, values)


def forget(now: datetime) -> None:
    """Drop what is older than its span is kept."""
    for span, kept in KEPT.items():
        Figure.objects.filter(span=span, begin__lt=now - kept).delete()
