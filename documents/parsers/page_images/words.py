"""The words of a page and where they stand on it."""

from __future__ import annotations

import ctypes
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pypdfium2.raw as pdfium

MOST = 60_000  # letters read of one page; dense ones have 10,000
FINE = 1 << 20  # PDFium's device has whole pixels only: one far finer than any letter
APART = 1.0  # of a letter's size: what lies further off is no letter of the same word
BROKEN = 2  # PDFium's sign for a hyphen at the end of a line
SYLLABIC = range(0x2E80, 0xFB00)  # written without spaces: each sign is taken for a word


@dataclass(frozen=True, slots=True)
class Box:
    """Edges in points, to the right and downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def joined(self, other: Box) -> Box:
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


@dataclass(frozen=True, slots=True)
class Word:
    """``text`` is folded, as ``folded`` does it. ``box`` is in the page's own space, mirrored so that down is down."""

    text: str
    box: Box


@lru_cache(maxsize=4096)
def fold_character(character: str) -> str:
    """What all ways of writing a letter have in common: "ﬁ" and "FI" are "fi". Nothing for what is no letter."""
    return "".join(part for part in unicodedata.normalize("NFKD", character).casefold() if part.isalnum())


def extract_words(page: Any) -> list[Word]:
    """In PDFium's reading order; what is written against a word, such as a full stop, widens its box."""
    made: list[Word] = []
    last = -2
    for number, sign in _signs(page):
        if number == last + 1 and _belongs(made[-1], sign):
            made[-1] = Word(made[-1].text + sign.text, made[-1].box.joined(sign.box))
        else:
            made.append(sign)
        last = number
    return [word for word in made if word.text]


def page_transform(page: Any) -> Callable[[Box], Box]:
    """Return what takes a box from the page's own space, whose origin may lie anywhere, to the page as it is shown.

    There the origin is the top left, the page is cropped, and turned as it says.
    """
    width, height = page.get_size()
    scale = FINE / max(width, height)
    wide, high = round(width * scale), round(height * scale)

    def at(x: float, y: float) -> tuple[float, float]:
        right, down = ctypes.c_int(), ctypes.c_int()
        pdfium.FPDF_PageToDevice(page.raw, 0, 0, wide, high, 0, x, y, right, down)
        return right.value / scale, down.value / scale

    (x0, y0), (xx, xy), (yx, yy) = at(0, 0), at(width, 0), at(0, height)
    a, b, c, d = (xx - x0) / width, (xy - y0) / width, (yx - x0) / height, (yy - y0) / height

    def place(box: Box) -> Box:
        xs = sorted((x0 + a * box.left - c * box.top, x0 + a * box.right - c * box.bottom))
        ys = sorted((y0 + b * box.left - d * box.top, y0 + b * box.right - d * box.bottom))
        return Box(xs[0], ys[0], xs[1], ys[1])

    return place


def _signs(page: Any) -> Iterator[tuple[int, Word]]:
    """What prints, letters or not, with its number on the page."""
    text, rect = page.get_textpage(), pdfium.FS_RECTF()
    for number in range(min(text.count_chars(), MOST)):
        sign = _character(pdfium.FPDFText_GetUnicode(text.raw, number))
        if not sign.isspace() and pdfium.FPDFText_GetLooseCharBox(text.raw, number, rect):
            yield number, Word(fold_character(sign), Box(rect.left, -rect.top, rect.right, -rect.bottom))


def _character(code: int) -> str:
    if code == BROKEN:
        return "-"
    return chr(code) if 0x20 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else " "


def _belongs(word: Word, sign: Word) -> bool:
    """Tell whether a sign that follows in the text stands beside the word, be it written across or down."""
    if any(text and ord(text) in SYLLABIC for text in (word.text[-1:], sign.text[:1])):
        return False
    one, other = word.box, sign.box
    near = APART * max(other.bottom - other.top, other.right - other.left)
    across = max(one.left, other.left) - min(one.right, other.right)
    down = max(one.top, other.top) - min(one.bottom, other.bottom)
    return (across < near and down < 0) or (down < near and across < 0)
