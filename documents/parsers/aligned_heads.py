"""Heads of tables without lines: of several lines, and over several columns."""

from collections.abc import Sequence
from itertools import groupby
from math import inf

from documents.parsers.aligned_columns import (
    ROW_GAP,
    covered_columns,
    find_columns,
    line_height,
    row_gaps,
    split_at_gaps,
)
from documents.parsers.rulings import SNAP
from documents.parsers.table_grids import Line, Range, Segment, to_segments

HEAD_LINES, HEAD_GAP = 5, 0.1  # and of a line's height, by which it is further from the rows than its lines are
CENTERED, OFF_CENTER = 4.0, 0.2  # points, or of their width, by which a head may be off the middle of its columns


def heads_above(lines: Sequence[Line], block: list[Line]) -> list[Line]:
    """Return the lines close above a block that stand over columns but the first: the upper lines of its heads."""
    if not lines or not _is_close(lines[-1], block[0]):
        return []
    _, start = part_heads(block)
    columns, heads = find_columns(block[start:]), list[Line]()
    for line in reversed(lines[-HEAD_LINES:]):
        parted = _part_line(line, columns)
        places = [covered_columns(columns, segment) for segment in parted.segments]
        if not _is_close(line, [*heads, block[0]][-1]) or any(len(place) > 1 or place == [0] for place in places):
            break
        if not all(
            _stands_as(segment, columns[place[0]]) for segment, place in zip(parted.segments, places, strict=True)
        ):
            break
        heads.append(parted)
    return heads[::-1]


def _is_close(line: Line, below: Line) -> bool:
    return below.y0 - line.y1 < ROW_GAP * (line.y1 - line.y0)


def part_heads(block: list[Line]) -> tuple[list[Line], int]:
    """Return the block, its first lines parted like the columns below them, which they nearly close, and how many."""
    counts = [len(find_columns(block[start:])) for start in range(min(HEAD_LINES, len(block) - 2))]
    start = counts.index(max(counts)) if counts else 0
    columns = find_columns(block[start:])
    return [*(_part_line(line, columns) for line in block[:start]), *block[start:]], start


def _part_line(line: Line, columns: list[Range]) -> Line:
    """Return the line, segments over several columns parted if each part stands as its column does."""
    segments: list[Segment] = []
    for segment in line.segments:
        words = [word for word in line.words if segment.x0 <= word.box.x0 and word.box.x1 <= segment.x1]
        groups = groupby(words, key=lambda word: covered_columns(columns, Segment(word.box.x0, word.box.x1, word.text)))
        parts = [(covered, to_segments(list(group), inf)[0]) for covered, group in groups]
        is_apart = all(len(covered) == 1 and _stands_as(part, columns[covered[0]]) for covered, part in parts)
        segments += [part for _, part in parts] if is_apart else [segment]
    return line._replace(segments=segments)


def _stands_as(segment: Segment, column: Range) -> bool:
    """Tell whether the segment has the left edge, the right edge or the middle of the column."""
    left, right = segment.x0 - column[0], segment.x1 - column[1]
    return min(abs(left), abs(right), abs(left + right) / 2) < SNAP


def stacked_head(block: list[Line], columns: list[Range]) -> list[Line]:
    """Return the lines above the first row, nothing if they begin with a first cell.

    One of them may have a first cell and no figures: the next such line is further from them than they are apart.
    """
    top = block[: HEAD_LINES + 2]
    labels = [n for n, line in enumerate(top) if line.segments[0].x0 < columns[0][1]]
    if not labels or labels[0] == 0:
        return []
    label, after = labels[0], labels[1] if len(labels) > 1 else len(top) - 1
    has_figures = any(map(str.isdigit, "".join(segment.text for segment in block[label].segments[1:])))
    above = max(top[n].y0 - max(line.y1 for line in top[:n]) for n in range(1, label + 1))
    below = top[after].y0 - max(line.y1 for line in top[:after])
    is_head = not has_figures and below > above + HEAD_GAP * line_height(top)
    return block[: after if is_head else label]


def find_head(block: list[Line], start: int) -> tuple[list[Range], list[Line], list[str]]:
    """Return the columns, and the lines of the head and its cells if it has heads over several columns.

    Such a head may stand over the gap between two columns, or over none of them. ``start``: where all columns are open.
    """
    # Of a head of one line the first cell may stand below it, in the middle.
    below = block[start or (2 if len(block) > 2 and len(block[1].segments) == 1 else 1) :]
    columns = find_columns(below)
    if len(below) < 2 or len(columns) < 3:
        return find_columns(block), [], []
    groups = [split_at_gaps(below, gap)[0] for gap in row_gaps(below)]
    for lower in ([], *groups, below[:1]):
        head = block[: len(block) - len(below) + len(lower)]
        heads = _fill_head(head, columns, may_have_figures=not lower) if len(head) < len(block) else None
        if heads:
            return columns, head, heads
    return (columns if start else find_columns(block)), [], []


def _fill_head(lines: list[Line], columns: list[Range], *, may_have_figures: bool) -> list[str] | None:
    """Return the head, below each head that spans columns that text and its own; None if no head does.

    The head of the first column stands on any line.
    """
    upper, cells = lines[0].segments, _merge_cells(lines[1:], columns)
    if covered_columns(columns, upper[0]) == [0]:
        first, upper = upper[0].text, upper[1:]
    elif 0 in cells and (may_have_figures or not any(map(str.isdigit, "".join(own.text for own in cells.values())))):
        first = cells.pop(0).text
    else:
        return None
    lower = [cells[n] for n in sorted(cells)]
    if sorted(cells) != list(range(1, len(columns))) or not 0 < len(upper) < len(lower):
        return None
    lefts = [next((n for n, own in enumerate(lower) if abs(own.x0 - head.x0) < SNAP), -1) for head in upper]
    if lefts[0] != 0 or -1 in lefts:
        lefts = _centered_heads(upper, lower)
    if not lefts:
        return None
    heads = [sum(left <= n for left in lefts) - 1 for n in range(len(lower))]
    return [first, *(f"{upper[n].text} {own.text}" for n, own in zip(heads, lower, strict=True))]


def _merge_cells(lines: list[Line], columns: list[Range]) -> dict[int, Segment]:
    """Return the text of each column, nothing if a piece of it goes over several."""
    cells: dict[int, Segment] = {}
    for segment in (segment for line in lines for segment in line.segments):
        covered = covered_columns(columns, segment)
        if len(covered) > 1:
            return {}
        above = cells.get(covered[0], Segment(segment.x0, segment.x1, ""))
        text = f"{above.text} {segment.text}".strip()
        cells[covered[0]] = Segment(min(above.x0, segment.x0), max(above.x1, segment.x1), text)
    return cells


def _centered_heads(upper: list[Segment], lower: list[Segment]) -> list[int]:
    """Return where the columns of each head begin, if each stands in the middle of equally many; else nothing."""
    share = len(lower) // len(upper)
    lefts = list(range(0, len(lower), share))
    spans = [(lower[left].x0, lower[min(left + share, len(lower)) - 1].x1) for left in lefts]
    is_centered = len(lefts) == len(upper) and all(
        abs(x0 + x1 - head.x0 - head.x1) < 2 * max(CENTERED, OFF_CENTER * (x1 - x0))
        for (x0, x1), head in zip(spans, upper, strict=True)
    )
    return lefts if is_centered else []
