"""Ruled tables of a page, built from its words and ruling lines; what they share with tables without lines.

Coordinates are in points from the page's top left corner.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import NamedTuple

from documents.parsers.rulings import SNAP, TOUCH, Grid, Rule, connect, join_rules

MAX_RULES = 3000  # a page with more is a drawing
MAX_CROSSINGS = 400_000
SHORTEST_RULE = 5.0
MAX_COLUMNS = 30
MAX_CELL_WORDS = 150  # a larger one is a text in a frame
MAX_LISTED_WORDS = 30  # in a grid of one column; more are framed texts
ROWS_BETWEEN, ROW_LINES = 1.6, 6  # of the highest row that is shaded, and of a line's height
STACKED, LETTERS_SHARE = 3, 0.2  # lines; of its words
PARTED = 0.6  # of a line's height, between columns whose edge only other rows have
COLUMN_GAP = 0.85  # of a line's height; a space is a quarter to a third
SMALL_SHARE, SUPERSCRIPT_GAP = 0.9, 0.5  # of the height of the word beside it
SUM_GAP = 8  # of that gap: a currency may stand at the left and its sum at the right
CURRENCIES, UNITS = frozenset("$£€¥"), frozenset((")", "%", ")%"))
NARROW_GAP = 0.5  # of that gap, between columns that nearly touch

_BROKEN = re.compile(r"(?<=[^\W\d_])(-) (?=[^\W\d_])")

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


class UpwardWord(Word):
    """A word that is read from the bottom up."""


class DownwardWord(Word):
    """A word that is read from the top down."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equally many cells; a cell that spans several is repeated in each.

    ``columns``: where the texts of each column stand, of a table without lines. ``title``: that stands within its box.
    ``is_open``: rows of it have columns that no lines part.
    """

    box: Box
    rows: list[list[str]]
    columns: tuple[Range, ...] = ()
    title: str = ""
    is_open: bool = False


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
    words: list[Word]
    begins_row: bool = False  # below a drawn line, or the title of a group of rows


def find_ruled_tables(words: Sequence[Word], rules: list[Box]) -> tuple[list[Table], list[Box]]:
    """Return a table for each grid of lines that touch each other, and the frames: grids of one column."""
    if len(rules) > MAX_RULES:
        return [], []
    across = join_rules([(r.y0, r.x0, r.x1) for r in rules if r.y1 - r.y0 < 1.5 and r.x1 - r.x0 >= SHORTEST_RULE])
    down = join_rules([(r.x0, r.y0, r.y1) for r in rules if r.x1 - r.x0 < 1.5 and r.y1 - r.y0 >= SHORTEST_RULE])
    if len(across) * len(down) > MAX_CROSSINGS:
        return [], []
    grids = _join_stripes(connect(across, down), words)
    tables = (_build_grid(words, *grid) for grid in grids)
    by_area = sorted((table for table in tables if table), key=lambda table: _area(table.box))
    apart = [
        table for index, table in enumerate(by_area) if not any(overlap(table.box, o.box) for o in by_area[:index])
    ]
    frames = [_extent(grid) for grid in grids if not _inner_edges(grid)]
    return apart, sorted(frames, key=_area)


def _join_stripes(grids: list[Grid], words: Sequence[Word]) -> list[Grid]:
    """Return the grids, those of the shaded rows of one table made one with the rows between them and after them."""
    joined: list[Grid] = []
    striped: list[int] = []
    for across, down in sorted(grids, key=lambda grid: _extent(grid).y0):
        box = _extent((across, down))
        for index, above in enumerate(joined):
            upper = _extent(above)
            row = Box(box.x0, upper.y1, box.x1, box.y0)
            if abs(upper.x0 - box.x0) + abs(upper.x1 - box.x1) > TOUCH or not _is_row_between(
                row, above, (across, down)
            ):
                continue
            edges = _row_edges(row, _inner_edges(above) | _inner_edges((across, down)), words)
            if edges:
                sides = [(x, row.y0, row.y1) for x in (row.x0, *edges, row.x1)]
                joined[index] = above[0] + across, above[1] + down + sides
                striped.append(index)
                break
        else:
            joined.append((across, down))
    for index in set(striped):
        joined[index] = _add_last_row(joined[index], words)
    return joined


def _extent(grid: Grid) -> Box:
    across, down = grid
    return Box(
        min(min(x0 for _, x0, _ in across), min(x for x, _, _ in down)),
        min(min(y for y, _, _ in across), min(y0 for _, y0, _ in down)),
        max(max(x1 for _, _, x1 in across), max(x for x, _, _ in down)),
        max(max(y for y, _, _ in across), max(y1 for _, _, y1 in down)),
    )


def _inner_edges(grid: Grid) -> set[float]:
    box = _extent(grid)
    return {x for x, _, _ in grid[1] if box.x0 + TOUCH < x < box.x1 - TOUCH}


def _is_row_between(row: Box, above: Grid, below: Grid) -> bool:
    """Tell whether there is a row's place between two grids: no higher than those that have lines."""
    heights = [y1 - y0 for _, y0, y1 in above[1] + below[1]]
    return SNAP < row.height <= ROWS_BETWEEN * max(heights)


def _row_edges(row: Box, edges: set[float], words: Sequence[Word]) -> list[float]:
    """Return where the cells of a row without lines end, nothing if a word crosses an edge or it is one cell only."""
    inside = [box for _, box in words if row.contains(box.center)]
    if row.height > ROW_LINES * max((box.height for box in inside), default=0.0):
        return []
    if any(box.x0 < x - 1 and box.x1 > x + 1 for box in inside for x in edges):
        return []
    xs = [row.x0, *_cluster(edges), row.x1]
    return xs[1:-1] if len({_place(xs, box.center[0]) for box in inside}) > 1 else []


def _add_last_row(grid: Grid, words: Sequence[Word]) -> Grid:
    box = _extent(grid)
    highest = ROWS_BETWEEN * max(y1 - y0 for _, y0, y1 in grid[1])
    below = sorted(
        (b for _, b in words if box.x0 < b.center[0] < box.x1 and box.y1 < b.center[1] < box.y1 + highest),
        key=lambda b: b.y0,
    )
    end = box.y1
    for each in below:
        if each.y0 - end > 0.5 * each.height:
            break
        end = max(end, each.y1)
    row = Box(box.x0, box.y1, box.x1, end + 1)
    edges = _row_edges(row, _inner_edges(grid), words)
    if not edges:
        return grid
    return [*grid[0], (row.y1, row.x0, row.x1)], grid[1] + [(x, row.y0, row.y1) for x in (row.x0, *edges, row.x1)]


def _build_grid(words: Sequence[Word], across: list[Rule], down: list[Rule]) -> Table | None:
    # A line's ends are edges too: many grids are open at the sides, or below the last row.
    xs = _edges([x for x, _, _ in down], [end for rule in across for end in rule[1:]])
    ys = _edges([y for y, _, _ in across], [end for rule in down for end in rule[1:]])
    columns, rows = len(xs) - 1, len(ys) - 1
    if rows < 2 or not 1 <= columns <= MAX_COLUMNS:
        return None
    cells = _merge_cells(xs, ys, across, down)
    box = Box(xs[0], ys[0], xs[-1], ys[-1])
    inside = [word for word in words if box.contains(word.box.center)]
    contents = _fill_cells(inside, xs, ys, cells)
    between = _lines_between(cells, xs, contents)
    if between:
        across = across + between
        ys = sorted([*ys, *{y for y, _, _ in between}])
        cells = _merge_cells(xs, ys, across, down)
        contents = _fill_cells(inside, xs, ys, cells)
    if any(len(content) > MAX_CELL_WORDS for content in contents.values()):
        return None
    texts = {cell: join_words(list(map(_level, content))) for cell, content in contents.items()}
    is_open = any(_is_parted(cells, xs, cell, content) or _is_stack(content) for cell, content in contents.items())
    return _to_table(box, [[(cell, texts.get(cell, "")) for cell in row] for row in cells], is_open=is_open)


def _fill_cells(words: list[Word], xs: list[float], ys: list[float], cells: list[list[int]]) -> dict[int, list[Word]]:
    contents: dict[int, list[Word]] = defaultdict(list)
    for word in words:
        x, y = word.box.center
        contents[cells[_place(ys, y)][_place(xs, x)]].append(word)
    return contents


def _lines_between(cells: list[list[int]], xs: list[float], contents: dict[int, list[Word]]) -> list[Rule]:
    """Return a rule between the lines of each row that stands for two, with a label and figures on both.

    A cell of one line is of both.
    """
    rules: list[Rule] = []
    rows_of = Counter(cell for row in cells for cell in set(row))
    for row in cells:
        lines = {cell: _cluster(box.y0 for _, box in contents[cell]) for cell in row if cell in contents}
        pairs = [cell for cell in lines if len(lines[cell]) == len(contents[cell]) == 2 and rows_of[cell] == 1]
        figures = [cell for cell in pairs if not any(any(map(str.isalpha, text)) for text, _ in contents[cell])]
        if not 2 <= len(figures) < len(pairs) or any(len(lines[cell]) > 1 for cell in lines if cell not in pairs):
            continue
        upper, lower = zip(*(lines[cell] for cell in pairs), strict=True)
        if max(upper) - min(upper) < SNAP and max(lower) - min(lower) < SNAP:
            middle = (max(lower) + min(box.y1 for cell in pairs for _, box in contents[cell])) / 2
            rules += [(middle, xs[n], xs[n + 1]) for n, cell in enumerate(row) if cell in pairs]
    return rules


def _level(word: Word) -> Word:
    """Return the word where it would stand if the page were turned so that it is read from left to right."""
    x0, y0, x1, y1 = word.box
    if isinstance(word, UpwardWord):
        return Word(word.text, Box(-y1, x0, -y0, x1))
    return Word(word.text, Box(y0, -x1, y1, -x0)) if isinstance(word, DownwardWord) else word


def _is_stack(words: list[Word]) -> bool:
    """Tell whether a cell has several lines with hardly a letter: the figures of rows without lines between them."""
    with_letters = sum(any(map(str.isalpha, text)) for text, _ in words)
    return with_letters <= LETTERS_SHARE * len(words) and len(_cluster(box.y0 for _, box in words)) >= STACKED


def _is_parted(cells: list[list[int]], xs: list[float], cell: int, words: list[Word]) -> bool:
    """Tell whether the words of a cell that spans columns stand apart on both sides of an edge."""
    columns = {column for row in cells for column, each in enumerate(row) if each == cell}
    for edge in (xs[column] for column in columns if column - 1 in columns):
        left = max((box.x1 for _, box in words if box.center[0] < edge), default=inf)
        right = min((box.x0 for _, box in words if box.center[0] >= edge), default=-inf)
        if right - left > PARTED * words[0].box.height:
            return True
    return False


def _to_table(box: Box, grid: list[list[tuple[int, str]]], *, is_open: bool) -> Table | None:
    """Drop what is empty; a cell over all columns, or all but one, stands once, other spanning cells are repeated."""
    rows = []
    for row in grid:
        filled = [(cell, text) for cell, text in row if text]
        if len(filled) >= max(2, len(row) - 1) and len({cell for cell, _ in filled}) == 1:
            rows.append([filled[0][1], *[""] * (len(row) - 1)])
        else:
            rows.append([text for _, text in row])
    # The lower part of a row in which all cells go on is the same row.
    cells = [row for index, row in enumerate(rows) if any(row) and not _continues(grid, index)]
    used = [column for column in range(len(grid[0])) if any(row[column] for row in cells)]
    used = [c for n, c in enumerate(used) if n == 0 or any(row[c] != row[used[n - 1]] for row in grid)]
    cells = [[row[column] for column in used] for row in cells]
    counts = [sum(map(bool, row)) for row in cells]
    is_list = len(used) == 1 and len(cells) >= 3 and all(len(row[0].split()) <= MAX_LISTED_WORDS for row in cells)
    if len(cells) < 2 or not (is_list or (len(used) > 1 and max(counts) > 1 and sum(counts) > 2)):
        return None
    return Table(box, cells, is_open=is_open or len(used) == 1)


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


# What both kinds share.


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
    return [_to_line(group) for group in _join_superscripts(groups)]


def _join_superscripts(groups: list[list[Word]]) -> list[list[Word]]:
    """Return the groups, those of small words that touch words of the neighbouring group made one with it."""
    joined: list[list[Word]] = []
    for group in groups:
        if joined and _double_middle(joined[-1][-1]) > 2 * group[0].box.y0:
            small, large = sorted((joined[-1], group), key=lambda words: words[0].box.height)
            if all(_is_superscript(word, large) for word in small):
                joined[-1] = joined[-1] + group
                continue
        joined.append(group)
    return joined


def _is_superscript(small: Word, words: Sequence[Word]) -> bool:
    """Tell whether the word is smaller than one of the others that it nearly touches."""
    x0, y0, x1, y1 = small.box
    return any(
        y1 - y0 < SMALL_SHARE * box.height
        and box.y0 < (y0 + y1) / 2 < box.y1
        and max(box.x0 - x1, x0 - box.x1) < SUPERSCRIPT_GAP * box.height
        for _, box in words
    )


def _double_middle(word: Word) -> float:
    _, (_, y0, _, y1) = word  # some ten times as fast as the names, for each word of a page
    return y0 + y1


def _to_line(words: list[Word]) -> Line:
    boxes = [box for _, box in words]
    gap = column_gap(words)
    ordered = sorted(words, key=_left)
    top, bottom = min([y0 for _, y0, _, _ in boxes]), max([y1 for _, _, _, y1 in boxes])
    return Line(top, bottom, to_segments(ordered, gap), ordered)


def column_gap(words: Sequence[Word]) -> float:
    """Return the narrowest gap between two columns of a line."""
    return max(COLUMN_GAP * median([y1 - y0 for _, (_, y0, _, y1) in words]), 5.0)


def to_segments(words: Sequence[Word], gap: float, starts: Sequence[float] = ()) -> list[Segment]:
    """Return the words, from left to right, in segments parted by gaps, and by narrower ones before ``starts``."""
    segments: list[Segment] = []
    start, end, texts = words[0].box.x0, -inf, list[str]()
    for text, (x0, _, x1, _) in words:
        is_sum = texts and (texts[-1] in CURRENCIES or text in UNITS) and x0 - end < SUM_GAP * gap
        if is_sum or (x0 - end < gap and not (starts and x0 - end > NARROW_GAP * gap and is_near(x0, starts))):
            texts.append(text)
            end = max(end, x1)
            continue
        if texts:
            segments.append(Segment(start, end, " ".join(texts)))
        start, end, texts = x0, x1, [text]
    segments.append(Segment(start, end, " ".join(texts)))
    return segments


def is_near(value: float, others: Sequence[float]) -> bool:
    """Tell whether one of the others is at the same place."""
    return any(abs(value - other) < SNAP for other in others)


def _left(word: Word) -> float:
    return word[1][0]


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
    return join_lines(segment.text for line in group_lines(words) for segment in line.segments)


def join_lines(texts: Iterable[str]) -> str:
    """Return the lines of a cell as one, without a space after a word that is broken at its hyphen."""
    return _BROKEN.sub(r"\1", " ".join(texts))


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
