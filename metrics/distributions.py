"""Samples of metrics, and distributions: histograms of fixed buckets and their percentiles."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

# Upper bounds of the histograms' buckets in seconds; the last bucket has none. They are the same for all workers,
# stages and days, so that counts can be added up.
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    14400.0,
)  # fmt: skip
BUCKETS = len(BOUNDS) + 1


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
