"""Which lines of a statute are headings of divisions and articles, in Spanish and in English."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from statutes.structure import section_numbering
from statutes.structure.patterns import (
    AFTER_LABEL,
    ANNEX,
    ARTICLE_EN,
    ARTICLE_ES,
    BARE,
    BILL,
    CODED,
    DIVISION,
    DIVISIONS,
    GENERAL,
    GOES_ON,
    LAST_SUBSECTIONS,
    ORDINAL,
    PARAGRAPH,
    PROVISION,
    PROVISIONS,
    QUOTED,
    RULE_EN,
    SECTION_EN,
    SECTION_OF_ARTICLES,
    SPOKEN_ANNEX,
    SPOKEN_OF,
    SUBSECTIONS,
    TRANSITORY,
)


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that begins a division or an article; ``rest`` is what follows the label in the same line."""

    kind: str  # a division's, or "article"
    number: str
    label: str
    rest: str


class Outline:
    """Reads headings of one law, whose language and unit are told by the whole of it."""

    def __init__(self, texts: list[str]) -> None:
        self.language = detect_language(texts)
        sections = sum(1 for text in texts if SECTION_EN.match(text)) if self.language == "en" else 0
        articles = sum(1 for text in texts if ARTICLE_EN.match(text)) if self.language == "en" else 0
        coded = (
            section_numbering.code_section_lines(texts) if self.language == "en" and not sections else frozenset[str]()
        )
        # Where an English law has sections, its articles hold them; where it has none, articles are what is cited.
        self.is_by_section = sections >= max(1, articles) or len(coded) > articles
        rules = sum(1 for text in texts if RULE_EN.match(text)) if self.language == "en" else 0
        self._unit_en = ARTICLE_EN if articles or rules < 2 else RULE_EN
        self.whole = (
            section_numbering.sections_with_subsections(texts)
            if self.is_by_section and self.language == "en"
            else frozenset[str]()
        )
        self.numbered = coded if len(coded) > articles else frozenset[str]()
        if self.language == "en" and not (sections or articles or rules > 1 or coded):
            self.numbered = section_numbering.numbered_section_lines(texts)
        kinds = [kind for text in texts for kind, pattern in DIVISIONS.items() if pattern.match(text)]
        self._division_kind = "subpart" if "part" in kinds and section_numbering.is_divided(texts) else "book"
        self._has_general = any(GENERAL.match(text) and ORDINAL.match(then) for text, then in pairwise(texts))
        self._articles_kind = section_numbering.articles_kind(texts) if self.language == "en" else "chapter"
        self.has_inner_parts = "part" in kinds and "chapter" in kinds[: kinds.index("part")]

    def heading(self, text: str, before: str = "", *, in_transitory: bool = False) -> Heading | None:
        """Return what a line begins, or None. ``before`` is the line that it may go on with.

        Transitory articles may be bare ordinals: "Primero.-".
        """
        if text in self.numbered and not GOES_ON.search(before) and (found := CODED.match(text) or BARE.match(text)):
            return Heading("article", number_key(found[1]), f"Section {found[1]}", text[found.end() :])
        if QUOTED.match(text) and BILL.search(before):
            text = text[1:]
        if not text[:1].isupper() and not text.startswith(("§", "[§")):
            return None
        if self._has_general and (found := GENERAL.match(text)):
            return _heading("title", found[1], text, len(text))
        if SPOKEN_ANNEX.match(text) and before.endswith((".", ":", ";")):
            return Heading("annex", "", text, "")
        if TRANSITORY.match(text):
            return Heading("title", "transitorios", text.strip(" :."), "")
        # Whoever refers to an article does not shout: after "in Congress assembled," an act begins.
        if before and GOES_ON.search(before) and not (text.split()[0].isupper() and not before.isupper()):
            return None
        return self._article(text, in_transitory=in_transitory) or self._division(text)

    def _division(self, text: str) -> Heading | None:
        for kind, pattern in DIVISIONS.items():
            if found := pattern.match(text):
                return None if SPOKEN_OF.match(text[found.end() :]) else _heading(kind, found[1], text, found.end())
        if ANNEX.match(text):
            return Heading("annex", "", text.strip(" :."), "")
        if self.language == "es":
            return _provision_or_paragraph(text)
        if found := DIVISION.match(text):
            is_spoken_of = SPOKEN_OF.match(text[found.end() :])
            return None if is_spoken_of else _heading(self._division_kind, found[1], text, found.end())
        if found := (ARTICLE_EN if self.is_by_section else SECTION_OF_ARTICLES).match(text):
            return _heading(self._articles_kind if self.is_by_section else "section", found[1], text, found.end())
        return None

    def _article(self, text: str, *, in_transitory: bool) -> Heading | None:
        if self.language == "es":
            found = ARTICLE_ES.match(text) or PROVISION.match(text)
        else:
            found = (SECTION_EN if self.is_by_section else self._unit_en).match(text)
        if found is None and in_transitory:
            found = ORDINAL.match(text)
        if found is None or (text[found.end() :][:1] == "(" and SPOKEN_OF.match(text[found.end() :])):
            return None
        number, end = found[1], found.end()
        if found.re is SECTION_EN and number not in self.whole and (more := SUBSECTIONS.match(text, end)):
            number, end = number + more[0], more.end()
        return _heading("article", number, text, end)


def _provision_or_paragraph(text: str) -> Heading | None:
    if found := PROVISIONS.match(text):
        return _heading("title", found[1], text, len(text))
    found = PARAGRAPH.match(text)
    if found is None or SPOKEN_OF.match(text[found.end() :]):
        return None
    return _heading("section", found[1], text, found.end())


def _heading(kind: str, number: str, text: str, end: int) -> Heading:
    return Heading(
        kind, number_key(number) or "innumerado", text[:end].strip(AFTER_LABEL), text[end:].lstrip(AFTER_LABEL)
    )


def number_key(number: str) -> str:
    """Return a number as it is compared: "12 Bis" is "12-bis", "3o" is "3", "Décimo Primero" "decimo-primero".

    Subsections stay: "4 (a)" is "4(a)".
    """
    plain = unicodedata.normalize("NFKD", re.sub(r"(?<=\d)\s?\.?[ºª°]", "", number))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = re.sub(r"(?<=\d)\s?o\b", "", plain)
    below = LAST_SUBSECTIONS.search(plain)
    plain = re.sub(r"[^a-z0-9.:]+", "-", plain[: below.start()] if below else plain).replace(".-", "-").strip("-.:")
    return plain + "".join(below[1].split()) if below else plain


_SPANISH = re.compile(r"\b(?:el|la|los|las|de|del|que|en|por|para|se|art[ií]culo|ley|cap[ií]tulo)\b", re.I)
_ENGLISH = re.compile(r"\b(?:the|of|and|to|in|shall|section|chapter|act|any|or|by|be)\b", re.I)


def detect_language(texts: list[str]) -> str:
    """Return "es" or "en", by the commonest words of the first lines."""
    sample = "\n".join(texts[:2000])[:200_000]
    return "es" if len(_SPANISH.findall(sample)) > len(_ENGLISH.findall(sample)) else "en"
