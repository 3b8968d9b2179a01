"""Section numbering of English statutes: bare numbers that count as sections, and which divisions contain which."""

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
)  # fmt: skip


def sections_with_subsections(texts: list[str]) -> frozenset[str]:
    """Return the numbers of sections whose label is in one line with their first subsection.

    "Section 4(a) The board …" is one where "(b) The clerk …" continues it, and no "Section 4(b)" begins another.
    """
    headed: dict[str, set[str]] = {}
    continued: set[str] = set()
    number, own, expected = "", frozenset[str](), frozenset[str]()
    for text in texts:
        end = 0
        if match := SECTION_EN.match(text):
            end = match.end()
            more = None if SPOKEN_OF.match(text, end) else SUBSECTIONS.match(text, end)
            groups = re.findall(SUBSECTION, more[0]) if more else []
            number, own = match[1], frozenset(groups)
            expected = frozenset(SECOND[group] for group in groups if group in SECOND)
            if more:
                headed.setdefault(number, set()).add(more[0])
                end = more.end()
        for clause in CLAUSES.finditer(text, end) if expected else ():
            first = re.match(SUBSECTION, clause[1])
            if first and first[0] in own:
                expected = frozenset()  # a list within the subsection
            elif first and first[0] in expected:
                continued.add(number)
    return frozenset(number for number in continued if len(headed[number]) == 1)


def articles_kind(texts: list[str]) -> str:
    """Return the kind of division that articles are: in California chapters contain them, in Indiana the reverse."""
    chapter = next((n for n, text in enumerate(texts) if DIVISIONS["chapter"].match(text)), None)
    article = next((n for n, text in enumerate(texts) if ARTICLE_EN.match(text)), None)
    if chapter is None or article is None:
        return "chapter"
    return "subchapter" if chapter < article else "subtitle"


def is_divided(texts: list[str]) -> bool:
    """Tell whether parts contain divisions: the first part begins before the first division."""
    first = next((n for n, text in enumerate(texts) if DIVISION.match(text)), len(texts))
    return any(DIVISIONS["part"].match(text) for text in texts[:first])


def code_section_lines(texts: list[str]) -> frozenset[str]:
    """Return the lines that are sections of a code by their number alone: three or more, nearly all in order."""
    lines: list[str] = []
    last: tuple[int, ...] = ()
    count = 0
    for before, text in pairwise(["", *texts]):
        if (match := CODED.match(text)) and not GOES_ON.search(before):
            count += 1
            number = tuple(map(int, match[1].split(".")))
            if number > last:
                lines.append(text)
                last = number
    return frozenset(lines) if len(lines) > 2 and len(lines) > 0.8 * count else frozenset()


def numbered_section_lines(texts: list[str]) -> frozenset[str]:
    """Return the lines that are sections by a bare number: these count from 1 on, in the body or in its contents."""
    lines: list[str] = []
    last = 0
    quoted = frozenset(quotation_marks.quoted_lines(texts, lambda text, _: BARE.match(text[1:]) is not None))
    for line, (before, text) in enumerate(pairwise(["", *texts])):
        if DIVISIONS["annex"].match(text):
            break  # its paragraphs are numbered too
        if line in quoted or (match := BARE.match(text)) is None or GOES_ON.search(before):
            continue
        number = int(match[1].removesuffix(match[2]))
        is_restart = number == 1 and bool(lines) and text.startswith(lines[0].rstrip(" .0123456789"))
        if number == last + 1 or is_restart or (number == last and match[2]):
            lines.append(text)
            last = number
    return frozenset(lines) if last > 1 else frozenset()
