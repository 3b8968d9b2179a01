"""Questions made from a document's own headings and table rows."""

import re
from collections.abc import Iterator

from documents.markdown.structure import split_cells

WORDS = re.compile(r"[^\W\d_][^\W_][\w\s,/()'\u2019&-]{3,58}")
HEADING = re.compile(r"#{1,6} (.+)")


def document_questions(markdown: str) -> list[str]:
    """Return at most two questions: for a cell of a table, and for what stands under a heading."""
    cells = [f"{label}: {column}?" for label, column in _labelled_cells(markdown)]
    headings = [f"What does it say about {heading}?" for heading in _headings(markdown)]
    return [questions[len(questions) // 2] for questions in (cells, headings) if questions]


def _labelled_cells(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield the first cell of each row, and the head of its second column, where both are words."""
    heads: list[str] = []
    for line in markdown.splitlines():
        cells = split_cells(line) if line.startswith("|") else []
        if not cells or not heads:
            heads = cells
        elif len(cells) == len(heads) > 1 and cells[1] and WORDS.fullmatch(cells[0]) and WORDS.fullmatch(heads[1]):
            yield cells[0], heads[1]


def _headings(markdown: str) -> Iterator[str]:
    for line in markdown.splitlines():
        heading = HEADING.fullmatch(line)
        if heading and WORDS.fullmatch(text := heading[1].strip(" #*_")):
            yield text
