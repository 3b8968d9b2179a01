"""Structure of normalized markdown: page starts that fit it, jumps of heading levels, ragged tables."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from documents.markdown.code_fences import split_code_fences

_HEADING = re.compile(r"^ {0,3}(#{1,6}) ", re.MULTILINE)
_TABLE = re.compile(r"^ {0,3}\|[^\n]*(?:\n {0,3}\|[^\n]*)++", re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")


def are_pages_complete(text: str, page_starts: Sequence[int], pages: int) -> bool:
    """Tell whether each page has a start, in order from 0 on, at a line's beginning or at the text's end."""
    starts = list(page_starts)
    if len(starts) != pages or starts[0] != 0 or starts != sorted(starts) or starts[-1] > len(text):
        return False
    return all(not start or text[start - 1] == "\n" for start in starts)


def count_irregularities(text: str) -> dict[str, int]:
    """Return how many headings skip a level below the one before, and how many tables have rows of other widths."""
    prose = [prose for prose, _, _ in split_code_fences(text)]
    levels = (len(heading[1]) for piece in prose for heading in _HEADING.finditer(piece))
    return {
        "heading_jumps": sum(lower > upper + 1 for upper, lower in pairwise(levels)),
        "ragged_tables": sum(_is_ragged(table[0]) for piece in prose for table in _TABLE.finditer(piece)),
    }


def _is_ragged(table: str) -> bool:
    return len({len(split_cells(row)) for row in table.split("\n")}) > 1


def split_cells(row: str) -> list[str]:
    """Return the cells of a table's row, which may begin and end with a bar."""
    cells = [cell.strip() for cell in _CELL_END.split(row.strip())]
    return cells[not cells[0] : len(cells) - (len(cells) > 1 and not cells[-1])]


def are_heads(cells: Sequence[str], heads: Sequence[str]) -> bool:
    """Tell whether a table's first row has heads of columns: different ones below a head that several columns share."""
    counted = Counter(heads)
    if len(cells) != len(heads) or len(counted) == len(heads):
        return False
    below = [cell for head, cell in zip(heads, cells, strict=True) if counted[head] > 1]
    repeated = [cell == head for head, cell in zip(heads, cells, strict=True) if head and counted[head] == 1]
    return any(repeated) and all(repeated) and all(below) and not any(re.search(r"\d", cell) for cell in below)
