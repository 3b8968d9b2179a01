"""Alignment of a passage with a page that has the same words in other spacing, punctuation and order. Linear."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

GRAM, SHORT_GRAM = 12, 6  # letters of an n-gram that is searched anywhere, and near other matches
PLACES = 16  # compared for each n-gram: forms repeat themselves
STRONG = 24  # consecutive letters that are no coincidence
CERTAIN = 40  # consecutive letters that suffice even as a small part: a passage may end in this page's first lines
SHARE = 0.5  # of the text, where no run is that long
BRIDGED = 12  # letters that may differ between two runs: a footnote mark, another spelling of a character


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
