"""Where a text stands in another that says the same in other spaces, marks and order. Linear in both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

GRAM, SHORT_GRAM = 12, 6  # letters by which a place is found, anywhere and in the neighbourhood of others
PLACES = 16  # looked at for each gram: forms repeat themselves
STRONG = 24  # letters in a row that are no coincidence
CERTAIN = 40  # so many are enough, be they a small part only: a passage may end on this page's first lines
SHARE = 0.5  # of the text, where no run is that long
BRIDGED = 12  # letters that may differ between two runs: a footnote's mark, a sign that is written otherwise


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` letters that are the same in the text, from ``start``, and on the page, from ``place``."""

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
    """Return the slices of ``page`` that are of ``text``; none rather than doubtful ones."""
    if len(text) < STRONG:
        only = page.find(text) if text else -1
        return [(only, only + len(text))] if only >= 0 and page.find(text, only + 1) < 0 else []
    far = _runs(page, text, GRAM)
    first, last = _neighbourhood(far, 2 * len(text) + 200)
    near = [Run(run.start, run.place + first, run.length) for run in _runs(page[first:last], text, SHORT_GRAM)]
    runs = near + [run for run in far if run.length >= STRONG and not first <= run.place < last]
    if sum(run.length for run in near) < SHARE * len(text) and not any(run.length >= CERTAIN for run in runs):
        return []
    return [(run.place, run.place_end) for run in runs] + list(_bridges(near))


def _runs(page: str, text: str, gram: int) -> list[Run]:
    """From the text's start on, the longest each time; of equally long ones that which follows the last."""
    places = _places(page, gram)
    found: list[Run] = []
    at = expected = 0
    while at <= len(text) - gram:
        tried = [Run(at, place, _common(text, at, page, place, gram)) for place in places.get(text[at : at + gram], ())]
        if tried:
            best = max(tried, key=lambda run: (run.length, -abs(run.place - expected)))
            found.append(best)
            at, expected = best.end, best.place_end
        else:
            at, expected = at + 1, expected + 1
    return found


def _places(page: str, gram: int) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place in range(len(page) - gram + 1):
        known = places[page[place : place + gram]]
        if len(known) < PLACES:
            known.append(place)
    return places


def _common(text: str, at: int, page: str, place: int, known: int) -> int:
    """How many letters are the same from there on, the first of them known; compared in growing pieces."""
    length, step = known, known
    while step:
        one, other = text[at + length : at + length + step], page[place + length : place + length + step]
        if one and one == other:
            length, step = length + len(one), step * 2
        else:
            step //= 2
    return length


def _neighbourhood(runs: Sequence[Run], reach: int) -> tuple[int, int]:
    """Return the slice of the page, ``reach`` letters long, that has most of the text, and a little around it."""
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


def _bridges(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """Short differences between two runs that follow each other in both texts."""
    for before, after in pairwise(runs):
        if 0 < after.place - before.place_end <= BRIDGED and after.start - before.end <= BRIDGED:
            yield before.place_end, after.place
