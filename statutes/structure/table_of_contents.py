"""Table of contents of a law: lines that name articles and begin none."""

import re

from statutes.structure.headings import Heading, Outline

LEADERS = re.compile(r"(?:\.{4,}|(?:\. ){3,}|…{2,}|_{4,}|\t)\s*\.*\s*\d{1,4}$")
MAX_ENTRY_CHARS = 500  # the search for leaders looks at each dot, and at all that follow it
_PAGE_NUMBER = re.compile(r"\s\d{1,4}$")
_CONTENTS = re.compile(
    r"(?:[IÍ]NDICE(?:\s+GENERAL)?|CONTENIDO|SUMARIO|TABLA\s+DE\s+CONTENIDOS?|(?:TABLE\s+OF\s+)?CONTENTS"
    r"|ARRANGEMENT\s+OF\s+(?:SECTIONS|ACT))\s*[.:]?$",
    re.I,
)
_ANNEX = re.compile(r"(?:ANEXOS?|AP[ÉE]NDICES?|ANNEX(?:ES)?|SCHEDULES?|APPENDIX)\b", re.I)
# Acts of Congress have their contents in section 1: "The table of contents of this Act is as follows:".
_IN_SECTION = re.compile(r"\btable\s+of\s+contents\b[^.;]{0,80}\bfollows\s*:$", re.I)


def contents_lines(texts: list[str], outline: Outline) -> set[int]:
    def is_article(text: str) -> bool:
        heading = outline.heading(text)
        return heading is not None and heading.kind == "article"

    lines = {line for number in range(len(texts)) for line in _section_contents(number, texts, outline)}
    lines |= {number for number, text in enumerate(texts) if _has_leaders(text) and _entry(outline, text)}
    for number, text in enumerate(texts):
        if number in lines:
            continue
        if is_article(text):
            break
        if _CONTENTS.match(text):
            lines.update(_listed_lines(number, texts, outline))
    first = next((n for n, text in enumerate(texts) if n not in lines and is_article(text)), 0)
    return lines | {number for number in range(first) if _has_leaders(texts[number])}


def _listed_lines(start: int, texts: list[str], outline: Outline) -> range:
    """Return the lines from the heading "CONTENTS" until its first entry comes again: there the law itself begins."""
    entries = [(n, entry) for n in range(start + 1, len(texts)) if (entry := _entry(outline, texts[n]))]
    if not entries:
        return range(start, start + 1)
    first = _identity(entries[0][1])
    again = next((place for place, (_, entry) in enumerate(entries) if place and _identity(entry) == first), None)
    if again is None:
        return range(start, start)
    stop = entries[again - 1][0] + 1
    while stop < entries[again][0] and _ANNEX.match(texts[stop]):
        stop += 1
    return range(start, stop)


def _section_contents(number: int, texts: list[str], outline: Outline) -> range:
    """Return the entries below a section's lead: consecutive headings, until one of them comes again."""
    lead = " ".join(texts[max(number - 1, 0) : number + 1])[-MAX_ENTRY_CHARS:]
    if not texts[number].endswith(":") or not _IN_SECTION.search(lead):
        return range(0)
    seen: set[tuple[str, str]] = set()
    for line in range(number + 1, len(texts)):
        entry = _entry(outline, texts[line])
        if (entry and _identity(entry) in seen) or (entry is None and not (seen and texts[line][:1].islower())):
            return range(number + 1, line)
        if entry:
            seen.add(_identity(entry))
    return range(0)


def _has_leaders(text: str) -> bool:
    return len(text) <= MAX_ENTRY_CHARS and LEADERS.search(text) is not None


def _entry(outline: Outline, text: str) -> Heading | None:
    if len(text) > MAX_ENTRY_CHARS:
        return None
    stripped = LEADERS.sub("", text).rstrip(" .")
    return outline.heading(stripped) or outline.heading(_PAGE_NUMBER.sub("", stripped)) or outline.heading(text)


def _identity(heading: Heading) -> tuple[str, str]:
    return heading.kind, heading.number
