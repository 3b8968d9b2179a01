"""Running headers and footers of a document, removed from its pages."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from documents.markdown.code_fences import find_code_fences

FEWEST_PAGES = 4


SHARE = 0.4  # of the pages with text: books print one header on left pages and another on right ones


OUTERMOST = 4  # lines at either edge that may be headers and footers


STRAY = 16  # lines from an edge: where two columns are read one after the other, a footer comes between them


LONGEST = 200


_COUNT = re.compile(r"(?<!\d)\d{1,6}(?!\d)")


_HEADING = re.compile(r" {0,3}#{1,6}+ ")


class Page:
    """The visible lines of one page, with the keys by which those near an edge are recognized on other pages."""

    def __init__(self, number: int, text: str) -> None:
        self.lines = text.split("\n")
        fenced = _fenced_lines(text)
        self.shown = [index for index, line in enumerate(self.lines) if line.strip()]
        self.keys = {
            index: _line_keys(number, self.lines[index])
            for place, index in enumerate(self.shown)
            if (place < STRAY or place >= len(self.shown) - STRAY) and index not in fenced
        }

    def running_lines(self, among: set[str]) -> Iterator[tuple[int, str]]:
        """Yield lines from each edge inward while their keys are in ``among``; a heading is only a header."""
        for upward in (False, True):
            for index in islice(reversed(self.shown) if upward else self.shown, OUTERMOST):
                key = self.find_key(index, among)
                if key is None or (upward and _HEADING.match(self.lines[index])):
                    break
                yield index, key

    def find_key(self, index: int, among: set[str]) -> str | None:
        """Return the line's key that is in ``among``, if any."""
        return next((key for key in self.keys.get(index, ()) if key in among), None)


def remove_headers_footers(pages: Sequence[str]) -> list[str]:
    """Keep each running line only on the first page that has it, there as a heading if it is one."""
    with_text = sum(bool(page.strip()) for page in pages)
    fewest = max(FEWEST_PAGES, SHARE * with_text)
    if with_text < fewest:
        return list(pages)
    sheets = [Page(number, text) for number, text in enumerate(pages)]
    votes: Counter[str] = Counter()
    for sheet in sheets:
        outermost = (*sheet.shown[:OUTERMOST], *sheet.shown[-OUTERMOST:])
        votes.update({key for index in outermost for key in sheet.keys.get(index, ())})
    candidates = {key for key, count in votes.items() if count >= fewest}
    # Only lines with nothing but such lines outside them: what a booklet says first under every title is no header.
    counts = Counter(key for sheet in sheets for key in {key for _, key in sheet.running_lines(candidates)})
    running = {key for key, count in counts.items() if count >= fewest}
    seen: set[str] = set()
    texts = []
    for sheet in sheets:
        dropped = _lines_to_drop(sheet, running, seen)
        rest = "\n".join(line for index, line in enumerate(sheet.lines) if index not in dropped).strip("\n")
        # A page of running lines only stays as it is.
        texts.append(rest if dropped and any(map(str.isalnum, rest)) else "\n".join(sheet.lines))
    return texts


def _lines_to_drop(sheet: Page, running: set[str], seen: set[str]) -> set[int]:
    """Return the running lines at the edges and, where one is not at its edge, its outermost stray line."""
    edge = dict(sheet.running_lines(running))
    places: dict[str, list[int]] = {}
    for index in sorted(sheet.keys, key=lambda index: min(index, len(sheet.lines) - index)):  # outermost first
        key = edge.get(index) or sheet.find_key(index, running)
        if key is not None and (index in edge or any(map(str.isalpha, key))):
            places.setdefault(key, []).append(index)
    kept_lines = {
        next((index for index in indexes if _HEADING.match(sheet.lines[index])), indexes[0])
        for key, indexes in places.items()
        if key not in seen
    }
    strays = set()
    for indexes in places.values():
        rest = [index for index in indexes if index not in kept_lines]
        if rest and not any(index in edge for index in rest):
            strays.add(rest[0])
    seen.update(places)
    return (set(edge) | strays) - kept_lines


def _line_keys(page: int, line: str) -> tuple[str, ...]:
    """Return the keys of a line: its words, and its words with the difference of its number from the page's.

    A heading's number counts something else, and a table's rows are never running.
    """
    if len(line) > LONGEST or line.lstrip().startswith("|"):
        return ()
    words = " ".join(line.replace("*", "").lstrip("# ").split())
    numbers = list(_COUNT.finditer(words))
    is_emphatic = bool(_HEADING.match(line)) or (line.startswith("**") and line.endswith("**"))
    if not numbers or (is_emphatic and any(map(str.isalpha, words))):
        return (words,) if words else ()
    counted = (f"{words[: n.start()]}\0{int(n[0]) - page:+}{words[n.end() :]}" for n in (numbers[0], numbers[-1]))
    return (words, *dict.fromkeys(counted))


def _fenced_lines(text: str) -> set[int]:
    inside: set[int] = set()
    line = offset = 0
    for start, end, _ in find_code_fences(text):
        first = line + text.count("\n", offset, start)
        line = first + text.count("\n", start, end)
        inside.update(range(first, line + 1))
        offset = end
    return inside
