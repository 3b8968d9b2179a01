"""Boxes of a passage on a page: its words are found by their letters, and joined to one box a line."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from documents.page_images import text_alignment
from documents.page_images.word_boxes import Box, Word, extract_words, fold_character, page_transform

MAX_BOXES = 400  # of one response; a page has some 60 lines
MATCHED = 0.6  # of a word's letters
SAME_LINE = 0.5  # of the lower one's height
LONG = 1.5  # ratio of length to height; words that are longer downwards are vertical
GAP = 2.0  # of a line's height: two columns are further apart
# Markdown that a page does not show: a link's target, a table's tag.
UNSEEN = re.compile(r"\]\([^()\s]*+\)|</?[a-zA-Z][^<>\n]{0,200}+>|&[a-z]{2,8};")


def locate_boxes(page: Any, passage: str) -> list[list[float]]:
    """Return left, top, width and height of each line's part of ``passage``, in points from the page's top left."""
    words, place, (width, height) = extract_words(page), page_transform(page), page.get_size()
    text = "".join(map(fold_character, UNSEEN.sub(" ", passage)))
    spans = text_alignment.find_spans("".join(word.text for word in words), text)
    lines: list[Box] = []
    for word in _matched_words(words, spans):
        if lines and (_continues(lines[-1], word.box) or _continues_vertically(lines[-1], word.box)):
            lines[-1] = lines[-1].joined(word.box)
        else:
            lines.append(word.box)
    boxes = []
    for line in map(place, lines):
        left, top = max(0.0, line.left), max(0.0, line.top)
        right, bottom = min(width, line.right), min(height, line.bottom)
        if left < right and top < bottom:  # on the page
            boxes.append([round(edge, 2) for edge in (left, top, right - left, bottom - top)])
    return boxes[:MAX_BOXES]


def _matched_words(words: Sequence[Word], spans: Sequence[tuple[int, int]]) -> Iterator[Word]:
    hit = bytearray(sum(len(word.text) for word in words))
    for start, end in spans:
        hit[start:end] = b"\1" * (end - start)
    at = 0
    for word in words:
        end = at + len(word.text)
        if hit.count(1, at, end) >= MATCHED * len(word.text):
            yield word
        at = end


def _continues(line: Box, word: Box) -> bool:
    height = min(word.bottom - word.top, line.bottom - line.top)
    gap = max(line.left, word.left) - min(line.right, word.right)
    overlap = min(line.bottom, word.bottom) - max(line.top, word.top)
    return overlap >= SAME_LINE * height and gap <= GAP * height


def _continues_vertically(line: Box, word: Box) -> bool:
    turned = [Box(box.top, box.left, box.bottom, box.right) for box in (line, word)]
    is_vertical = all(box.right - box.left >= LONG * (box.bottom - box.top) for box in turned)
    return is_vertical and _continues(*turned)
