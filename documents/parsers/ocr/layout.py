"""Reading order: from lines that lie about a page to columns, rows and paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

PROSE = 8.0  # a line of prose is this much longer than high; a cell of a table is seldom
COLUMN_ROWS = 4  # fewer lines side by side are a letterhead or a form
CROSSING_SHARE = 0.25  # of the lines: titles and footers may run across all columns
SAME_ROW = 0.5  # of a line's height
LOOSE, APART = 1.4, 2.2  # of the usual distance between rows, of their height: more than this begins a paragraph
FULL = 0.85  # a row that reaches this far was broken for want of room, so the next one goes on with it
ITEM = re.compile(r"[-\u2013•*·●○▪◦] ?\S|\(?(\d{1,3}|[a-zA-Z])[.)]\s?\S")
BROKEN_WORD = re.compile(r"[a-z]-$")


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text that the detector took for one line; ``middle`` is its height on the page, levelled."""

    left: float
    right: float
    middle: float
    height: float
    text: str


def layout_markdown(boxes: Sequence[NDArray[np.float32]], texts: Sequence[str]) -> str:
    """``boxes`` are corners clockwise from the top left, in pixels; ``texts`` what stands in them."""
    slope = _slope(boxes)
    lines = [_line(box, text.strip(), slope) for box, text in zip(boxes, texts, strict=True)]
    lines.sort(key=lambda line: (line.middle, line.left))
    return "\n\n".join(paragraph for column in _columns(lines) if column for paragraph in _paragraphs(_rows(column)))


def _slope(boxes: Sequence[NDArray[np.float32]]) -> float:
    """How much the page's lines fall to the right: a scan is seldom straight, and rows are told by their height."""
    tops = [box[1] - box[0] for box in boxes if _length(box[1] - box[0]) >= PROSE * _length(box[3] - box[0])]
    return median(float(top[1] / top[0]) for top in tops) if tops else 0.0


def _line(box: NDArray[np.float32], text: str, slope: float) -> Line:
    left, right = float(box[:, 0].min()), float(box[:, 0].max())
    middle = float(box[:, 1].mean()) - slope * (left + right) / 2
    height = min(_length(box[3] - box[0]), _length(box[1] - box[0]))  # of text that runs up the page, its width
    return Line(left, right, middle, height, text)


def _length(edge: NDArray[np.float32]) -> float:
    return float(np.hypot(edge[0], edge[1]))


def _columns(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Groups to be read one after the other, each from top to bottom."""
    gutter = _gutter(lines)
    if gutter is None:
        yield lines
        return
    across: list[Line] = []  # what runs over the gutter, and what is too little beside it to be columns
    beside: list[Line] = []
    for line in lines:
        if not line.left < gutter < line.right:
            beside.append(line)
            continue
        if not _are_columns(beside, gutter):
            across += [*beside, line]
        else:
            yield from _parted(across, len(lines))
            yield from _side_by_side(beside, gutter)
            across = [line]
        beside = []
    if not _are_columns(beside, gutter):
        across, beside = across + beside, []
    yield from _parted(across, len(lines))
    yield from _side_by_side(beside, gutter)


def _parted(across: Sequence[Line], of: int) -> Iterator[Sequence[Line]]:
    """Columns of its own may stand above or below the others."""
    if across:
        yield from _columns(across) if len(across) < of else [across]


def _are_columns(lines: Sequence[Line], gutter: float) -> bool:
    return min(map(len, _sides(lines, gutter))) >= 2


def _side_by_side(lines: Sequence[Line], gutter: float) -> Iterator[Sequence[Line]]:
    for side in _sides(lines, gutter):
        if side:
            yield from _columns(side)


def _sides(lines: Sequence[Line], gutter: float) -> tuple[list[Line], list[Line]]:
    return [line for line in lines if line.right <= gutter], [line for line in lines if line.left >= gutter]


def _gutter(lines: Sequence[Line]) -> float | None:
    """The left edge that fewest lines cross and that has a column of prose on either side."""
    best, fewest = None, CROSSING_SHARE * len(lines)
    for gutter in sorted({line.left for line in lines}):
        crossing = sum(line.left < gutter < line.right for line in lines)
        if crossing < fewest and all(
            sum(map(_is_prose, side)) >= max(COLUMN_ROWS, len(side) / 2) for side in _sides(lines, gutter)
        ):
            best, fewest = gutter, crossing
    return best


def _is_prose(line: Line) -> bool:
    return line.right - line.left >= PROSE * line.height


def _rows(lines: Sequence[Line]) -> list[list[Line]]:
    rows: list[list[Line]] = []
    for line in lines:
        last = rows[-1][0] if rows else None
        if last and line.middle - last.middle < SAME_ROW * min(line.height, last.height):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


def _paragraphs(rows: Sequence[Sequence[Line]]) -> Iterator[str]:
    steps = [below[0].middle - above[0].middle for above, below in pairwise(rows)]
    most = min(LOOSE * median(steps), APART * median(row[0].height for row in rows)) if steps else 0.0
    start, reach = min(row[0].left for row in rows), max(row[-1].right for row in rows)
    text = _words(rows[0])
    for step, (above, below) in zip(steps, pairwise(rows), strict=True):
        if step > most:
            yield text
            text = _words(below)
        elif _has_cells(above) or _has_cells(below) or above[-1].right - start < FULL * (reach - start):
            text += "\n" + _words(below)
        else:
            text = _joined(text, _words(below))
    yield text


def _words(row: Sequence[Line]) -> str:
    return " ".join(line.text for line in row)


def _has_cells(row: Sequence[Line]) -> bool:
    """Tell whether a row has gaps as only tables and forms have them."""
    return any(after.left - before.right > before.height for before, after in pairwise(row))


def _joined(text: str, words: str) -> str:
    if ITEM.match(words):
        return f"{text}\n{words}"
    if BROKEN_WORD.search(text) and words[:1].islower():
        return text[:-1] + words
    return f"{text} {words}"
