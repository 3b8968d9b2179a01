"""Which lines are the words of another law, quoted to amend it: the headings among them are not this law's."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from statutes.structure import quotation_marks
from statutes.structure.headings import Heading, Outline, number_key
from statutes.structure.patterns import BILL

ENDS_IT = ("transitorios", "disposiciones-")
LEAD_LINES, LONGEST_LEAD = 4, 4_000  # lines, characters of an article that are searched for what it amends
_AMENDS = re.compile(
    r"\b(?:reform|adici[oó]n|modif[ií]|sustit[uú]|incorp[oó]r|agr[eé]g|reempl[aá]|añ[aá]d|introd[uú]|redactad|queda"
    r"|amend|insert|substitut|replac|adding\b|added\b|read\b)"
)
# What is issued whole is this law's own: "Se expide la Ley de Aguas, para quedar como sigue:"
_ISSUES = re.compile(
    r"\b(?:se (?:expid|aprueb|promulg|emit)\w+|[ée]xp[íi]dese|apru[ée]base) (?:el|la|los) (?:nuev[ao] |presente )?"
    r"(?:ley|c[óo]digo|reglamento|estatuto|texto (?:refundido|ordenado|[úu]nico))\b"
    r"(?!.*(?:\bse (?:reform|adicion|modific|derog|sustitu|agreg|añad)|[áéíóú]\w{1,6}se\b))"  # "Sustitúyese"
)
_NUMBER = re.compile(
    r"\d+[A-Z]{0,2}\b(?:[.-]\d+[A-Z]{0,2}|-[A-Z]\b)*(?:\.?[ºª°o]\b\.?)?(?:\s(?:bis|ter|qu[aá]ter)\b)?", re.I
)


def amendment_lines(texts: Sequence[str], outline: Outline, contents: Set[int]) -> frozenset[int]:
    """Return the numbers of lines that begin nothing, whatever they look like.

    What is quoted stands between marks, or after "para quedar como sigue:" until the article that comes next.
    """

    def begins(text: str, before: str) -> bool:
        return not BILL.search(before) and outline.heading(text.lstrip(quotation_marks.OPENING)) is not None

    marked = frozenset(quotation_marks.quoted_lines(texts, begins))
    return marked | _amended(texts, outline, marked | contents)


def _amended(texts: Sequence[str], outline: Outline, known: Set[int]) -> frozenset[int]:
    leads = [n for n, text in enumerate(texts) if text[-1:] in (":", "—") and n not in known and _amends(texts, n)]
    if not leads:
        return frozenset()
    headings = [
        (number, found)
        for number, text in enumerate(texts)
        if number not in known and (found := outline.heading(text, texts[number - 1] if number else ""))
    ]
    reader = _Reader(texts, frozenset(leads), {found.number: at for at, found in headings if found.kind == "article"})
    for number, found in headings:
        reader.read(number, found)
    return frozenset(reader.found)


def _amends(texts: Sequence[str], number: int) -> bool:
    """Tell whether a line leads to another law's words that no marks enclose."""
    if number + 1 < len(texts) and texts[number + 1][:1] in quotation_marks.CLOSED_BY:
        return False
    said = " ".join(texts[max(number - LEAD_LINES, 0) : number + 1])[-LONGEST_LEAD:]
    return _AMENDS.search(said.lower()) is not None and _ISSUES.search(said.lower()) is None


@dataclass(slots=True)
class _Reader:
    """Goes through the headings: which article is this law's own, and which it only quotes."""

    texts: Sequence[str]
    leads: Set[int]
    last: dict[str, int]  # the line in which an article of this number begins for the last time
    found: set[int] = field(default_factory=set)
    own: Heading | None = None
    line: int = 0  # of the own one
    is_quoting: bool = False  # the own one has quoted an article already
    between: list[int] = field(default_factory=list)  # divisions since it, or since what it quoted last
    named: frozenset[str] | None = None  # the numbers that an amending article names

    def read(self, number: int, heading: Heading) -> None:
        if heading.kind == "annex" or heading.number.startswith(ENDS_IT):
            self.own = None
        elif heading.kind != "article":
            self.between.append(number)
        elif self._is_led(number) and self._is_quoted(number, heading):
            self.is_quoting = True
            self.found.update(self.between, [number])
            self.between.clear()
        else:
            self.own, self.line, self.named, self.is_quoting = heading, number, None, False
            self.between.clear()

    def _is_led(self, number: int) -> bool:
        """Tell whether a lead stands right above it, or its divisions: a list of clauses is led to by much else."""
        return self.is_quoting or any(self.line <= one - 1 in self.leads for one in (*self.between, number))

    def _is_quoted(self, number: int, heading: Heading) -> bool:
        if self.own is None:
            return False
        if self.named is None:
            said = " ".join(self.texts[self.line : number])[:LONGEST_LEAD]
            self.named = frozenset(number_key(one) for one in _NUMBER.findall(said.partition(self.own.label)[2]))
        own, other = _base(self.own.number), _base(heading.number)
        if own is None:
            return other is not None  # "Artículo primero" amends "Artículo 5"
        follow = _following(self.own.number)
        if heading.number in follow:
            return heading.number in self.named and self.last[heading.number] > number
        if heading.number in self.named:
            return True
        return own != other and any(self.last.get(one, 0) > number for one in follow)


def _base(number: str) -> int | None:
    digits = re.match(r"\d+", number)
    return int(digits[0]) if digits else None


def _following(number: str) -> tuple[str, ...]:
    """Return the numbers that may come after one: 4 after 3 Bis, 1.02 or 2.01 after 1.01."""
    whole, point, part = number.partition(".")
    if point and part.isdigit():
        return (f"{whole}.{int(part) + 1:0{len(part)}}", f"{(_base(whole) or 0) + 1}.{1:0{len(part)}}")
    return (str((_base(number) or 0) + 1),)
