"""How times are counted: in fixed classes, so that counts of any workers, stages and days can be added up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

# Upper bounds in seconds; what took longer than the last is counted in one class more.
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    14400.0,
)  # fmt: skip
BUCKETS = len(BOUNDS) + 1


def bucket_counts(seconds: Iterable[float]) -> list[int]:
    """Return how many of ``seconds`` fall into each class."""
    counts = [0] * BUCKETS
    for each in seconds:
        counts[bisect_left(BOUNDS, each)] += 1
    return counts


def add_counts(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the classes of both together; either may be empty."""
    if not one or not other:
        return list(one or other)
    return [a + b for a, b in zip(one, other, strict=True)]


def percentile(counts: Sequence[int], share: float, *, peak: float) -> float | None:
    """Return the seconds that ``share`` of the times do not exceed, or None when there are none.

    Exact up to the width of the class it falls into; never more than ``peak``, the longest that was met.
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
