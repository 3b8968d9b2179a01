"""Two columns whose lines a PDF holds row by row, as some gazettes do: put one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from documents.parsers.pdf_engines import clean_text

FEWEST_ROWS = 4  # side by side: fewer are a letterhead or signatures
SHARE = 0.6  # of the jumps to the right that end at one place
PROSE = 8.0  # a line of prose is this much longer than high; a table's figures are not
RAGGED = 3  # points by which the lines of a column begin apart: letters differ in the room before them
MOST_PIECES = 2_000  # of a page: beyond, it is a drawing


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that stands together, in points; the origin is the bottom of the page."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def is_prose(self) -> bool:
        return self.right - self.left >= PROSE * (self.top - self.bottom)

    def is_beside(self, other: _Piece) -> bool:
        """Tell whether the other one stands to the right, in the same row, beyond a gap."""
        height = min(self.top - self.bottom, other.top - other.bottom)
        overlap = min(self.top, other.top) - max(self.bottom, other.bottom)
        return overlap > height / 2 and other.left - self.right > height / 2


def unfold_columns(page: Any) -> str | None:
    """Return the text of a PDFium text page column by column; None when it is as it should be, or no columns are."""
    count = page.count_rects()
    if count > MOST_PIECES:
        return None
    pieces = [_Piece(*page.get_rect(number)) for number in range(count)]
    gutter = _gutter(pieces)
    if gutter is None:
        return None
    lines = (
        clean_text(page.get_text_bounded(one.left, one.bottom, one.right, one.top)) for one in _ordered(pieces, gutter)
    )
    return "\n".join(" ".join(line.split("\n")) for line in lines if line.strip())


def _gutter(pieces: Sequence[_Piece]) -> float | None:
    """Return where the right column begins, if the file goes from left to right row by row."""
    jumps = [(one, other) for one, other in pairwise(pieces) if one.is_beside(other)]
    prose = [(one, other) for one, other in jumps if one.is_prose and other.is_prose]
    if len(prose) < FEWEST_ROWS or len(prose) < SHARE * len(jumps):
        return None
    lefts = Counter(round(other.left) for _, other in prose)
    place = lefts.most_common(1)[0][0]
    column = [other.left for _, other in prose if abs(other.left - place) <= RAGGED]
    return min(column) - 2.0 if len(column) >= SHARE * len(prose) else None


def _ordered(pieces: Sequence[_Piece], gutter: float) -> Iterator[_Piece]:
    """Yield the columns' pieces one column after the other, between those that run across both."""
    left: list[_Piece] = []
    right: list[_Piece] = []
    for piece in pieces:
        if piece.left < gutter < piece.right:
            yield from (*left, *right, piece)
            left, right = [], []
        else:
            (left if piece.right <= gutter else right).append(piece)
    yield from (*left, *right)
