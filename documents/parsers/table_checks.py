"""Checks of the rows of a table without lines, which prose, lists and tables of contents may look like."""

import re
from collections.abc import Sequence

TORN_SHARE, TORN_PAIRS_SHARE = 0.2, 0.1  # of the cells; in two columns text is more likely than a table
FIGURES_SHARE = 0.8  # of the cells of a column
LIST_MARKER = re.compile(r"[^\w\s]|[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)\]]\.?|o")
_SECTION = re.compile(r"\d[\d. ]*$|\d+\.\d+")
_FRONT_OR_BACK = re.compile(r"[ivx]+|[A-Z]-\d{1,3}")  # page numbers before and after the counted pages
_BULLET = re.compile(r"[•◦▪■·●\x80-\x9f\uf000-\uf8ff\s]+")
_NO_CELL = re.compile(r"\.{4,}|(?:\. ){3,}|\\[a-z]+|\^\{|_\{")  # dot leaders, formulas


def is_table(rows: list[list[str]]) -> bool:
    """Tell a table from a list with hanging marks and from a table of contents."""
    filled = [sum(map(bool, row)) for row in rows]
    is_short = len(rows) == 2 and len(rows[0]) >= 4 and min(filled) == len(rows[0])
    if not is_short and (len(rows) < 3 or sum(count >= 2 for count in filled) < 3):
        return False
    if sum(filled) < 0.5 * len(rows) * len(rows[0]):
        return False
    if len(rows[0]) == 2 and all(LIST_MARKER.fullmatch(row[0].replace(" ", "")) for row in rows if row[0]):
        return False
    by_column = [[row[n] for row in rows if row[n]] for n in range(len(rows[0]))]
    if has_bullets(rows) or _is_contents(by_column):
        return False
    return sum(bool(_NO_CELL.search(" ".join(row))) for row in rows) <= 0.3 * len(rows)


def has_bullets(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether half of the cells of a column are marks of a list."""
    by_column = [[row[n] for row in rows if row[n]] for n in range(len(rows[0]))]
    return any(
        column and sum(bool(_BULLET.fullmatch(cell)) for cell in column) >= 0.5 * len(column) for column in by_column
    )


def _is_contents(columns: list[list[str]]) -> bool:
    """Tell whether the last of two columns, or of three of which the first has section numbers, has page numbers."""
    is_numbered = len(columns) == 3 and all(_SECTION.match(cell) for cell in columns[0])
    numbers = " ".join(columns[-1]).split() if len(columns) == 2 or is_numbered else []
    numbers = [number for number in numbers if not _FRONT_OR_BACK.fullmatch(number)]
    pages = [int(number) for number in numbers if number.isascii() and number.isdigit() and len(number) < 5]
    return len(pages) >= 3 and len(pages) >= 0.9 * len(numbers) and pages == sorted(pages)


def has_figures(rows: list[list[str]]) -> bool:
    """Tell whether most cells of the last column have digits."""
    cells = [row[-1] for row in rows if row[-1]]
    return sum(any(map(str.isdigit, cell)) for cell in cells) > FIGURES_SHARE * len(cells)


def are_torn(rows: list[list[str]]) -> bool:
    """Tell whether many cells begin in the middle of a sentence."""
    cells = [cell for row in rows for cell in row if cell]
    most = TORN_SHARE if len(rows[0]) > 2 else TORN_PAIRS_SHARE
    return sum(cell[0].islower() for cell in cells) > most * len(cells)
