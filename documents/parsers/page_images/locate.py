"""Where a passage stands on a page: from words that match to boxes, one a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from documents.parsers.page_images import text_alignment
from documents.parsers.page_images.words import Box, Word, fold_character

MOST = 400  # boxes of one answer; a page has some 60 lines
MATCHED = 0.6  # of a word's letters
SAME_LINE = 0.5  # of the lower one's height
LONG = 1.5  # times as long as high: words that are longer downwards are written so
GAP = 2.0  # of a line's height: two columns stand further apart
# What markdown writes and a page does not show: a link's target, a table's tag.
UNSEEN = re.compile(r"\]\([^()\s]*+\)|</?[a-zA-Z][^<>\n]{0,200}+>|&[a-z]{2,8};")


def locate_boxes(
    words: Sequence[Word], passage: str, place: Callable[[Box], Box], width: float, height: float
) -> list[list[float]]:
    """Left, top, width and height of each line's part of ``passage``, in points from the page's top left."""
    text = "".join(map(fold_character, UNSEEN.sub(" ", passage)))
    page = "".join(word.text for word in words)
    found = _matched(words, text_alignment.find_spans(page, text))
    lines = (_clipped(place(box), width, height) for box in _lines(found))
    return [_measured(box) for box in lines if box is not None][:MOST]


def _matched(words: Sequence[Word], spans: Sequence[tuple[int, int]]) -> list[Word]:
    length = sum(len(word.text) for word in words)
    hit = bytearray(length)
    for start, end in spans:
        hit[start:end] = b"\1" * (end - start)
    found, at = [], 0
    for word in words:
        end = at + len(word.text)
        if hit.count(1, at, end) >= MATCHED * len(word.text):
            found.append(word)
        at = end
    return found


def _lines(words: Sequence[Word]) -> list[Box]:
    """Join what follows one another on one line, be it written across or down the page."""
    made: list[Box] = []
    for word in words:
        if made and (_goes_on(made[-1], word.box) or _goes_on(_turned(made[-1]), _turned(word.box), is_turned=True)):
            made[-1] = made[-1].joined(word.box)
        else:
            made.append(word.box)
    return made


def _goes_on(line: Box, word: Box, *, is_turned: bool = False) -> bool:
    height = min(word.bottom - word.top, line.bottom - line.top)
    beside = max(line.left, word.left) - min(line.right, word.right)
    below = max(line.top, word.top) - min(line.bottom, word.bottom)
    if is_turned and (_is_upright(line) or _is_upright(word)):
        return False
    return -below >= SAME_LINE * height and beside <= GAP * height


def _is_upright(turned: Box) -> bool:
    return turned.right - turned.left < LONG * (turned.bottom - turned.top)


def _turned(box: Box) -> Box:
    return Box(box.top, box.left, box.bottom, box.right)


def _clipped(box: Box, width: float, height: float) -> Box | None:
    seen = Box(max(0.0, box.left), max(0.0, box.top), min(width, box.right), min(height, box.bottom))
    return seen if seen.left < seen.right and seen.top < seen.bottom else None


def _measured(box: Box) -> list[float]:
    return [round(edge, 2) for edge in (box.left, box.top, box.right - box.left, box.bottom - box.top)]
