"""Columns and rows of neighbouring lines of text that have the same white space."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf
from statistics import median

from documents.parsers.table_grids import Line, Range, Segment, join_lines

ROW_GAP = 0.4  # of a line's height; lines of one cell stand closer
ROW_GAP_STEP = 0.1  # of a line's height by which rows are further apart than lines, in tables set closer than that
NARROWEST_GAP = 3.0


def find_columns(lines: Sequence[Line]) -> list[Range]:
    """Return the ranges of x that segments cover, on lines with at least half as many of them as any line."""
    most = max(len(line.segments) for line in lines)
    telling = [line for line in lines if len(line.segments) >= max(2, most / 2)]
    return join_ranges([(segment.x0, segment.x1) for line in telling for segment in line.segments])


def join_ranges(ranges: list[Range]) -> list[Range]:
    """Return the ranges with those that nearly touch made one."""
    joined: list[Range] = []
    start, end = inf, -inf
    for x0, x1 in sorted(ranges):
        if x0 < end + NARROWEST_GAP:
            end = max(end, x1)
            continue
        if end > -inf:
            joined.append((start, end))
        start, end = x0, x1
    return [*joined, (start, end)]


def covered_columns(columns: list[Range], segment: Segment) -> list[int]:
    """Return the columns that the segment overlaps, or the one nearest to it."""
    overlapped = [n for n, (x0, x1) in enumerate(columns) if segment.x0 < x1 and segment.x1 > x0]
    middle = (segment.x0 + segment.x1) / 2
    return overlapped or [min(range(len(columns)), key=lambda n: abs(sum(columns[n]) / 2 - middle))]


def line_height(lines: Sequence[Line]) -> float:
    return median(line.y1 - line.y0 for line in lines)


def row_gaps(block: list[Line]) -> list[float]:
    """Return what may part two rows: the usual gap, and half of the widest step between smaller ones."""
    usual = ROW_GAP * line_height(block)
    gaps = sorted({round(line.y0 - bottom, 1) for line, bottom in zip(block[1:], _bottoms(block), strict=False)})
    step, gap = max(((two - one, (one + two) / 2) for one, two in pairwise(gaps) if two <= usual), default=(0.0, 0.0))
    return [usual, gap] if step > ROW_GAP_STEP * line_height(block) else [usual]


def _bottoms(block: list[Line]) -> Iterator[float]:
    """Return for each line where it and those above it end."""
    return accumulate((line.y1 for line in block), max)


def split_at_gaps(block: list[Line], gap: float) -> list[list[Line]]:
    """Return the lines in groups parted by white space over the whole width."""
    groups = [[block[0]]]
    for line, bottom in zip(block[1:], _bottoms(block), strict=False):
        if line.begins_row or line.y0 - bottom > gap:
            groups.append([line])
        else:
            groups[-1].append(line)
    return groups


def fill_row(lines: list[Line], columns: list[Range]) -> list[str]:
    cells: list[list[str]] = [[] for _ in columns]
    for line in lines:
        for segment in line.segments:
            cells[covered_columns(columns, segment)[0]].append(segment.text)
    return [join_lines(cell) for cell in cells]
