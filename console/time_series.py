"""A period until now, and what happened in it as the series of a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from console.charts import Series
from metrics.queries import Period, Point


@dataclass(frozen=True, slots=True)
class Moment:
    """What is looked at: a period until now, in points."""

    period: Period
    now: datetime

    @property
    def points(self) -> list[datetime]:
        return self.period.points(self.now)

    @property
    def labels(self) -> list[str]:
        form = {"1h": "%H:%M", "24h": "%H:%M", "7d": "%d %b %H:%M", "30d": "%d %b"}[self.period.name]
        return [point.strftime(form) for point in self.points]

    @property
    def first_day(self) -> date:
        return (self.now - self.period.length).date()

    def line(self, name: str, points: Mapping[datetime, Point], value: Callable[[Point], float]) -> Series:
        """What happened: where there is no figure, it did not."""
        return Series(name, [value(points[at]) if at in points else 0.0 for at in self.points])

    def looks(self, name: str, points: Mapping[datetime, Point], value: Callable[[Point], float]) -> Series:
        """What was looked at: where there is no figure, nobody has."""
        return Series(name, [value(points[at]) if at in points else None for at in self.points])
