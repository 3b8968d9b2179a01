"""Dashboard charts as JSON for unfold's chart components."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from metrics.rollup_queries import Period, Point

# Lines differ by dashes too, not by colour alone.
COLOURS = ("#0b7285", "#c2410c", "#6d28d9", "#15803d", "#b91c1c", "#a16207", "#1d4ed8", "#be185d")
DASHES = ((), (6, 3), (2, 3), (8, 3, 2, 3), (12, 4), (1, 4), (4, 2, 1, 2), (10, 2, 4, 2))
GREY = "#8a8f98"  # readable on light and on dark


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of one kind. None where nothing was measured, which is not zero."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ChartPeriod:
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

    def event_counts(self, name: str, points: Mapping[datetime, Point]) -> Series:
        return Series(name, [float(points[at].count) if at in points else 0.0 for at in self.points])

    def samples(self, name: str, points: Mapping[datetime, Point], value: Callable[[Point], float]) -> Series:
        return Series(name, [value(points[at]) if at in points else None for at in self.points])


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time (``lines``), or bars beside each other (``bars``) or on top of each other (``stacked``)."""

    slug: str
    title: str
    labels: Sequence[str]
    series: Sequence[Series]
    kind: str = "lines"
    format_value: Callable[[float], str] = "{:,.0f}".format
    unit: str = ""
    about: str = ""

    @property
    def is_empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)

    @property
    def template(self) -> str:
        return f"unfold/components/chart/{'line' if self.kind == 'lines' else 'bar'}.html"

    @property
    def data(self) -> str:
        """Data of Chart.js: https://www.chartjs.org/docs/latest/general/data-structures.html."""
        datasets = [
            {
                "label": series.name,
                "data": series.values,
                "borderColor": COLOURS[n % len(COLOURS)],
                "backgroundColor": COLOURS[n % len(COLOURS)],
                "borderDash": DASHES[n % len(DASHES)],
                "borderWidth": 2 if self.kind == "lines" else 0,
            }
            for n, series in enumerate(self.series)
        ]
        return json.dumps({"labels": self.labels, "datasets": datasets})

    @property
    def options(self) -> str:
        is_stacked = self.kind == "stacked"
        value_ticks = {"color": GREY} | ({} if self.unit else {"precision": 0})  # a count has no fractions
        title = {"display": bool(self.unit), "text": self.unit, "color": GREY}
        options = {
            "animation": False,
            "responsive": True,
            "maintainAspectRatio": False,
            "interaction": {"mode": "index", "intersect": False},
            "elements": {"point": {"radius": 2}},  # a point between two gaps would not be seen otherwise
            "plugins": {"legend": {"position": "bottom", "labels": {"color": GREY, "boxHeight": 4}}},
            "scales": {
                "x": {"stacked": is_stacked, "ticks": {"color": GREY, "maxTicksLimit": 6, "maxRotation": 0}},
                "y": {"stacked": is_stacked, "ticks": value_ticks, "beginAtZero": True, "title": title},
            },
        }
        return json.dumps(options)

    @property
    def summary(self) -> str:
        """The chart in words, for screen readers; all numbers are in the table below it."""
        if self.is_empty:
            return f"{self.title}: nothing in this period."
        known = [(series.name, [value for value in series.values if value is not None]) for series in self.series]
        extremes = [
            f"{name} at most {self.format_value(max(values))}, last {self.format_value(values[-1])}"
            for name, values in known
            if values
        ]
        return f"{self.title}, {self.labels[0]} to {self.labels[-1]}: {'; '.join(extremes)}."

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        rows = [
            (label, ["" if (value := series.values[n]) is None else self.format_value(value) for series in self.series])
            for n, label in enumerate(self.labels)
        ]
        return rows[::-1] if self.kind == "lines" else rows
