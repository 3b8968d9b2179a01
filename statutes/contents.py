"""A law's table of contents: lines that name articles and are none."""

from __future__ import annotations

import re

from statutes.outline import Heading, Outline

LEADERS = re.compile(r"(?:\.{4,}|(?:\. ){3,}|…{2,}|_{4,}|\t)\s*\.*\s*\d{1,4}$")
LONGEST = 500  # characters of an entry: the search for leaders looks at each dot, and at all that follow it
_PAGE_NUMBER = re.compile(r"\s\d{1,4}$")
_BEGINS = re.compile(
    r"(?:[IÍ]NDICE(?:\s+GENERAL)?|CONTENIDO|SUMARIO|TABLA\s+DE\s+CONTENIDOS?|(?:TABLE\s+OF\s+)?CONTENTS"
    r"|ARRANGEMENT\s+OF\s+SECTIONS)\s*[.:]?$",
    re.I,
)


def lines(texts: list[str], outline: Outline) -> set[int]:
    """Return the numbers of the lines that are a table of contents, its heading among them."""
    found = {number for number, text in enumerate(texts) if _has_leaders(text) and _named(outline, text)}
    for number, text in enumerate(texts):
        if number in found:
            continue
        if _is_article(outline, text):
            break
        if _BEGINS.match(text):
            found.update(_block(number, texts, outline))
    first = next((n for n, text in enumerate(texts) if n not in found and _is_article(outline, text)), 0)
    return found | {number for number in range(first) if _has_leaders(texts[number])}


def _block(start: int, texts: list[str], outline: Outline) -> range:
    """From the heading on, until what is listed first is met again: there the law itself begins."""
    listed = [(n, found) for n in range(start + 1, len(texts)) if (found := _named(outline, texts[n]))]
    if not listed:
        return range(start, start + 1)
    first = _identity(listed[0][1])
    again = next((place for place, (_, found) in enumerate(listed) if place and _identity(found) == first), None)
    if again is None:
        return range(start, start)
    return range(start, listed[again - 1][0] + 1)


def _has_leaders(text: str) -> bool:
    return len(text) <= LONGEST and LEADERS.search(text) is not None


def _named(outline: Outline, text: str) -> Heading | None:
    if len(text) > LONGEST:
        return None
    stripped = LEADERS.sub("", text).rstrip(" .")
    return outline.heading(stripped) or outline.heading(_PAGE_NUMBER.sub("", stripped))


def _is_article(outline: Outline, text: str) -> bool:
    found = outline.heading(text)
    return found is not None and found.kind == "article"


def _identity(heading: Heading) -> tuple[str, str]:
    return heading.kind, heading.number
