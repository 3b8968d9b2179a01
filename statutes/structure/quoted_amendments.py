"""Amending laws: lines that quote another law, whose headings are not headings of this law."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from statutes.structure import quotation_marks
from statutes.structure.headings import Heading, Outline, number_key
from statutes.structure.patterns import BILL

END_OF_AMENDMENTS = ("transitorios", "disposiciones-")
LEAD_LINES, MAX_LEAD_CHARS = 4, 4_000  # of an article that are searched for what it amends
_AMENDS = re.compile(
    r"\b(?:reform|adici[oó]n|modif[ií]|sustit[uú]|incorp[oó]r|agr[eé]g|reempl[aá]|añ[aá]d|introd[uú]|redactad|queda"
    r"|amend|insert|substitut|replac|adding\b|added\b|read\b)"
)
# A law that is issued as a whole is this law's own text: "Se expide la Ley de Aguas, para quedar como sigue:"
_ISSUES = re.compile(
    r"\b(?:se (?:expid|aprueb|promulg|emit)\w+|[ée]xp[íi]dese|apru[ée]base) (?:el|la|los) (?:nuev[ao] |presente )?"
    r"(?:ley|c[óo]digo|reglamento|estatuto|texto (?:refundido|ordenado|[úu]nico))\b"
    r"(?!.*(?:\bse (?:reform|adicion|modific|derog|sustitu|agreg|añad)|[áéíóú]\w{1,6}se\b))"  # "Sustitúyese"
)
_NUMBER = re.compile(
    r"\d+[A-Z]{0,2}\b(?:[.-]\d+[A-Z]{0,2}|-[A-Z]\b)*(?:\.?[ºª°o]\b\.?)?(?:\s(?:bis|ter|qu[aá]ter)\b)?", re.I
)


def amendment_lines(texts: Sequence[str], outline: Outline, contents: Set[int]) -> frozenset[int]:
    """Return the numbers of quoted lines: between marks, or from "para quedar como sigue:" to the next article."""

    def begins(text: str, before: str) -> bool:
        return not BILL.search(before) and outline.heading(text.lstrip(quotation_marks.OPENING)) is not None

    marked = frozenset(quotation_marks.quoted_lines(texts, begins))
    skipped = marked | contents
    leads = [n for n, text in enumerate(texts) if text[-1:] in (":", "—") and n not in skipped and _amends(texts, n)]
    if not leads:
        return marked
    headings = [
        (number, heading)
        for number, text in enumerate(texts)
        if number not in skipped and (heading := outline.heading(text, texts[number - 1] if number else ""))
    ]
    last = {heading.number: number for number, heading in headings if heading.kind == "article"}
    reader = _Reader(texts, frozenset(leads), last)
    for number, heading in headings:
        reader.read(number, heading)
    return marked | reader.quoted


def _amends(texts: Sequence[str], number: int) -> bool:
    """Tell whether a line introduces another law's text that is not between marks."""
    if number + 1 < len(texts) and texts[number + 1][:1] in quotation_marks.CLOSED_BY:
        return False
    lead = " ".join(texts[max(number - LEAD_LINES, 0) : number + 1])[-MAX_LEAD_CHARS:].lower()
    return _AMENDS.search(lead) is not None and _ISSUES.search(lead) is None


@dataclass(slots=True)
class _Reader:
    """Tells this law's own articles from those that it only quotes, heading by heading."""

    texts: Sequence[str]
    leads: Set[int]
    last: dict[str, int]  # by number, the line in which an article of this number begins for the last time
    quoted: set[int] = field(default_factory=set)
    own: Heading | None = None
    line: int = 0  # of the own one
    is_quoting: bool = False  # the own one has quoted an article already
    between: list[int] = field(default_factory=list)  # divisions since the own article, or the last quoted one
    numbers: frozenset[str] | None = None  # that the own article names

    def read(self, number: int, heading: Heading) -> None:
        if heading.kind == "annex" or heading.number.startswith(END_OF_AMENDMENTS):
            self.own = None
            return
        if heading.kind != "article":
            self.between.append(number)
            return
        # Other lists of clauses also end in a colon: a lead stands right above the article, or above its divisions.
        is_led = self.is_quoting or any(self.line <= at - 1 in self.leads for at in (*self.between, number))
        self.is_quoting = is_led and self._is_quoted(number, heading)
        if self.is_quoting:
            self.quoted.update(self.between, [number])
        else:
            self.own, self.line, self.numbers = heading, number, None
        self.between.clear()

    def _is_quoted(self, number: int, heading: Heading) -> bool:
        if self.own is None:
            return False
        if self.numbers is None:
            lead = " ".join(self.texts[self.line : number])[:MAX_LEAD_CHARS]
            self.numbers = frozenset(map(number_key, _NUMBER.findall(lead.partition(self.own.label)[2])))
        own, other = _leading_digits(self.own.number), _leading_digits(heading.number)
        if own is None:
            return other is not None  # "Artículo primero" amends "Artículo 5"
        following = _following_numbers(self.own.number)
        if heading.number in following:
            return heading.number in self.numbers and self.last[heading.number] > number
        if heading.number in self.numbers:
            return True
        return own != other and any(self.last.get(next_number, 0) > number for next_number in following)


def _leading_digits(number: str) -> int | None:
    digits = re.match(r"\d+", number)
    return int(digits[0]) if digits else None


def _following_numbers(number: str) -> tuple[str, ...]:
    """Return the numbers that may come next: 4 after 3 Bis, 1.02 or 2.01 after 1.01."""
    whole, point, part = number.partition(".")
    if point and part.isdigit():
        return (f"{whole}.{int(part) + 1:0{len(part)}}", f"{(_leading_digits(whole) or 0) + 1}.{1:0{len(part)}}")
    return (str((_leading_digits(number) or 0) + 1),)
