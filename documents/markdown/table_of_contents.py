"""Tables of contents in normalized markdown: the ranges of lines with dot leaders and page numbers."""

import re
from collections.abc import Iterator

FEWEST_ENTRIES = 3  # below a heading that says what they are
FEWEST_UNNAMED = 8  # without one: a list of prices in growing order is shorter
MAX_GAP = 300  # characters between two entries: a long title, or a chapter's title and the running head of a page
# A table's cell that begins with a dot and a number is what the local parser leaves of a leader.
# Begins only where a run of dots does, or a hostile run would be read again from each of its dots.
_LEADER = re.compile(
    r"[.…·](?<![.…·]{2})(?<![.…·] [.…·])(?:(?<=…) ?…|(?: ?[.…·]){2}|(?<=\| \.)(?= [0-9]))(?: ?[.…·])*+[ |*_]*+"
    r"(?P<page>[0-9]{1,4}|[ivxlc]{1,7})(?! ?[%$€£]|[\w.,/])[ |*_]*+"
)
_TABLE_HEAD = re.compile(r"[^\n]*\|[^\n]*\n *[|:-][ |:-]*\Z")
_TITLE = re.compile(r"contents|índice|contenido|sommaire|inhalt", re.IGNORECASE)
_MAX_TITLE = 60


def find_contents(text: str, pages: int) -> list[tuple[int, int]]:
    """Return the ranges of the tables of contents, in order; none if the text has nothing else.

    ``pages`` is the document's last page: no entry without a title above refers beyond it.
    """
    ranges = list(_find_ranges(text, pages))
    end, rest = 0, ""
    for start, stop in ranges:
        rest = rest or text[end:start].strip()
        end = stop
    return ranges if rest or text[end:].strip() else []


def _find_ranges(text: str, pages: int) -> Iterator[tuple[int, int]]:
    run: list[tuple[int, int, int]] = []
    done = 0
    for match in _LEADER.finditer(text):
        number = int(match["page"]) if match["page"].isdigit() else 0
        if run and (match.start() - run[-1][1] > MAX_GAP or number < run[-1][2]):
            if contents := _range_of(text, done, run, pages):
                yield contents
                done = contents[1]
            run = []
        run.append((match.start(), match.end(), number))
    if contents := _range_of(text, done, run, pages):
        yield contents


def _range_of(text: str, floor: int, run: list[tuple[int, int, int]], pages: int) -> tuple[int, int] | None:
    if len(run) < FEWEST_ENTRIES:
        return None
    first = run[0][0]
    start = max(text.rfind("\n", max(first - MAX_GAP, 0), first) + 1, floor)
    floor = max(start - MAX_GAP, floor)
    if head := _TABLE_HEAD.search(text, floor, max(start - 1, floor)):
        start = head.start()
    above = floor + len(text[floor:start].rstrip())
    title = max(text.rfind("\n", max(above - _MAX_TITLE, 0), above) + 1, floor)
    is_named = above - title <= _MAX_TITLE and bool(_TITLE.search(text, title, above))
    if not is_named and (len(run) < FEWEST_UNNAMED or run[-1][2] > pages):
        return None
    return title if is_named else start, run[-1][1]
