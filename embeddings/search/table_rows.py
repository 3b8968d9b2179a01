"""Rows of the tables in a chunk: each row's cells with their column heads, as the index of words counts them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from documents.markdown.structure import split_cells
from embeddings.chunking.splitter import Structure

MAX_HEAD_CHARS = 100  # of a column's head: repeated in each row, a long one would multiply
MAX_ROWS = 32_767  # of a chunk: a posting's row is a half-word


class TableRow(NamedTuple):
    """``title`` is the nearest heading above the table in the chunk, ``text`` the row as the index counts it.

    The row stands at [start, end) of the chunk, its table's header and delimiter at [header, body). ``heads`` are those
    of its columns; ``is_head`` is a second line of heads, below those that span columns.
    """

    title: str
    text: str
    header: int
    body: int
    start: int
    end: int
    heads: tuple[str, ...]
    is_head: bool


def table_rows(text: str) -> Iterator[TableRow]:
    """Yield the rows of all tables in a chunk's text, in order.

    A row's text is ``Specialist visit — In network: $60 copay; Out of network: 40 %``, after the label of its group,
    which is a row above it with one value alone. A row without a first cell continues the row above.
    """
    structure = Structure(text)
    headings = list(structure.headings(0, len(text)))
    title, at = "", 0
    for start, body, end in zip(structure.tables.starts, structure.tables.bodies, structure.tables.ends, strict=True):
        while at < len(headings) and headings[at].start < start:
            title, at = headings[at].title, at + 1
        heads = [head[:MAX_HEAD_CHARS] for head in split_cells(text[start : text.index("\n", start)])]
        group = label = ""
        is_first = True
        for line in re.finditer(r"[^\n]+", text[body:end]):
            cells = split_cells(line[0])
            values = {cell for cell in cells if cell}
            if not values:
                continue
            is_head, is_first = is_first and _are_heads(cells, heads), False
            if len(cells) > 1 and len(values) == 1:
                group, label = values.pop(), ""
                row = group
            else:
                label = cells[0] or label
                row = " ".join(filter(None, (group, _sentence(label, cells, heads))))
            if is_head:
                below = [cell[:MAX_HEAD_CHARS] for cell in cells]
                heads = [head if head == cell else f"{head}, {cell}" for head, cell in zip(heads, below, strict=True)]
                label = ""
            place = start, body, body + line.start(), body + line.end()
            yield TableRow(title, row, *place, tuple(heads), is_head)


def _are_heads(cells: Sequence[str], heads: Sequence[str]) -> bool:
    """Tell whether a table's first row has heads of columns: different ones below a head that several columns share."""
    counted = Counter(heads)
    if len(cells) != len(heads) or len(counted) == len(heads):
        return False
    below = [cell for head, cell in zip(heads, cells, strict=True) if counted[head] > 1]
    repeated = [cell == head for head, cell in zip(heads, cells, strict=True) if head and counted[head] == 1]
    return any(repeated) and all(repeated) and all(below) and not any(re.search(r"\d", cell) for cell in below)


def _sentence(label: str, cells: Sequence[str], heads: Sequence[str]) -> str:
    named = (
        f"{heads[at]}: {cell}" if at < len(heads) and heads[at] else cell
        for at, cell in enumerate(cells)
        if at and cell
    )
    return f"{label} — {'; '.join(named)}" if len(cells) > 1 else label
