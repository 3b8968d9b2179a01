"""Words of a page and their boxes, read with PDFium."""

import ctypes
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import pypdfium2.raw as pdfium

MAX_CHARS = 60_000  # characters read of one page; dense ones have 10,000
FINE = 1 << 20  # PDFium's device has whole pixels only: one far finer than any letter
APART = 1.0  # of a letter's size: a letter further off belongs to another word
BROKEN = 2  # PDFium's sign for a hyphen at the end of a line
SYLLABIC = range(0x2E80, 0xFB00)  # written without spaces: each character is a word


@dataclass(frozen=True, slots=True)
class Box:
    """Edges in points, to the right and downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def joined(self, other: Self) -> Self:
        left, top = min(self.left, other.left), min(self.top, other.top)
        return type(self)(left, top, max(self.right, other.right), max(self.bottom, other.bottom))


@dataclass(frozen=True, slots=True)
class Word:
    """``text`` is folded by ``fold_character``; ``box`` is in the page's own space with the y axis downwards."""

    text: str
    box: Box


@lru_cache(maxsize=4096)
def fold_character(character: str) -> str:
    """Return the character's normalized form: "fi" for "ﬁ" and "FI", "" for a character that is no letter or digit."""
    return "".join(part for part in unicodedata.normalize("NFKD", character).casefold() if part.isalnum())


def extract_words(page: Any) -> list[Word]:
    """Return the words in PDFium's reading order; adjacent punctuation such as a full stop widens the box."""
    words: list[Word] = []
    last = -2
    for number, glyph in _visible_glyphs(page):
        if number == last + 1 and _belongs(words[-1], glyph):
            words[-1] = Word(words[-1].text + glyph.text, words[-1].box.joined(glyph.box))
        else:
            words.append(glyph)
        last = number
    return [word for word in words if word.text]


def page_transform(page: Any) -> Callable[[Box], Box]:
    """Return the transform of a box from the page's own space, of any origin, to the page as it is shown.

    There the origin is the top left, and the page is cropped and turned.
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


def _visible_glyphs(page: Any) -> Iterator[tuple[int, Word]]:
    text, rect = page.get_textpage(), pdfium.FS_RECTF()
    for number in range(min(text.count_chars(), MAX_CHARS)):
        code = pdfium.FPDFText_GetUnicode(text.raw, number)
        is_character = 0x20 <= code < 0x110000 and not 0xD800 <= code < 0xE000
        character = "-" if code == BROKEN else chr(code) if is_character else " "
        if not character.isspace() and pdfium.FPDFText_GetLooseCharBox(text.raw, number, rect):
            yield number, Word(fold_character(character), Box(rect.left, -rect.top, rect.right, -rect.bottom))


def _belongs(word: Word, glyph: Word) -> bool:
    """Tell whether the next character is adjacent to the word, in horizontal or vertical writing."""
    if any(text and ord(text) in SYLLABIC for text in (word.text[-1:], glyph.text[:1])):
        return False
    one, other = word.box, glyph.box
    near = APART * max(other.bottom - other.top, other.right - other.left)
    across = max(one.left, other.left) - min(one.right, other.right)
    down = max(one.top, other.top) - min(one.bottom, other.bottom)
    return (across < near and down < 0) or (down < near and across < 0)
