"""Two-column pages whose PDF stores the lines row by row, as some gazettes do: reordered column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from documents.parsers.pdf_engines import clean_text

MIN_ROWS = 4  # side by side: fewer are a letterhead or signatures
MIN_SHARE = 0.6  # of the jumps to the right that end at one place
PROSE_RATIO = 8.0  # width to height of a line of prose; a table's figures are shorter
RAGGED_POINTS = 3  # by which the lines of a column begin apart: letters have different side bearings
MAX_PIECES = 2_000  # per page: beyond, it is a drawing


@dataclass(frozen=True, slots=True)
class _Piece:
    """The box of a piece of text, in points; the origin is the bottom of the page."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def is_prose(self) -> bool:
        return self.right - self.left >= PROSE_RATIO * (self.top - self.bottom)

    def is_beside(self, other: _Piece) -> bool:
        """Tell whether the other piece is to the right, in the same row, beyond a gap."""
        height = min(self.top - self.bottom, other.top - other.bottom)
        overlap = min(self.top, other.top) - max(self.bottom, other.bottom)
        return overlap > height / 2 and other.left - self.right > height / 2


def unfold_columns(page: Any) -> str | None:
    """Return the text of a PDFium text page column by column; None for a page without interleaved columns."""
    count = page.count_rects()
    if count > MAX_PIECES:
        return None
    pieces = [_Piece(*page.get_rect(number)) for number in range(count)]
    gutter = _gutter(pieces)
    if gutter is None:
        return None
    lines = (
        clean_text(page.get_text_bounded(piece.left, piece.bottom, piece.right, piece.top))
        for piece in _by_column(pieces, gutter)
    )
    return "\n".join(" ".join(line.split("\n")) for line in lines if line.strip())


def _gutter(pieces: Sequence[_Piece]) -> float | None:
    """Return the left edge of the right column, if the file goes from left to right row by row."""
    jumps = [(piece, other) for piece, other in pairwise(pieces) if piece.is_beside(other)]
    prose = [(piece, other) for piece, other in jumps if piece.is_prose and other.is_prose]
    if len(prose) < MIN_ROWS or len(prose) < MIN_SHARE * len(jumps):
        return None
    lefts = Counter(round(other.left) for _, other in prose)
    place = lefts.most_common(1)[0][0]
    column = [other.left for _, other in prose if abs(other.left - place) <= RAGGED_POINTS]
    return min(column) - 2.0 if len(column) >= MIN_SHARE * len(prose) else None


def _by_column(pieces: Sequence[_Piece], gutter: float) -> Iterator[_Piece]:
    """Yield the left column's pieces before the right column's, between the pieces that span both."""
    left: list[_Piece] = []
    right: list[_Piece] = []
    for piece in pieces:
        if piece.left < gutter < piece.right:
            yield from (*left, *right, piece)
            left, right = [], []
        else:
            (left if piece.right <= gutter else right).append(piece)
    yield from (*left, *right)
