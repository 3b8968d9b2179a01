"""Layout of recognized lines: columns, rows and paragraphs in reading order."""

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
LOOSE, APART = 1.4, 2.2  # of the usual distance between rows, of their height: a larger distance begins a paragraph
FULL = 0.85  # a row that reaches this far was wrapped: the next one continues it
ITEM = re.compile(r"[-\u2013•*·●○▪◦] ?\S|\(?(\d{1,3}|[a-zA-Z])[.)]\s?\S")
BROKEN_WORD = re.compile(r"[a-z]-$")


@dataclass(frozen=True, slots=True)
class Line:
    """A detected line of text; ``middle`` is its vertical position on the page, corrected for the slope."""

    left: float
    right: float
    middle: float
    height: float
    text: str


def layout_markdown(boxes: Sequence[NDArray[np.float32]], texts: Sequence[str]) -> str:
    """Return the text; ``boxes`` are corners clockwise from the top left, in pixels, of the ``texts``."""
    # A scan is seldom straight: how much the page's lines fall to the right, by those long enough to tell.
    tops = [box[1] - box[0] for box in boxes if _length(box[1] - box[0]) >= PROSE * _length(box[3] - box[0])]
    slope = median(float(top[1] / top[0]) for top in tops) if tops else 0.0
    lines = []
    for box, text in zip(boxes, texts, strict=True):
        left, right = float(box[:, 0].min()), float(box[:, 0].max())
        middle = float(box[:, 1].mean()) - slope * (left + right) / 2
        height = min(_length(box[3] - box[0]), _length(box[1] - box[0]))  # of vertical text, its width
        lines.append(Line(left, right, middle, height, text.strip()))
    lines.sort(key=lambda line: (line.middle, line.left))
    columns = (_group_rows(column) for column in _split_columns(lines) if column)
    return "\n\n".join(paragraph for rows in columns for paragraph in _join_paragraphs(rows))


def _length(edge: NDArray[np.float32]) -> float:
    return float(np.hypot(edge[0], edge[1]))


def _split_columns(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Yield groups of lines to be read one after the other, each from top to bottom."""
    gutter = _find_gutter(lines)
    if gutter is None:
        yield lines
        return

    def split_across(across: Sequence[Line]) -> Iterator[Sequence[Line]]:
        if across:  # columns of its own may stand above or below the others
            yield from _split_columns(across) if len(across) < len(lines) else [across]

    across: list[Line] = []  # lines over the gutter, and those beside it that are too few to be columns
    beside: list[Line] = []
    for line in lines:
        if not line.left < gutter < line.right:
            beside.append(line)
            continue
        if not _are_columns(beside, gutter):
            across += [*beside, line]
        else:
            yield from split_across(across)
            yield from _split_sides(beside, gutter)
            across = [line]
        beside = []
    if not _are_columns(beside, gutter):
        across, beside = across + beside, []
    yield from split_across(across)
    yield from _split_sides(beside, gutter)


def _are_columns(lines: Sequence[Line], gutter: float) -> bool:
    return min(map(len, _sides(lines, gutter))) >= 2


def _split_sides(lines: Sequence[Line], gutter: float) -> Iterator[Sequence[Line]]:
    for side in _sides(lines, gutter):
        if side:
            yield from _split_columns(side)


def _sides(lines: Sequence[Line], gutter: float) -> tuple[list[Line], list[Line]]:
    return [line for line in lines if line.right <= gutter], [line for line in lines if line.left >= gutter]


def _find_gutter(lines: Sequence[Line]) -> float | None:
    """Return the left edge that fewest lines cross and that has a column of prose on either side."""

    def has_prose(side: Sequence[Line]) -> bool:
        prose = sum(line.right - line.left >= PROSE * line.height for line in side)
        return prose >= max(COLUMN_ROWS, len(side) / 2)

    best, fewest = None, CROSSING_SHARE * len(lines)
    for gutter in sorted({line.left for line in lines}):
        crossing = sum(line.left < gutter < line.right for line in lines)
        if crossing < fewest and all(map(has_prose, _sides(lines, gutter))):
            best, fewest = gutter, crossing
    return best


def _group_rows(lines: Sequence[Line]) -> list[list[Line]]:
    rows: list[list[Line]] = []
    for line in lines:
        last = rows[-1][0] if rows else None
        if last and line.middle - last.middle < SAME_ROW * min(line.height, last.height):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


def _join_paragraphs(rows: Sequence[Sequence[Line]]) -> Iterator[str]:
    steps = [below[0].middle - above[0].middle for above, below in pairwise(rows)]
    most = min(LOOSE * median(steps), APART * median(row[0].height for row in rows)) if steps else 0.0
    start, reach = min(row[0].left for row in rows), max(row[-1].right for row in rows)
    text = _row_text(rows[0])
    for step, (above, below) in zip(steps, pairwise(rows), strict=True):
        words = _row_text(below)
        if step > most:
            yield text
            text = words
        elif _has_cells(above) or _has_cells(below) or above[-1].right - start < FULL * (reach - start):
            text += "\n" + words
        elif ITEM.match(words):
            text = f"{text}\n{words}"
        elif BROKEN_WORD.search(text) and words[:1].islower():
            text = text[:-1] + words
        else:
            text = f"{text} {words}"
    yield text


def _row_text(row: Sequence[Line]) -> str:
    return " ".join(line.text for line in row)


def _has_cells(row: Sequence[Line]) -> bool:
    """Tell whether a row has gaps as only tables and forms have them."""
    return any(after.left - before.right > before.height for before, after in pairwise(row))
