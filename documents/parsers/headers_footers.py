"""Running heads and feet: the lines that a document prints at the edges of its pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from documents.markdown import code_fences

FEWEST_PAGES = 4
SHARE = 0.4  # of the pages with text: books print one head on the left pages and another on the right ones
OUTERMOST = 4  # lines at either edge among which heads and feet are looked for
STRAY = 16  # lines from an edge: where two columns are read one after the other, a foot comes between them
LONGEST = 200
_NUMBER = re.compile(r"(?<!\d)\d{1,6}(?!\d)")
_HEADING = re.compile(r" {0,3}#{1,6}+ ")


class Page:
    """The lines of one page that show anything, outermost first from either edge."""

    def __init__(self, number: int, text: str) -> None:
        self.lines = text.split("\n")
        fenced = _fenced(text)
        self.shown = [index for index, line in enumerate(self.lines) if line.strip()]
        self.keys = {
            index: _keys(number, self.lines[index])
            for place, index in enumerate(self.shown)
            if (place < STRAY or place >= len(self.shown) - STRAY) and index not in fenced
        }

    def outermost(self) -> set[str]:
        """What stands at the edges, be it running or not."""
        edges = (*self.shown[:OUTERMOST], *self.shown[-OUTERMOST:])
        return {key for index in edges for key in self.keys.get(index, ())}

    def running(self, among: set[str]) -> Iterator[tuple[int, str]]:
        """From each edge inward, as long as every line is one of those; a heading is at the head of a page."""
        for upward in (False, True):
            for index in islice(reversed(self.shown) if upward else self.shown, OUTERMOST):
                key = self.known(index, among)
                if key is None or (upward and _HEADING.match(self.lines[index])):
                    break
                yield index, key

    def known(self, index: int, among: set[str]) -> str | None:
        """The line's key if it is one of those."""
        return next((key for key in self.keys.get(index, ()) if key in among), None)

    def without(self, dropped: set[int]) -> str:
        """The page's text less these lines; all of it when nothing else would be left."""
        kept = "\n".join(line for index, line in enumerate(self.lines) if index not in dropped).strip("\n")
        return kept if dropped and any(map(str.isalnum, kept)) else "\n".join(self.lines)


def remove_headers_footers(pages: Sequence[str]) -> list[str]:
    """Leave each running line only on the first page that has it, as the heading that it is there, if any."""
    with_text = sum(bool(page.strip()) for page in pages)
    fewest = max(FEWEST_PAGES, SHARE * with_text)
    if with_text < fewest:
        return list(pages)
    sheets = [Page(number, text) for number, text in enumerate(pages)]
    votes = Counter(key for sheet in sheets for key in sheet.outermost())
    candidates = {key for key, count in votes.items() if count >= fewest}
    # Only what has nothing but such lines outside it: what a booklet says first under every title is not its head.
    proofs = Counter(key for sheet in sheets for key in {key for _, key in sheet.running(candidates)})
    proven = {key for key, count in proofs.items() if count >= fewest}
    seen: set[str] = set()
    return [sheet.without(_dropped(sheet, proven, seen)) for sheet in sheets]


def _dropped(sheet: Page, proven: set[str], seen: set[str]) -> set[int]:
    """The lines to leave out: those at the edges, and of a head that is not there, the outermost that strayed."""
    edge = dict(sheet.running(proven))
    stray: dict[str, int] = {}
    places: dict[str, list[int]] = {}
    by_distance = sorted(sheet.keys, key=lambda index: min(index, len(sheet.lines) - index))
    for index in by_distance:
        key = edge.get(index) or sheet.known(index, proven)
        if key is not None and (index in edge or any(map(str.isalpha, key))):
            places.setdefault(key, []).append(index)
    kept = {_first(sheet, found) for key, found in places.items() if key not in seen}
    for key, found in places.items():
        rest = [index for index in found if index not in kept]
        if rest and not any(index in edge for index in rest):
            stray[key] = rest[0]
    seen.update(places)
    return (set(edge) | set(stray.values())) - kept


def _first(sheet: Page, found: list[int]) -> int:
    return next((index for index in found if _HEADING.match(sheet.lines[index])), found[0])


def _keys(page: int, line: str) -> tuple[str, ...]:
    """What the line may be recognized by elsewhere: its words, or its words and how its number differs from the page's.

    A heading's number counts something else, and a table's rows are never running.
    """
    if len(line) > LONGEST or line.lstrip().startswith("|"):
        return ()
    words = " ".join(line.replace("*", "").lstrip("# ").split())
    numbers = list(_NUMBER.finditer(words))
    if not numbers or (_is_emphatic(line) and any(map(str.isalpha, words))):
        return (words,) if words else ()
    counted = (f"{words[: n.start()]}\0{int(n[0]) - page:+}{words[n.end() :]}" for n in (numbers[0], numbers[-1]))
    return (words, *dict.fromkeys(counted))


def _is_emphatic(line: str) -> bool:
    return bool(_HEADING.match(line)) or (line.startswith("**") and line.endswith("**"))


def _fenced(text: str) -> set[int]:
    """The numbers of the lines that are code."""
    inside: set[int] = set()
    line = offset = 0
    for start, end, _ in code_fences.find_code_fences(text):
        first = line + text.count("\n", offset, start)
        line = first + text.count("\n", start, end)
        inside.update(range(first, line + 1))
        offset = end
    return inside
