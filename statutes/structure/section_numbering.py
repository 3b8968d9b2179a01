"""What the lines of a whole law tell of its headings: which bare numbers count, and what holds what."""

from __future__ import annotations

import re
from itertools import pairwise

from statutes.structure import quotation_marks
from statutes.structure.patterns import (
    ARTICLE_EN,
    BARE,
    CLAUSES,
    CODED,
    DIVISION,
    DIVISIONS,
    GOES_ON,
    SECOND,
    SECTION_EN,
    SPOKEN_OF,
    SUBSECTION,
    SUBSECTIONS,
)


def sections_with_subsections(texts: list[str]) -> frozenset[str]:
    """Return the numbers of sections whose label shares its line with their first subsection.

    "Section 4(a) The board …" is one where "(b) The clerk …" goes on with it, and no "Section 4(b)" begins anew.
    """
    headed: dict[str, set[str]] = {}
    followed: set[str] = set()
    number, own, awaited = "", frozenset[str](), frozenset[str]()
    for text in texts:
        at = 0
        if found := SECTION_EN.match(text):
            at = found.end()
            more = None if SPOKEN_OF.match(text, at) else SUBSECTIONS.match(text, at)
            groups = re.findall(SUBSECTION, more[0]) if more else []
            number, own = found[1], frozenset(groups)
            awaited = frozenset(SECOND[group] for group in groups if group in SECOND)
            if more:
                headed.setdefault(number, set()).add(more[0])
                at = more.end()
        for clause in CLAUSES.finditer(text, at) if awaited else ():
            first = re.match(SUBSECTION, clause[1])
            if first and first[0] in own:
                awaited = frozenset()  # a list within the subsection
            elif first and first[0] in awaited:
                followed.add(number)
    return frozenset(number for number in followed if len(headed[number]) == 1)


def articles_kind(texts: list[str]) -> str:
    """Return as what articles hold sections: in California chapters hold them, in Indiana they hold chapters."""
    chapter = next((n for n, text in enumerate(texts) if DIVISIONS["chapter"].match(text)), None)
    article = next((n for n, text in enumerate(texts) if ARTICLE_EN.match(text)), None)
    if chapter is None or article is None:
        return "chapter"
    return "subchapter" if chapter < article else "subtitle"


def is_divided(texts: list[str]) -> bool:
    """Tell whether parts hold divisions: the first part begins before the first division."""
    first = next((n for n, text in enumerate(texts) if DIVISION.match(text)), len(texts))
    return any(DIVISIONS["part"].match(text) for text in texts[:first])


def code_section_lines(texts: list[str]) -> frozenset[str]:
    """Return the lines that only a number makes sections of a code: three or more, nearly all of them in order."""
    found: list[str] = []
    last: tuple[int, ...] = ()
    seen = 0
    for before, text in pairwise(["", *texts]):
        if (match := CODED.match(text)) and not GOES_ON.search(before):
            seen += 1
            number = tuple(map(int, match[1].split(".")))
            if number > last:
                found.append(text)
                last = number
    return frozenset(found) if len(found) > 2 and len(found) > 0.8 * seen else frozenset()


def numbered_section_lines(texts: list[str]) -> frozenset[str]:
    """Return the lines that only a number makes sections: they count from 1 on, in the body or in its contents."""
    found: list[str] = []
    last = 0
    quoted = frozenset(quotation_marks.quoted_lines(texts, lambda text, _: BARE.match(text[1:]) is not None))
    for line, (before, text) in enumerate(pairwise(["", *texts])):
        if DIVISIONS["annex"].match(text):
            break  # its paragraphs are numbered too
        if line in quoted:
            continue
        if (match := BARE.match(text)) is None or GOES_ON.search(before):
            continue
        number = int(match[1].removesuffix(match[2]))
        is_again = number == 1 and bool(found) and text.startswith(found[0].rstrip(" .0123456789"))
        if number == last + 1 or is_again or (number == last and match[2]):
            found.append(text)
            last = number
    return frozenset(found) if last > 1 else frozenset()
