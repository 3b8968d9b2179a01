"""Vertical writing of Chinese and Japanese: columns of a page from right to left. PDFium reads them from the left."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

FEWEST_CHARS = 4  # of a column that tells the direction
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of characters; coordinates from the page's bottom left, as PDFium has them."""

    text: str
    x: float
    top: float
    bottom: float


def may_be_vertical(text: str) -> bool:
    """Tell whether the text has characters of a script that is written in columns."""
    return not text.isascii() and len(_EAST_ASIAN.findall(text)) >= FEWEST_CHARS


def read_columns(textpage: Any) -> str | None:
    """Return the text of a page in vertical writing, a line for each tier of columns; None for any other page."""
    text = textpage.get_text_range()
    columns, across, start = [], 0, 0
    for line in re.split(r"(?<=\n)", text):
        column = _to_column(textpage, line, start)
        start += len(line)
        if column:
            columns.append(column)
        else:
            across += len(_EAST_ASIAN.findall(line))
    if not columns or sum(len(column.text) for column in columns) <= across:
        return None
    return "\n\n".join(_join_tier(tier) for tier in _split_tiers(columns))


def _to_column(textpage: Any, line: str, start: int) -> Column | None:
    """Return the column if the characters of the line stand below each other."""
    shown = [start + index for index, character in enumerate(line) if _EAST_ASIAN.match(character)]
    if len(shown) < FEWEST_CHARS or shown[-1] >= textpage.count_chars():
        return None
    boxes = [textpage.get_charbox(index) for index in shown]
    down = sum(after[3] < before[3] and abs(after[0] - before[0]) < 2 for before, after in pairwise(boxes))
    if down < 0.6 * (len(boxes) - 1):
        return None
    return Column(line.strip(), boxes[0][0], boxes[0][3], boxes[-1][1])


def _split_tiers(columns: list[Column]) -> list[list[Column]]:
    """Return the columns of each tier from right to left, the upper tier first."""
    tiers: list[list[Column]] = []
    for column in sorted(columns, key=lambda column: -column.top):
        if tiers and column.top > min(each.bottom for each in tiers[-1]):
            tiers[-1].append(column)
        else:
            tiers.append([column])
    return [sorted(tier, key=lambda column: -column.x) for tier in tiers]


def _join_tier(tier: list[Column]) -> str:
    return "".join(column.text for column in tier)
