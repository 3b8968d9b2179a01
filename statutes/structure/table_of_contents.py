"""A law's table of contents: lines that name articles and are none."""

from __future__ import annotations

import re

from statutes.structure.headings import Heading, Outline

LEADERS = re.compile(r"(?:\.{4,}|(?:\. ){3,}|…{2,}|_{4,}|\t)\s*\.*\s*\d{1,4}$")
LONGEST = 500  # characters of an entry: the search for leaders looks at each dot, and at all that follow it
_PAGE_NUMBER = re.compile(r"\s\d{1,4}$")
_BEGINS = re.compile(
    r"(?:[IÍ]NDICE(?:\s+GENERAL)?|CONTENIDO|SUMARIO|TABLA\s+DE\s+CONTENIDOS?|(?:TABLE\s+OF\s+)?CONTENTS"
    r"|ARRANGEMENT\s+OF\s+(?:SECTIONS|ACT))\s*[.:]?$",
    re.I,
)
_ANNEX = re.compile(r"(?:ANEXOS?|AP[ÉE]NDICES?|ANNEX(?:ES)?|SCHEDULES?|APPENDIX)\b", re.I)
# Acts of Congress have their contents in section 1: "The table of contents of this Act is as follows:".
_IN_SECTION = re.compile(r"\btable\s+of\s+contents\b[^.;]{0,80}\bfollows\s*:$", re.I)


def contents_lines(texts: list[str], outline: Outline) -> set[int]:
    """Return the numbers of the lines that are a table of contents, its heading among them."""
    found = {number for number in range(len(texts)) for number in _within_section(number, texts, outline)}
    found |= {number for number, text in enumerate(texts) if _has_leaders(text) and _named(outline, text)}
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
    stop = listed[again - 1][0] + 1
    while stop < listed[again][0] and _ANNEX.match(texts[stop]):
        stop += 1
    return range(start, stop)


def _within_section(number: int, texts: list[str], outline: Outline) -> range:
    """Return what a section of the act lists: headings one after the other, until one of them is met again."""
    if not texts[number].endswith(":") or not _IN_SECTION.search(
        " ".join(texts[max(number - 1, 0) : number + 1])[-LONGEST:]
    ):
        return range(0)
    listed: set[tuple[str, str]] = set()
    for at in range(number + 1, len(texts)):
        found = _named(outline, texts[at])
        if found and _identity(found) in listed:
            return range(number + 1, at)
        if found is None and not (listed and texts[at][:1].islower()):
            return range(number + 1, at)
        if found:
            listed.add(_identity(found))
    return range(0)


def _has_leaders(text: str) -> bool:
    return len(text) <= LONGEST and LEADERS.search(text) is not None


def _named(outline: Outline, text: str) -> Heading | None:
    if len(text) > LONGEST:
        return None
    stripped = LEADERS.sub("", text).rstrip(" .")
    return outline.heading(stripped) or outline.heading(_PAGE_NUMBER.sub("", stripped)) or outline.heading(text)


def _is_article(outline: Outline, text: str) -> bool:
    found = outline.heading(text)
    return found is not None and found.kind == "article"


def _identity(heading: Heading) -> tuple[str, str]:
    return heading.kind, heading.number
