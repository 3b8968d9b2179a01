"""Tables without lines: neighbouring lines of a page's text with the same columns of white space."""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from statistics import median

from documents.parsers.aligned_columns import (
    NARROWEST_GAP,
    ROW_GAP,
    covered_columns,
    fill_row,
    find_columns,
    join_ranges,
    line_height,
    row_gaps,
    split_at_gaps,
)
from documents.parsers.aligned_heads import find_head, heads_above, part_heads, stacked_head
from documents.parsers.rulings import SNAP
from documents.parsers.table_checks import LIST_MARKER, are_torn, has_figures, is_table
from documents.parsers.table_grids import (
    MAX_COLUMNS,
    NARROW_GAP,
    Box,
    Line,
    Range,
    Segment,
    Table,
    Word,
    column_gap,
    group_lines,
    is_near,
    join_lines,
    join_wrapped,
    to_segments,
)

MAX_LINES = 400
BLOCK_GAP = 2.4
BESIDE = 0.3  # of a line's height that a heading has in common with it
SPACE_STRETCH, WORDY = 1.8, 5  # a gap between columns, of a space in lines of so many words
CELL_GAP, OFF_ROWS = 0.12, 2.0  # of a line's height, between lines of a cell; points from the middle of rows
GROUP_GAP, LARGE = 1.2, 1.1  # of the height of a line: the space around a group's heading, and that heading
LINES_NEAR, CELLS_NEAR = 6, 3  # above and below a line, and of them with a gap between two columns at one place
FULL_ROWS_SHARE, STARTED_SHARE = 0.7, 0.6  # of the rows, and of the columns that begin in one
WRAPPED_LINES = 1.5
PROSE_CHARS = 20  # of a line; words would be few in Korean, none in Chinese
PROSE_LINES, WIDE_SHARE = 3, 0.75  # in a column of text, and how much of its width they take
ALIGNED_SHARE = 0.6


def find_aligned_tables(words: Sequence[Word], headings: Sequence[Box] = (), rules: Sequence[Box] = ()) -> list[Table]:
    """Return the tables without lines down; none goes across a heading that stands alone on its line."""
    lines = _mark_ruled(group_lines(words), rules)
    if len(lines) > MAX_LINES:
        return []
    columns = _split_text_columns(lines)
    if columns:
        return [table for part in columns for table in find_aligned_tables(part, headings, rules)]
    rows = [line for line in lines if len(line.segments) > 1]
    headings = [box for box in headings if not any(_is_beside(line, box) for line in rows)]
    parts: list[list[Line]] = [[]]
    for index, line in enumerate(lines):
        if not _is_heading(line, headings):
            parts[-1].append(line)
        elif _is_group(lines, index):
            parts[-1].append(line._replace(begins_row=True))
        else:
            parts.append([])
    return [
        half
        for part in parts
        for table in _find_in(_part_segments(part))
        for one in _split_titled(table)
        for half in _split_twins(one)
    ]


def _mark_ruled(lines: list[Line], rules: Sequence[Box]) -> list[Line]:
    """Return the lines, marked those below a drawn line that is as wide as they are."""
    middles = [(line.y0 + line.y1) / 2 for line in lines]
    for rule in rules:
        index = bisect(middles, rule.y0)
        if 0 < index < len(lines) and rule.y1 - rule.y0 < SNAP:
            segments = lines[index].segments
            if rule.x0 < segments[0].x0 + SNAP and rule.x1 > segments[-1].x0:
                lines[index] = lines[index]._replace(begins_row=True)
    return lines


def _split_titled(table: Table) -> list[Table]:
    """Return a table for each title in the first row, where each is over heads of its own and labels."""
    if len(table.rows) < 4 or not all(table.rows[1]):
        return [table]
    starts = [n for n, cell in enumerate(table.rows[0]) if cell]
    ends = [*starts[1:], len(table.columns)]
    is_titled = len(starts) > 1 and starts[0] == 0 and min(end - n for n, end in zip(starts, ends, strict=True)) > 1
    labels = [row[n] for row in table.rows[1:] for n in starts if row[n]]
    if not is_titled or not all(label[0].isalpha() for label in labels):
        return [table]
    return [_take_columns(table, n, end, title=table.rows[0][n]) for n, end in zip(starts, ends, strict=True)]


def _split_twins(table: Table) -> list[Table]:
    """Return a table for each part that has the heads, or the labels below them, of the first one."""
    heads, *body = table.rows
    count = len(table.columns)
    for width in (width for width in range(2, count // 2 + 1) if count % width == 0):
        starts = range(0, count, width)
        same_heads = all(heads[n : n + width] == heads[:width] for n in starts) and len(set(heads[:width])) == width
        same_labels = len(body) > 1 and all(row[n] == row[0] and row[0][:1].isalpha() for row in body for n in starts)
        if all(heads) and (same_heads or same_labels):
            return [_take_columns(table, n, n + width) for n in starts]
    return [table]


def _take_columns(table: Table, start: int, end: int, *, title: str = "") -> Table:
    box = table.box._replace(x0=table.columns[start][0], x1=table.columns[end - 1][1])
    rows = [row[start:end] for row in table.rows[bool(title) :] if any(row[start:end])]
    return Table(box, rows, table.columns[start:end], title)


def _split_text_columns(lines: Sequence[Line]) -> list[list[Word]]:
    """Return the words of a page with columns of text, one of them with a table: above, on either side, below.

    Nothing if there are no such columns.
    """
    pairs = [pair for line in lines for pair in pairwise(line.segments) if min(map(_length, pair)) >= PROSE_CHARS]
    if len(pairs) < PROSE_LINES:
        return []
    edge = Counter(round(right.x0) for _, right in pairs).most_common(1)[0][0] - 1.0
    for is_crossed, group in groupby(lines, key=lambda line: _crosses(line, edge)):
        run = list(group)
        if is_crossed or not _has_rows(run, edge):
            continue
        sides = [
            [word for line in run for word in line.words if (word.box.x0 > edge) == side] for side in (False, True)
        ]
        if all(sides) and not _have_common_rows(run) and _are_text_columns([group_lines(side) for side in sides]):
            first, last = lines.index(run[0]), lines.index(run[-1])
            above, below = (
                [word for line in part for word in line.words] for part in (lines[:first], lines[last + 1 :])
            )
            return [part for part in (above, *sides, below) if part]
    return []


def _has_rows(lines: Sequence[Line], edge: float) -> bool:
    """Tell whether several lines have cells on one side of the edge."""
    right = [sum([segment.x0 > edge for segment in line.segments]) for line in lines]
    left = [len(line.segments) - count for line, count in zip(lines, right, strict=True)]
    return any(sum([count > 1 for count in counts]) >= PROSE_LINES for counts in (left, right))


def _have_common_rows(lines: list[Line]) -> bool:
    """Tell whether gaps over the whole width part rows: long texts in the columns of one table."""
    columns = find_columns(lines)
    return any(_are_rows(split_at_gaps(lines, gap), columns, least_share=1.0) for gap in row_gaps(lines))


def _length(segment: Segment) -> int:
    return len(segment.text)


def _crosses(line: Line, x: float) -> bool:
    return any(segment.x0 < x < segment.x1 for segment in line.segments)


def _are_text_columns(sides: Sequence[Sequence[Line]]) -> bool:
    """Tell whether each side has lines of text as wide as it is: cells are less wide."""
    for lines in sides:
        width = max(line.segments[-1].x1 for line in lines) - min(line.segments[0].x0 for line in lines)
        full = [
            line
            for line in lines
            if len(line.segments) == 1
            and len(line.segments[0].text) >= PROSE_CHARS
            and line.segments[0].x1 - line.segments[0].x0 >= WIDE_SHARE * width
        ]
        if len(full) < PROSE_LINES:
            return False
    return True


def _part_segments(lines: Sequence[Line]) -> list[Line]:
    """Return the lines, their segments parted at narrow gaps that several lines have at one place."""
    spaces = [_spaces(line) for line in lines]
    of_wordy = [gap for each in spaces if len(each) >= WORDY - 1 for gap in each]
    least = SPACE_STRETCH * median(of_wordy) if of_wordy else 0.0
    gaps = [
        _gaps(line, max(NARROW_GAP * column_gap(line.words), least)) if max(each, default=0.0) > least else []
        for line, each in zip(lines, spaces, strict=True)
    ]
    parted = list(lines)
    for index, line in enumerate(lines):
        if not gaps[index]:
            continue
        near = range(max(0, index - LINES_NEAR), min(len(lines), index + LINES_NEAR + 1))
        starts = [
            gap[1]
            for gap in gaps[index]
            if gap[1] - gap[0] < column_gap(line.words)
            and sum(n != index and any(_are_one(gap, other) for other in gaps[n]) for n in near) >= CELLS_NEAR
            and sum(any(_crosses_gap(word, gap) for word in lines[n].words) for n in near) <= CELLS_NEAR
        ]
        if starts:
            parted[index] = line._replace(segments=to_segments(line.words, column_gap(line.words), starts))
    return parted


def _spaces(line: Line) -> list[float]:
    return [two.x0 - one.x1 for (_, one), (_, two) in pairwise(line.words)]


def _gaps(line: Line, least: float) -> list[Range]:
    """Return the gaps between the words of a line that are no mere spaces, but for one after the mark of a list."""
    texts = accumulate(word.text for word in line.words)
    return [
        (one.x1, two.x0)
        for text, ((_, one), (_, two)) in zip(texts, pairwise(line.words), strict=False)
        if two.x0 - one.x1 > least and not LIST_MARKER.fullmatch(text)
    ]


def _are_one(gap: Range, other: Range) -> bool:
    """Tell whether two gaps part the same columns: their texts begin, or end, at one place."""
    overlap = min(gap[1], other[1]) > max(gap[0], other[0])
    return overlap and (abs(gap[1] - other[1]) < SNAP or abs(gap[0] - other[0]) < SNAP)


def _crosses_gap(word: Word, gap: Range) -> bool:
    return word.box.x0 < gap[0] and word.box.x1 > gap[1]


def _is_beside(line: Line, heading: Box) -> bool:
    """Tell whether the line goes through a heading, which then is the wrapped head of a column."""
    return min(line.y1, heading.y1) - max(line.y0, heading.y0) > BESIDE * (line.y1 - line.y0)


def _is_heading(line: Line, headings: Sequence[Box]) -> bool:
    segment = line.segments[0]
    place = (segment.x0 + segment.x1) / 2, (line.y0 + line.y1) / 2
    return len(line.segments) == 1 and any(heading.contains(place) for heading in headings)


def _is_group(lines: Sequence[Line], index: int) -> bool:
    """Tell whether a heading stands in a table, above some of its rows: between two rows with the same columns."""
    if not 0 < index < len(lines) - 1:
        return False
    above, line, below = lines[index - 1 : index + 2]
    height = line.y1 - line.y0
    is_close = line.y0 - above.y1 < GROUP_GAP * height and below.y0 - line.y1 < GROUP_GAP * height
    is_large = height > LARGE * min(above.y1 - above.y0, below.y1 - below.y0)
    if is_large or not is_close or min(len(above.segments), len(below.segments)) < 2:
        return False
    starts = [segment.x0 for segment in above.segments]
    return abs(line.segments[0].x0 - starts[0]) < SNAP and all(
        is_near(segment.x0, starts) for segment in below.segments
    )


def _find_in(lines: Sequence[Line]) -> list[Table]:
    tables: list[Table] = []
    index = 0
    while index < len(lines):
        block = _grow_block(lines, index)
        if (
            len(block) > 3
            and _stands_apart(block[0], columns := find_columns(block[1:]))
            and not _is_prose(block, columns)
        ):
            index += 1
            continue
        above = heads_above(lines[:index], block) if len(block) > 1 else []
        table = _build_aligned(above + block, has_heads_above=bool(above)) if len(block) > 1 else None
        if table:
            tables.append(table)
        # What follows the first line of a column of prose is prose as well.
        index += len(block) if table or (len(block) > 1 and _is_prose(block, find_columns(block))) else 1
    return tables


def _stands_apart(line: Line, columns: list[Range]) -> bool:
    """Tell whether few words, a running header, are above many columns and beside them."""
    return 2 * len(line.segments) < len(columns) and any(
        segment.x0 > columns[-1][1] or segment.x1 < columns[0][0] for segment in line.segments
    )


def _is_note(line: Line, columns: list[Range]) -> bool:
    """Tell whether the line is a mark and a text that goes from the first column into others."""
    return len(line.segments) == 2 and {0, 1}.issubset(covered_columns(columns, line.segments[1]))


def _grow_block(lines: Sequence[Line], start: int) -> list[Line]:
    """Return the lines from ``start`` on that leave at least two columns apart."""
    block = [lines[start]]
    most = len(lines[start].segments)
    if most < 2:
        return block
    before = find_columns(block)
    for line in lines[start + 1 :]:
        if line.y0 - max([each.y1 for each in block[-3:]]) > BLOCK_GAP * (line.y1 - line.y0):
            break
        if len(block) > 2 and _is_note(line, before):
            break
        count = len(line.segments)
        if count > most:
            columns = find_columns([*block, line])
        elif count >= max(2, most / 2):
            columns = join_ranges([*before, *((segment.x0, segment.x1) for segment in line.segments)])
        else:
            columns = before
        spanning = sum(len(covered_columns(columns, segment)) > 1 for segment in line.segments)
        if len(columns) < 2 or spanning > (0 if len(line.segments) == 1 else len(line.segments) / 2):
            break
        block.append(line)
        before, most = columns, max(most, count)
    while (
        len(block) > 1
        and len(block[-1].segments) < 2
        and (
            block[-1].y0 - block[-2].y1 > ROW_GAP * line_height(block)
            or _begins_label(block[-2], block[-1], None, find_columns(block)[0])
        )
    ):
        block.pop()
    return block


def _build_aligned(block: list[Line], *, has_heads_above: bool = False) -> Table | None:
    block, start = part_heads(block)
    columns, head, heads = find_head(block, start)
    if not 2 <= len(columns) <= MAX_COLUMNS:
        return None
    gap = next((gap for gap in row_gaps(block) if _are_rows(split_at_gaps(block, gap), columns)), None)
    has_gaps, is_prose = gap is not None, _is_prose(block, columns)
    if is_prose and not has_gaps:  # columns of text, as most blocks are
        return None
    spread = None if head else _spread_labels(block, columns)
    if not spread and (has_heads_above or not head):
        head = stacked_head(block, columns)
        heads = fill_row(head, columns)
    body = block[len(head) :]
    if gap is None:
        groups = _split_at_first_cells(body, columns)
    else:
        groups = [
            part
            for group in split_at_gaps(body, gap)
            for part in (_split_at_first_cells(group, columns) if _are_stacked(group, columns) else [group])
        ]
    rows = spread or _spread_labels(body, columns) or [fill_row(lines, columns) for lines in groups]
    if head:
        rows.insert(0, heads)
    # Loosely set text stands apart line by line; rows of so much text would wrap.
    has_gaps = has_gaps and not (is_prose and len(block) < WRAPPED_LINES * len(rows))
    if not is_table(rows) or (is_prose and not has_gaps) or ((is_prose or not has_gaps) and are_torn(rows)):
        return None
    # Labels of figures may be indented.
    if not all(_is_aligned(block, column) for column in (columns[1:] if has_figures(rows) else columns)):
        return None
    box = Box(columns[0][0], block[0].y0, max(s.x1 for line in block for s in line.segments), max(b.y1 for b in block))
    return Table(box, join_wrapped(rows), tuple(columns))


def _are_rows(groups: list[list[Line]], columns: list[Range], *, least_share: float = STARTED_SHARE) -> bool:
    """Tell whether the groups begin like rows: most of the columns side by side. Paragraphs in columns do not."""
    if len(groups) < 3:
        return False
    starts = [
        len({n for line in _first_lines(group) for s in line.segments for n in covered_columns(columns, s)})
        for group in groups
    ]
    full = sum(start >= max(2, least_share * len(columns)) for start in starts)
    return full >= FULL_ROWS_SHARE * len(groups)


def _are_stacked(group: list[Line], columns: list[Range]) -> bool:
    """Tell whether lines without space between them are rows: each begins in the first column and has figures."""
    if len(group) < 2 or not all(line.segments[0].x0 < columns[0][1] for line in group):
        return False
    full = sum(2 * len(line.segments) > len(columns) for line in group)
    with_figures = sum(any(_is_figure(segment.text) for segment in line.segments[1:]) for line in group)
    return min(full, with_figures) > FULL_ROWS_SHARE * len(group)


def _is_figure(text: str) -> bool:
    return any(map(str.isdigit, text)) and not any(map(str.isalpha, text))


def _spread_labels(body: list[Line], columns: list[Range]) -> list[list[str]] | None:
    """Return the rows where each label stands in the middle of those that it is for, one at least between two rows."""
    edge = columns[1][0] - 0.1
    if all(line.segments[0].x0 < edge for line in body):
        return None
    labels = _join_close(group_lines([word for line in body for word in line.words if word.box.x0 < edge]))
    cells = [line for line in (_without_label(line, edge) for line in body) if line.words]
    rows = _join_close(cells)
    if not 2 <= len(labels) < len(rows):
        return None
    for start in (0, 1):  # the head may have no label
        ends = [start - 1]
        for label in labels:
            ends += [
                end
                for end in range(ends[-1] + 1, len(rows))
                if abs(_middle(rows[ends[-1] + 1][0], rows[end][-1]) - _middle(label[0], label[-1])) < OFF_ROWS
            ][:1]
        counts = [end - before for before, end in pairwise(ends)]
        if len(counts) == len(labels) and ends[-1] == len(rows) - 1 and any(count % 2 == 0 for count in counts):
            texts = [join_lines(line.segments[0].text for line in label) for label in labels]
            firsts = [""] * start + [text for text, count in zip(texts, counts, strict=True) for _ in range(count)]
            return [[first, *fill_row(row, columns)[1:]] for first, row in zip(firsts, rows, strict=True)]
    return None


def _without_label(line: Line, edge: float) -> Line:
    words = [word for word in line.words if word.box.x0 >= edge]
    tops, bottoms = [word.box.y0 for word in words], [word.box.y1 for word in words]
    segments = [segment for segment in line.segments if segment.x0 >= edge]
    return Line(min(tops, default=line.y0), max(bottoms, default=line.y1), segments, words)


def _join_close(lines: list[Line]) -> list[list[Line]]:
    """Return the lines in groups of those that stand as close as the lines of one cell."""
    groups: list[list[Line]] = []
    for line in lines:
        if groups and line.y0 - groups[-1][-1].y1 < CELL_GAP * (line.y1 - line.y0):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _middle(first: Line, last: Line) -> float:
    return (first.y0 + last.y1) / 2


def _first_lines(group: list[Line]) -> list[Line]:
    """Return the first line and those beside it: a cell of one line may stand in the middle of its row."""
    if all(len(line.segments) == 1 for line in group):
        return group[:1]
    return [line for line in group if line.y0 < group[0].y1]


def _split_at_first_cells(block: list[Line], columns: list[Range]) -> list[list[Line]]:
    """Return a row for each line with a first cell, together with the lines below it that have none."""
    groups = [[block[0]]]
    for above, line, below in zip(block, block[1:], [*block[2:], None], strict=False):
        begins = line.segments[0].x0 < columns[0][1] and (
            len(line.segments) > 1 or len(above.segments) == 1 or _begins_label(above, line, below, columns[0])
        )
        begins = begins or (len(columns) > 2 and _are_full_rows(above, line, columns))
        goes_on = len(above.segments) == 1 and line.segments[0].text[0].islower()
        if line.begins_row or (begins and not goes_on and line.y0 >= above.y1 - 0.3 * (line.y1 - line.y0)):
            groups.append([line])
        else:
            groups[-1].append(line)
    return groups


def _begins_label(above: Line, line: Line, below: Line | None, column: Range) -> bool:
    """Tell whether a label alone on its line is none of the row above: its first word had room there."""
    label, word = above.segments[0], line.words[0].box
    if below and below.segments[0].text[0].islower() and not line.segments[0].text[0].islower():
        return True
    return label.x0 < column[1] and label.x1 + word.x1 - word.x0 + SNAP + NARROWEST_GAP < column[1]


def _are_full_rows(above: Line, line: Line, columns: list[Range]) -> bool:
    """Tell whether both lines have a cell in each column but the first, none in the middle of a sentence."""
    others = set(range(1, len(columns)))
    return all(
        others <= {n for s in each.segments for n in covered_columns(columns, s)} for each in (above, line)
    ) and not any(segment.text[0].islower() for segment in line.segments)


def _is_prose(block: list[Line], columns: list[Range]) -> bool:
    """Tell whether two columns or more have lines of text."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for line in block:
        for segment in line.segments:
            lengths[covered_columns(columns, segment)[0]].append(len(segment.text))
    return sum(median(each) >= PROSE_CHARS for each in lengths.values()) >= 2


def _is_aligned(block: list[Line], column: Range) -> bool:
    """Tell whether most segments of the column share their left edge, right edge or middle."""
    inside = [s for line in block for s in line.segments if column[0] - 0.1 <= s.x0 and s.x1 <= column[1] + 0.1]
    edges = ([s.x0 for s in inside], [s.x1 for s in inside], [(s.x0 + s.x1) / 2 for s in inside])
    return bool(inside) and any(_most_common_share(values) >= ALIGNED_SHARE for values in edges)


def _most_common_share(values: list[float]) -> float:
    counts = Counter(round(value / 3) for value in values)
    return max(counts[place] + counts[place + 1] for place in list(counts)) / len(values)
