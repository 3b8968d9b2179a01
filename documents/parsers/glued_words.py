"""Spaces that the text of a page lacks: before a footnote mark set above the line, and where PDFium has one."""

import re
from ctypes import byref, c_double
from itertools import pairwise
from typing import Any

import pypdfium2.raw as pdfium

RAISED = 1.0  # points above the line; a mark of a text of 8 points is 2 to 3
LEVEL = 0.1

# An amount or a word that ends with digits; "m2" and "H2O" are no notes.
_MARKED = re.compile(r"(?<![\w,.])((?:[$£€]?\d[\d,.]*%?|[^\W\d_]{4,})\d)(?![\w%]|[.,]\d)")
_WORD = re.compile(r"\S+")
_PUNCTUATED = re.compile(r"[.,;:!?%)\]\d][^\W\d_(\[$]|[^\W\d_)][A-Z(\[$]|[\d%)]\d")  # on both sides of the space


def find_glued_marks(text_page: Any) -> dict[str, str]:
    """Return amounts and words with a raised number at their end, "$4502", each with a space before it: "$450 2"."""
    text = text_page.get_text_range()
    marks: dict[str, str] = {}
    others: set[str] = set()
    for match in _MARKED.finditer(text):
        word = match[1]
        start = pdfium.FPDFText_GetCharIndexFromTextIndex(text_page.raw, match.start(1))
        base, length = _baseline(text_page, start), 0
        while length < min(2, len(word) - 2) and word[-1 - length].isdigit():
            if _baseline(text_page, start + len(word) - 1 - length) - base < RAISED:
                break
            length += 1
        before = _baseline(text_page, start + len(word) - 1 - length)
        if length and abs(before - base) < LEVEL:  # else the line is not level
            marks[word] = f"{word[:-length]} {word[-length:]}"
        else:
            others.add(word)
    return {word: parted for word, parted in marks.items() if word not in others}


def _baseline(text_page: Any, index: int) -> float:
    x, y = c_double(), c_double()
    pdfium.FPDFText_GetCharOrigin(text_page.raw, index, byref(x), byref(y))
    return y.value


def separate_words(text: str, plain: str, marks: dict[str, str]) -> str:
    """Return the text with the spaces before ``marks``, and those of PDFium's ``plain`` text at punctuation."""
    text = _MARKED.sub(lambda match: marks.get(match[1], match[1]), text) if marks else text
    words = plain.split()
    glued = set(text.split()).difference(words)
    if not glued:
        return text
    pairs = {
        one + two: f"{one} {two}"
        for one, two in pairwise(words)
        if one + two in glued and _PUNCTUATED.fullmatch(one[-1] + two[0])
    }
    return _WORD.sub(lambda match: pairs.get(match[0], match[0]), text) if pairs else text
