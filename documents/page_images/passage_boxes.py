"""Boxes of a passage on a page, which has the same words in other spacing, punctuation and order. Linear."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from documents.page_images.word_boxes import Box, Word, extract_words, fold_character, page_transform

MAX_BOXES = 400  # of one response; a page has some 60 lines
MATCHED = 0.6  # of a word's letters
SAME_LINE = 0.5  # of the lower one's height
LONG = 1.5  # ratio of length to height; words that are longer downwards are vertical
GAP = 2.0  # of a line's height: two columns are further apart
# Markdown that a page does not show: a link's target, a table's tag.
UNSEEN = re.compile(r"\]\([^()\s]*+\)|</?[a-zA-Z][^<>\n]{0,200}+>|&[a-z]{2,8};")
# Alignment of the passage with the page, by n-grams of letters.
GRAM, SHORT_GRAM = 12, 6  # letters of an n-gram that is searched anywhere, and near other matches
PLACES = 16  # compared for each n-gram: forms repeat themselves
STRONG = 24  # consecutive letters that are no coincidence
CERTAIN = 40  # consecutive letters that suffice even as a small part: a passage may end in this page's first lines
SHARE = 0.5  # of the text, where no run is that long
BRIDGED = 12  # letters that may differ between two runs: a footnote mark, another spelling of a character


def locate_boxes(page: Any, passage: str) -> list[list[float]]:
    """Return left, top, width and height of each line's part of ``passage``, in points from the page's top left."""
    words, place, (width, height) = extract_words(page), page_transform(page), page.get_size()
    text = "".join(map(fold_character, UNSEEN.sub(" ", passage)))
    spans = find_spans("".join(word.text for word in words), text)
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


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` equal letters: in the text from ``start``, on the page from ``place``."""

    start: int
    place: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def place_end(self) -> int:
        return self.place + self.length


def find_spans(page: str, text: str) -> list[tuple[int, int]]:
    """Return the slices of ``page`` that match ``text``; none rather than doubtful ones."""
    if len(text) < STRONG:
        only = page.find(text) if text else -1
        return [(only, only + len(text))] if only >= 0 and page.find(text, only + 1) < 0 else []
    far = _find_runs(page, text, GRAM)
    first, last = _densest_slice(far, 2 * len(text) + 200)
    near = [Run(run.start, run.place + first, run.length) for run in _find_runs(page[first:last], text, SHORT_GRAM)]
    runs = near + [run for run in far if run.length >= STRONG and not first <= run.place < last]
    if sum(run.length for run in near) < SHARE * len(text) and not any(run.length >= CERTAIN for run in runs):
        return []
    bridges = [  # short differences between two runs that follow each other in both texts
        (before.place_end, after.place)
        for before, after in pairwise(near)
        if 0 < after.place - before.place_end <= BRIDGED and after.start - before.end <= BRIDGED
    ]
    return [(run.place, run.place_end) for run in runs] + bridges


def _find_runs(page: str, text: str, gram: int) -> list[Run]:
    """Return the longest runs from the text's start on; of equally long ones, the one nearest to the last."""
    places: dict[str, list[int]] = defaultdict(list)
    for place in range(len(page) - gram + 1):
        known = places[page[place : place + gram]]
        if len(known) < PLACES:
            known.append(place)
    runs: list[Run] = []
    at = expected = 0
    while at <= len(text) - gram:
        candidates = [
            Run(at, place, _common_length(text, at, page, place, gram))
            for place in places.get(text[at : at + gram], ())
        ]
        if candidates:
            best = max(candidates, key=lambda run: (run.length, -abs(run.place - expected)))
            runs.append(best)
            at, expected = best.end, best.place_end
        else:
            at, expected = at + 1, expected + 1
    return runs


def _common_length(text: str, at: int, page: str, place: int, known: int) -> int:
    """Return the number of equal letters, of which ``known`` are equal; compares pieces of growing length."""
    length, step = known, known
    while step:
        one, other = text[at + length : at + length + step], page[place + length : place + length + step]
        if one and one == other:
            length, step = length + len(one), step * 2
        else:
            step //= 2
    return length


def _densest_slice(runs: Sequence[Run], reach: int) -> tuple[int, int]:
    """Return the slice of the page, ``reach`` letters long and some around it, that has most of the text."""
    ordered = sorted(runs, key=lambda run: run.place)
    best, bounds, held, first = 0, (0, 0), 0, 0
    for run in ordered:
        held += run.length
        while run.place_end - ordered[first].place > max(reach, run.length):
            held -= ordered[first].length
            first += 1
        if held > best:
            best, bounds = held, (ordered[first].place, run.place_end)
    margin = reach // 4
    return max(0, bounds[0] - margin), bounds[1] + margin
