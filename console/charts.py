"""Charts drawn on the server, as SVG without a script or a style; each brings the table of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 10, 26
MOST_TICKS = 5
COLOURS = 8  # as many as dashboard.css has


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of one kind; None where nobody has looked, which is not the same as none."""

    name: str
    values: Sequence[float | None]

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    def at(self, index: int) -> float:
        return self.values[index] or 0.0


@dataclass(frozen=True, slots=True)
class Line:
    points: str
    colour: int


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    colour: int
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A word at an axis."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time, or bars beside one another (``stacked``: on top of one another)."""

    slug: str
    title: str
    labels: Sequence[str]
    series: Sequence[Series]
    kind: str = "lines"
    shown: Callable[[float], str] = "{:,.0f}".format
    about: str = ""

    @property
    def is_empty(self) -> bool:
        return not any(value for series in self.series for value in series.values)

    @property
    def legend(self) -> list[tuple[int, str]]:
        return [(index % COLOURS, series.name) for index, series in enumerate(self.series)]

    @property
    def top(self) -> float:
        stacks = [[series.at(index) for series in self.series] for index in range(len(self.labels))]
        highest = max((sum(s) if self.kind == "stacked" else max(s, default=0.0) for s in stacks), default=0.0)
        return rounded_up(highest)

    @property
    def summary(self) -> str:
        """What the picture shows, for who does not see it; all numbers are in the table below it."""
        if self.is_empty:
            return f"{self.title}: nothing in this period."
        known = [(series.name, series.known) for series in self.series if series.known]
        told = [f"{name} at most {self.shown(max(values))}, last {self.shown(values[-1])}" for name, values in known]
        return f"{self.title}, {self.labels[0]} to {self.labels[-1]}: {'; '.join(told)}."

    @property
    def levels(self) -> list[Mark]:
        texts = [self.shown(self.top * n / 4) for n in range(5)]
        unlike = [text if text not in texts[:n] and text not in texts[n + 1 :] else "" for n, text in enumerate(texts)]
        if len(set(texts)) < len(texts):  # a top of 1 has no whole quarters
            unlike[0], unlike[-1] = texts[0], texts[-1]
        return [Mark(LEFT - 6, self._y(self.top * n / 4), text) for n, text in enumerate(unlike)]

    @property
    def ticks(self) -> list[Mark]:
        every = max(1, ceil(len(self.labels) / MOST_TICKS))
        marked = range(0, len(self.labels), every)
        return [Mark(self._x(at), HEIGHT - 8, self.labels[at]) for at in marked]

    @property
    def lines(self) -> list[Line]:
        if self.kind != "lines":
            return []
        return [
            Line(points, n % COLOURS) for n, series in enumerate(self.series) for points in self._pieces(series.values)
        ]

    def _pieces(self, values: Sequence[float | None]) -> Iterator[str]:
        """Break a line where nothing is known; what stands alone is drawn as a dash."""
        piece: list[str] = []
        for index, value in enumerate([*values, None]):
            if value is not None:
                piece.append(f"{self._x(index):.1f},{self._y(value):.1f}")
                last = f"{self._x(index) - 4:.1f},{self._y(value):.1f}"
            elif piece:
                yield " ".join(piece if len(piece) > 1 else [last, *piece])
                piece = []

    @property
    def bars(self) -> list[Bar]:
        if self.kind == "lines":
            return []
        room = (WIDTH - LEFT - RIGHT) / max(1, len(self.labels))
        return [bar for at in range(len(self.labels)) for bar in self._bars_at(at, LEFT + at * room, room * 0.8)]

    def _bars_at(self, at: int, x: float, room: float) -> list[Bar]:
        width = room if self.kind == "stacked" else room / max(1, len(self.series))
        found, below = [], 0.0
        for n, series in enumerate(self.series):
            value = series.at(at)
            begin = x if self.kind == "stacked" else x + n * width
            height = (HEIGHT - TOP - BOTTOM) * value / self.top
            y = self._y(below + value)
            title = f"{self.labels[at]}, {series.name}: {self.shown(value)}"
            found.append(Bar(round(begin, 1), round(y, 1), round(width, 1), round(height, 1), n % COLOURS, title))
            below += value if self.kind == "stacked" else 0.0
        return [bar for bar in found if bar.height > 0]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The numbers, the newest first."""
        rows = [
            (label, ["" if (value := series.values[at]) is None else self.shown(value) for series in self.series])
            for at, label in enumerate(self.labels)
        ]
        return rows[::-1] if self.kind == "lines" else rows

    def _x(self, at: int) -> float:
        if self.kind != "lines":
            return LEFT + (at + 0.4) * (WIDTH - LEFT - RIGHT) / max(1, len(self.labels))
        return LEFT + at * (WIDTH - LEFT - RIGHT) / max(1, len(self.labels) - 1)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top


def rounded_up(value: float) -> float:
    """Return the next of 1, 2, 4, 8, 10, 20, … (or of tenths) that is not below ``value``."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** floor(log10(value))
    return next(step * scale for step in (1, 2, 4, 8, 10) if step * scale >= value * 0.999999)


def duration(seconds: float) -> str:
    """Return seconds as people say them: 12 ms, 3.4 s, 5 min, 2.5 h, 3 d."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:,.0f} d"


def money(cents: float) -> str:
    """Return cents as dollars; small sums with the digits that they have."""
    return f"${cents / 100:,.2f}" if cents >= 1 or not cents else f"${cents / 100:.5f}"


def size(count: float) -> str:
    """Return bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
