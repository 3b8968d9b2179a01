"""Tables of a page, built from its words and ruling lines: ruled grids, then columns of aligned words.

Coordinates are in points from the page's top left corner.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from statistics import fmean, median
from typing import NamedTuple

MAX_RULES = 3000  # a page with more is a drawing
MAX_CROSSINGS = 400_000
MAX_LINES = 400
SNAP = 2.5  # two edges of a drawn line, or two drawn lines that meet
TOUCH = 3.0
SHORTEST_RULE = 5.0
MAX_COLUMNS = 30
MAX_CELL_WORDS = 150  # a larger one is a text in a frame
MAX_LISTED_WORDS = 30  # in a grid of one column; more are framed texts
COLUMN_GAP = 0.85  # of a line's height; a space is a quarter to a third
ROW_GAP = 0.4  # of a line's height; lines of one cell stand closer
BLOCK_GAP = 2.4
FULL_ROWS_SHARE = 0.7
TORN_SHARE, TORN_PAIRS_SHARE = 0.2, 0.1  # of the cells; in two columns text is more likely than a table
WRAPPED_LINES = 1.5
NARROWEST_GAP = 3.0
PROSE_CHARS = 20  # of a line; words would be few in Korean, none in Chinese
ALIGNED_SHARE = 0.6
_MARKER = re.compile(r"[^\w\s]|[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)\]]\.?|o")
_BULLET = re.compile(r"[•◦▪■·●\uf000-\uf8ff\s]+")
_NO_CELL = re.compile(r"\.{4,}|(?:\. ){3,}|\\[a-z]+|\^\{|_\{")  # dot leaders, formulas

Range = tuple[float, float]


class Box(NamedTuple):
    """A rectangle, or a line if it has no width or no height."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def center(self) -> tuple[float, float]:
        """Return the middle point."""
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    @property
    def height(self) -> float:
        """Return the height."""
        return self.y1 - self.y0

    def contains(self, point: tuple[float, float], margin: float = 0.0) -> bool:
        """Tell whether the point lies within."""
        x, y = point
        return self.x0 - margin <= x <= self.x1 + margin and self.y0 - margin <= y <= self.y1 + margin


class Word(NamedTuple):
    """A word and the place of it."""

    text: str
    box: Box


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equally many cells; a cell that spans several is repeated in each."""

    box: Box
    rows: list[list[str]]


class Segment(NamedTuple):
    """Words of one line that stand close together."""

    x0: float
    x1: float
    text: str


class Line(NamedTuple):
    """Words at one height, in segments from left to right."""

    y0: float
    y1: float
    segments: list[Segment]


def find_tables(words: Sequence[Word], rules: Iterable[Box]) -> list[Table]:
    """Return the ruled tables and, in the words outside of them, the aligned ones."""
    ruled = find_ruled_tables(words, list(rules))
    rest = [word for word in words if not any(table.box.contains(word.box.center) for table in ruled)]
    aligned = [table for table in find_aligned_tables(rest) if not any(overlap(table.box, each.box) for each in ruled)]
    return ruled + aligned


# Ruled tables.


def find_ruled_tables(words: Sequence[Word], rules: list[Box]) -> list[Table]:
    """Return a table for each grid of lines that touch each other."""
    if len(rules) > MAX_RULES:
        return []
    across = _join_rules([(r.y0, r.x0, r.x1) for r in rules if r.y1 - r.y0 < 1.5 and r.x1 - r.x0 >= SHORTEST_RULE])
    down = _join_rules([(r.x0, r.y0, r.y1) for r in rules if r.x1 - r.x0 < 1.5 and r.y1 - r.y0 >= SHORTEST_RULE])
    if len(across) * len(down) > MAX_CROSSINGS:
        return []
    tables = (_build_grid(words, *grid) for grid in _connect(across, down))
    found = sorted((table for table in tables if table), key=lambda table: _area(table.box))
    return [table for index, table in enumerate(found) if not any(overlap(table.box, o.box) for o in found[:index])]


Rule = tuple[float, float, float]  # its place on one axis, and from where to where on the other


def _join_rules(rules: list[Rule]) -> list[Rule]:
    """Return the lines with those at one place that overlap or meet made one."""
    joined: list[list[float]] = []
    open_: list[list[float]] = []
    for place, start, end in sorted(rules):
        open_ = [rule for rule in open_ if place - rule[3] <= SNAP]
        for rule in open_:
            if start <= rule[2] + TOUCH and end >= rule[1] - TOUCH:
                rule[1:] = [min(rule[1], start), max(rule[2], end), place]
                break
        else:
            open_.append([place, start, end, place])
            joined.append(open_[-1])
    return [((first + last) / 2, start, end) for first, start, end, last in joined]


def _connect(across: list[Rule], down: list[Rule]) -> list[tuple[list[Rule], list[Rule]]]:
    """Return the lines across and down of each connected grid."""
    parents = list(range(len(across) + len(down)))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for index, (y, x0, x1) in enumerate(across):
        for other, (x, y0, y1) in enumerate(down, start=len(across)):
            if x0 - TOUCH <= x <= x1 + TOUCH and y0 - TOUCH <= y <= y1 + TOUCH:
                parents[root(index)] = root(other)
    grids: dict[int, tuple[list[Rule], list[Rule]]] = defaultdict(lambda: ([], []))
    for index, rule in enumerate(across + down):
        grids[root(index)][index >= len(across)].append(rule)
    return [grid for grid in grids.values() if all(grid)]


def _build_grid(words: Sequence[Word], across: list[Rule], down: list[Rule]) -> Table | None:
    # A line's ends are edges too: many grids are open at the sides, or below the last row.
    xs = _edges([x for x, _, _ in down], [end for rule in across for end in rule[1:]])
    ys = _edges([y for y, _, _ in across], [end for rule in down for end in rule[1:]])
    columns, rows = len(xs) - 1, len(ys) - 1
    if rows < 2 or not 1 <= columns <= MAX_COLUMNS:
        return None
    cells = _merge_cells(xs, ys, across, down)
    box = Box(xs[0], ys[0], xs[-1], ys[-1])
    contents: dict[int, list[Word]] = defaultdict(list)
    for word in words:
        if box.contains(word.box.center):
            contents[cells[_place(ys, word.box.center[1])][_place(xs, word.box.center[0])]].append(word)
    if any(len(content) > MAX_CELL_WORDS for content in contents.values()):
        return None
    texts = {cell: join_words(content) for cell, content in contents.items()}
    return _to_table(box, [[(cell, texts.get(cell, "")) for cell in row] for row in cells])


def _to_table(box: Box, grid: list[list[tuple[int, str]]]) -> Table | None:
    """Drop what is empty; a cell over all columns, or all but one, stands once, other spanning cells are repeated."""
    rows = []
    for row in grid:
        filled = [(cell, text) for cell, text in row if text]
        if len(filled) >= max(2, len(row) - 1) and len({cell for cell, _ in filled}) == 1:
            rows.append([filled[0][1], *[""] * (len(row) - 1)])
        else:
            rows.append([text for _, text in row])
    # The lower part of a row in which all cells go on is the same row.
    kept = [row for index, row in enumerate(rows) if any(row) and not _continues(grid, index)]
    used = [column for column in range(len(grid[0])) if any(row[column] for row in kept)]
    used = [c for n, c in enumerate(used) if n == 0 or any(row[c] != row[used[n - 1]] for row in grid)]
    kept = [[row[column] for column in used] for row in kept]
    counts = [sum(map(bool, row)) for row in kept]
    is_list = len(used) == 1 and len(kept) >= 3 and all(len(row[0].split()) <= MAX_LISTED_WORDS for row in kept)
    if len(kept) < 2 or not (is_list or (len(used) > 1 and max(counts) > 1 and sum(counts) > 2)):
        return None
    return Table(box, kept)


def _continues(grid: list[list[tuple[int, str]]], index: int) -> bool:
    return index > 0 and [cell for cell, _ in grid[index]] == [cell for cell, _ in grid[index - 1]]


def _merge_cells(xs: list[float], ys: list[float], across: list[Rule], down: list[Rule]) -> list[list[int]]:
    """Return for each place of the grid the number of its cell: places without a line between them share one."""
    columns, rows = len(xs) - 1, len(ys) - 1
    cells = [[row * columns + column for column in range(columns)] for row in range(rows)]
    for row in range(rows):
        for column in range(columns):
            if column and not _is_ruled(down, xs[column], ys[row], ys[row + 1]):
                cells[row][column] = cells[row][column - 1]
    for row in range(1, rows):
        for column in range(columns):
            if not _is_ruled(across, ys[row], xs[column], xs[column + 1]):
                _merge_down(cells, row, column)
    return cells


def _merge_down(cells: list[list[int]], row: int, column: int) -> None:
    """Give a cell the number of the one above if both are equally wide."""
    own, above = cells[row][column], cells[row - 1][column]
    if [cell == own for cell in cells[row]] == [cell == above for cell in cells[row - 1]]:
        cells[row] = [above if cell == own else cell for cell in cells[row]]


def _is_ruled(rules: list[Rule], place: float, start: float, end: float) -> bool:
    covered = sum(
        max(0.0, min(end, rule_end) - max(start, rule_start))
        for position, rule_start, rule_end in rules
        if abs(position - place) <= SNAP + 1
    )
    return covered >= 0.5 * (end - start)


def _edges(lines: list[float], ends: list[float]) -> list[float]:
    edges = _cluster(lines)
    outer = [end for end in (min(ends), max(ends)) if all(abs(end - edge) > 2 * TOUCH for edge in edges)]
    return sorted(edges + outer)


def _cluster(values: Iterable[float]) -> list[float]:
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][-1] <= SNAP:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [fmean(group) for group in groups]


def _place(edges: list[float], value: float) -> int:
    return min(max(sum(value > edge for edge in edges) - 1, 0), len(edges) - 2)


# Aligned tables.


def find_aligned_tables(words: Sequence[Word]) -> list[Table]:
    """Return tables without lines: neighbouring lines of text with the same columns of white space."""
    lines = group_lines(words)
    if len(lines) > MAX_LINES:
        return []
    tables: list[Table] = []
    index = 0
    while index < len(lines):
        block = _grow_block(lines, index)
        table = _build_aligned(block) if len(block) > 1 else None
        if table:
            tables.append(table)
        # What follows the first line of a column of prose is prose as well.
        index += len(block) if table or (len(block) > 1 and _is_prose(block, _columns(block))) else 1
    return tables


def group_lines(words: Sequence[Word]) -> list[Line]:
    """Return the words as lines from top to bottom, each in segments parted by wide gaps."""
    groups: list[list[Word]] = []
    last_middle = last_height = 0.0
    for word in sorted(words, key=_double_middle):
        _, (_, y0, _, y1) = word
        middle, height = (y0 + y1) / 2, y1 - y0
        if groups and middle - last_middle <= 0.3 * min(height, last_height):
            groups[-1].append(word)
        else:
            groups.append([word])
        last_middle, last_height = middle, height
    return [_to_line(group) for group in groups]


def _double_middle(word: Word) -> float:
    _, (_, y0, _, y1) = word  # some ten times as fast as the names, for each word of a page
    return y0 + y1


def _to_line(words: list[Word]) -> Line:
    boxes = [box for _, box in words]
    gap = max(COLUMN_GAP * median([y1 - y0 for _, y0, _, y1 in boxes]), 5.0)
    segments: list[Segment] = []
    start, end, texts = boxes[0].x0, -inf, list[str]()
    for text, (x0, _, x1, _) in sorted(words, key=_left):
        if x0 - end < gap:
            texts.append(text)
            end = max(end, x1)
            continue
        if texts:
            segments.append(Segment(start, end, " ".join(texts)))
        start, end, texts = x0, x1, [text]
    segments.append(Segment(start, end, " ".join(texts)))
    return Line(min([y0 for _, y0, _, _ in boxes]), max([y1 for _, _, _, y1 in boxes]), segments)


def _left(word: Word) -> float:
    return word[1][0]


def _grow_block(lines: list[Line], start: int) -> list[Line]:
    """Return the lines from ``start`` on that leave at least two columns apart."""
    block = [lines[start]]
    if len(lines[start].segments) < 2:
        return block
    for line in lines[start + 1 :]:
        if line.y0 - max(each.y1 for each in block[-3:]) > BLOCK_GAP * (line.y1 - line.y0):
            break
        columns = _columns([*block, line])
        spanning = sum(len(_covered(columns, segment)) > 1 for segment in line.segments)
        if len(columns) < 2 or spanning > (0 if len(line.segments) == 1 else len(line.segments) / 2):
            break
        block.append(line)
    while len(block) > 1 and len(block[-1].segments) < 2 and block[-1].y0 - block[-2].y1 > ROW_GAP * _height(block):
        block.pop()
    return block


def _height(lines: Sequence[Line]) -> float:
    return median(line.y1 - line.y0 for line in lines)


def _columns(lines: Sequence[Line]) -> list[Range]:
    """Return the ranges of x that segments cover, on lines with at least half as many of them as any line."""
    most = max(len(line.segments) for line in lines)
    telling = [line for line in lines if len(line.segments) >= max(2, most / 2)]
    columns: list[list[float]] = []
    for x0, x1 in sorted((segment.x0, segment.x1) for line in telling for segment in line.segments):
        if columns and x0 < columns[-1][1] + NARROWEST_GAP:
            columns[-1][1] = max(columns[-1][1], x1)
        else:
            columns.append([x0, x1])
    return [(x0, x1) for x0, x1 in columns]


def _covered(columns: list[Range], segment: Segment) -> list[int]:
    """Return the columns that the segment overlaps, or the one nearest to it."""
    overlapped = [n for n, (x0, x1) in enumerate(columns) if segment.x0 < x1 and segment.x1 > x0]
    middle = (segment.x0 + segment.x1) / 2
    return overlapped or [min(range(len(columns)), key=lambda n: abs(sum(columns[n]) / 2 - middle))]


def _build_aligned(block: list[Line]) -> Table | None:
    columns = _columns(block)
    if not 2 <= len(columns) <= MAX_COLUMNS:
        return None
    apart = _split_at_gaps(block)
    has_gaps = _are_rows(apart, columns)
    rows = [_fill_row(lines, columns) for lines in (apart if has_gaps else _split_at_first_cells(block, columns))]
    # Loosely set text stands apart line by line; rows of so much text would wrap.
    is_prose = _is_prose(block, columns)
    has_gaps = has_gaps and not (is_prose and len(block) < WRAPPED_LINES * len(rows))
    if not _is_table(rows) or (is_prose and not has_gaps) or ((is_prose or not has_gaps) and _are_torn(rows)):
        return None
    if not all(_is_aligned(block, column) for column in columns):
        return None
    box = Box(columns[0][0], block[0].y0, max(s.x1 for line in block for s in line.segments), max(b.y1 for b in block))
    return Table(box, join_wrapped(rows))


def _split_at_gaps(block: list[Line]) -> list[list[Line]]:
    """Return the lines in groups parted by white space over the whole width."""
    gap = ROW_GAP * _height(block)
    groups = [[block[0]]]
    bottoms = accumulate((line.y1 for line in block), max)
    for line, bottom in zip(block[1:], bottoms, strict=False):
        if line.y0 - bottom > gap:
            groups.append([line])
        else:
            groups[-1].append(line)
    return groups


def _are_rows(groups: list[list[Line]], columns: list[Range]) -> bool:
    """Tell whether the groups begin like rows: most of the columns side by side. Paragraphs in columns do not."""
    if len(groups) < 3:
        return False
    starts = [
        len({n for line in _first_lines(group) for s in line.segments for n in _covered(columns, s)})
        for group in groups
    ]
    full = sum(start >= max(2, 0.6 * len(columns)) for start in starts)
    return full >= FULL_ROWS_SHARE * len(groups)


def _first_lines(group: list[Line]) -> list[Line]:
    """Return the first line and those beside it: a cell of one line may stand in the middle of its row."""
    if all(len(line.segments) == 1 for line in group):
        return group[:1]
    return [line for line in group if line.y0 < group[0].y1]


def _split_at_first_cells(block: list[Line], columns: list[Range]) -> list[list[Line]]:
    """Return a row for each line with a first cell, together with the lines below it that have none."""
    groups = [[block[0]]]
    for above, line in pairwise(block):
        begins = line.segments[0].x0 < columns[0][1] and (len(line.segments) > 1 or len(above.segments) == 1)
        if begins and line.y0 >= above.y1 - 0.3 * (line.y1 - line.y0):
            groups.append([line])
        else:
            groups[-1].append(line)
    return groups


def _fill_row(lines: list[Line], columns: list[Range]) -> list[str]:
    cells: list[list[str]] = [[] for _ in columns]
    for line in lines:
        for segment in line.segments:
            cells[_covered(columns, segment)[0]].append(segment.text)
    return [" ".join(cell) for cell in cells]


def _is_table(rows: list[list[str]]) -> bool:
    """Tell a table from a list with hanging marks and from a table of contents."""
    filled = [sum(map(bool, row)) for row in rows]
    is_short = len(rows) == 2 and len(rows[0]) >= 4 and min(filled) == len(rows[0])
    if not is_short and (len(rows) < 3 or sum(count >= 2 for count in filled) < 3):
        return False
    if sum(filled) < 0.5 * len(rows) * len(rows[0]):
        return False
    if len(rows[0]) == 2 and all(_MARKER.fullmatch(row[0]) for row in rows if row[0]):
        return False
    by_column = [[row[n] for row in rows if row[n]] for n in range(len(rows[0]))]
    bullets = (sum(bool(_BULLET.fullmatch(cell)) for cell in column) >= 0.5 * len(column) for column in by_column)
    if any(bullets) or _is_contents(by_column):
        return False
    return sum(bool(_NO_CELL.search(" ".join(row))) for row in rows) <= 0.3 * len(rows)


def _is_contents(columns: list[list[str]]) -> bool:
    """Tell whether the second of two columns has page numbers."""
    numbers = " ".join(columns[1]).split() if len(columns) == 2 else []
    pages = [int(number) for number in numbers if number.isascii() and number.isdigit() and len(number) < 5]
    return len(pages) >= 3 and len(pages) >= 0.9 * len(numbers) and pages == sorted(pages)


def _is_prose(block: list[Line], columns: list[Range]) -> bool:
    """Tell whether two columns or more have lines of text."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for line in block:
        for segment in line.segments:
            lengths[_covered(columns, segment)[0]].append(len(segment.text))
    return sum(median(each) >= PROSE_CHARS for each in lengths.values()) >= 2


def _are_torn(rows: list[list[str]]) -> bool:
    """Tell whether many cells begin in the middle of a sentence."""
    cells = [cell for row in rows for cell in row if cell]
    most = TORN_SHARE if len(rows[0]) > 2 else TORN_PAIRS_SHARE
    return sum(cell[0].islower() for cell in cells) > most * len(cells)


def _is_aligned(block: list[Line], column: Range) -> bool:
    """Tell whether most segments of the column share their left edge, right edge or middle."""
    inside = [s for line in block for s in line.segments if column[0] - 0.1 <= s.x0 and s.x1 <= column[1] + 0.1]
    edges = ([s.x0 for s in inside], [s.x1 for s in inside], [(s.x0 + s.x1) / 2 for s in inside])
    return bool(inside) and any(_most_common_share(values) >= ALIGNED_SHARE for values in edges)


def _most_common_share(values: list[float]) -> float:
    counts = Counter(round(value / 3) for value in values)
    return max(counts[place] + counts[place + 1] for place in list(counts)) / len(values)


# What both kinds share.


def join_wrapped(rows: list[list[str]]) -> list[list[str]]:
    """Append to the row above what goes on in lower case and leaves cells empty, below cells that have text."""
    joined: list[list[str]] = []
    for row in rows:
        filled = [n for n, cell in enumerate(row) if cell]
        goes_on = len(joined) > 1 and 0 < len(filled) < len(row) and all(row[n][0].islower() for n in filled)
        if goes_on and all(joined[-1][n] for n in filled) and not joined[-1][filled[0]][0].islower():
            joined[-1] = [f"{above} {cell}".strip() for above, cell in zip(joined[-1], row, strict=True)]
        else:
            joined.append(row)
    return joined


def join_words(words: Sequence[Word]) -> str:
    """Return the text of the words, line by line."""
    return " ".join(segment.text for line in group_lines(words) for segment in line.segments)


def bounds(boxes: Sequence[Box]) -> Box:
    """Return the smallest rectangle around them."""
    return Box(
        min(box.x0 for box in boxes),
        min(box.y0 for box in boxes),
        max(box.x1 for box in boxes),
        max(box.y1 for box in boxes),
    )


def _area(box: Box) -> float:
    return (box.x1 - box.x0) * (box.y1 - box.y0)


def overlap(one: Box, other: Box) -> bool:
    """Tell whether two rectangles have points in common."""
    return one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1
