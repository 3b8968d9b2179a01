"""Rows of tables that the end of a page cuts."""

import re
from collections.abc import Sequence

from documents.parsers.table_grids import join_lines

SENTENCE = 4  # words of a cell that is no value of its own

_EDGE = re.compile(r"(?<!\\)\|")
_ENDS = (".", "!", "?", ":", ";")


def join_cut_rows(pages: Sequence[str]) -> list[str]:
    """Return the pages, the rest of a row that goes on below the repeated head of the next page joined to it."""
    joined = list(pages)
    for number in range(len(joined) - 1):
        upper, lower = joined[number].split("\n"), joined[number + 1].split("\n")
        start = _last_table(upper)
        first = _first_row(upper[start:], lower)
        rows = [_cells(line) for line in upper[start + first :]] if first else []
        rest = _cells(lower[first]) if rows else []
        if not rows or not _is_rest(rest, rows):
            continue
        cells = (join_lines(filter(None, pair)) for pair in zip(rows[-1], rest, strict=True))
        upper[-1] = f"| {' | '.join(cells)} |"
        is_last = not lower[first + 1 :] or not lower[first + 1].startswith("|")
        del lower[0 if is_last else first : first + 1]
        joined[number], joined[number + 1] = "\n".join(upper), "\n".join(lower).lstrip("\n")
    return joined


def _last_table(lines: list[str]) -> int:
    """Return where the table begins with which a page ends."""
    start = len(lines)
    while start and lines[start - 1].startswith("|"):
        start -= 1
    return start


def _first_row(table: list[str], below: list[str]) -> int:
    """Return the number of lines of the head, and of a second one, that both have, 0 if these differ."""
    for count in (3, 2):
        if len(table) > count and len(below) > count and table[:count] == below[:count]:
            return count if below[count].startswith("|") else 0
    return 0


def _is_rest(rest: list[str], rows: list[list[str]]) -> bool:
    """Tell whether a row without a label goes on in the middle of a sentence; other rows of the table have labels."""
    cut = rows[-1]
    filled = [n for n, cell in enumerate(rest) if cell]
    if len(rest) != len(cut) or not filled or not all(cut[n] for n in filled):
        return False
    going_on = [n for n in filled if rest[n][0].islower() and not cut[n][0].islower() and not cut[n].endswith(_ENDS)]
    if rest[0]:  # the label wraps, too
        return going_on == filled
    is_text = len(rest) > 2 and len(filled) == 1 and len(rest[filled[0]].split()) >= SENTENCE
    return all(row[0] for row in rows) and bool(going_on or is_text)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _EDGE.split(line)[1:-1]]
