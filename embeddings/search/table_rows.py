"""Rows of the tables in a chunk: each row's cells with their column heads, as the index of words counts them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from documents.markdown.sentences import plain_text
from documents.markdown.structure import are_heads, split_cells
from embeddings.chunking.splitter import Structure

MAX_HEAD_CHARS = 100  # of a column's head: repeated in each row, a long one would multiply
MAX_ROWS = 32_767  # of a chunk: a posting's row is a half-word
_LINE = re.compile(r"[^\n]+")
_VALUE = re.compile(r"[$€£]\s?[\d.,]+|[\d.,]+\s?[%$€£]|\d{1,4}([/.-])\d{1,2}\1\d{1,4}")  # a sum, a share or a date


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
    which is a row above it with one value alone, or the head of the first column if the others have none. A row without
    a first cell continues the row above. Two columns of which the second one is headed by a value have no heads: the
    first line of every table is its head in markdown.
    """
    structure = Structure(text)
    headings = list(structure.headings(0, len(text)))
    title, at = "", 0
    for start, body, end in zip(structure.tables.starts, structure.tables.bodies, structure.tables.ends, strict=True):
        while at < len(headings) and headings[at].start < start:
            title, at = headings[at].title, at + 1
        header, *rows = (line for line in _LINE.finditer(text, start, end) if not start < line.start() < body)
        first = split_cells(header[0])
        heads = [head[:MAX_HEAD_CHARS] for head in first]
        group = label = ""
        if len(first) == 2 and _VALUE.fullmatch(plain_text(first[1])):
            rows.insert(0, header)
            heads = ["", ""]
        elif len(first) > 1 and not any(first[1:]):
            group, heads = first[0], [""] * len(first)
        for number, line in enumerate(rows):
            cells = split_cells(line[0])
            values = {cell for cell in cells if cell}
            if not values:
                continue
            is_head = not number and are_heads(cells, heads)
            if len(cells) > 1 and values == {cells[0]}:
                group, label = values.pop(), ""
                row = group
            else:
                label = cells[0] or label
                row = " ".join(filter(None, (group, _sentence(label, cells, heads))))
            if is_head:
                below = [cell[:MAX_HEAD_CHARS] for cell in cells]
                heads = [head if head == cell else f"{head}, {cell}" for head, cell in zip(heads, below, strict=True)]
                label = ""
            yield TableRow(title, row, start, body, *line.span(), tuple(heads), is_head)


def _sentence(label: str, cells: Sequence[str], heads: Sequence[str]) -> str:
    named = (
        f"{heads[at]}: {cell}" if at < len(heads) and heads[at] else cell
        for at, cell in enumerate(cells)
        if at and cell
    )
    return f"{label} — {'; '.join(named)}" if len(cells) > 1 else label
