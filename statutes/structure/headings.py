"""Detection of headings of divisions and articles in a statute's lines, in Spanish and in English."""

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from statutes.structure import patterns, section_numbering
from statutes.structure.patterns import (
    ARTICLE_EN,
    BARE,
    BILL,
    CODED,
    DIVISIONS,
    GENERAL,
    GOES_ON,
    ORDINAL,
    RULE_EN,
    SECTION_EN,
    SPOKEN_OF,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that begins a division or an article; ``rest`` is the text after the label in the same line."""

    kind: str  # a division's, or "article"
    number: str
    label: str
    rest: str


class Outline:
    """Detects headings of one law, whose language and unit of citation are derived from all its lines."""

    def __init__(self, texts: list[str]) -> None:
        self.language = detect_language(texts)
        is_english = self.language == "en"
        none: frozenset[str] = frozenset()
        sections = sum(1 for text in texts if SECTION_EN.match(text)) if is_english else 0
        articles = sum(1 for text in texts if ARTICLE_EN.match(text)) if is_english else 0
        rules = sum(1 for text in texts if RULE_EN.match(text)) if is_english else 0
        coded = section_numbering.code_section_lines(texts) if is_english and not sections else none
        # Where an English law has sections, its articles contain them; where it has none, articles are cited.
        self.is_by_section = sections >= max(1, articles) or len(coded) > articles
        self._unit_en = ARTICLE_EN if articles or rules < 2 else RULE_EN
        self.whole = none
        if self.is_by_section and is_english:
            self.whole = section_numbering.sections_with_subsections(texts)
        self.numbered = coded if len(coded) > articles else none
        if is_english and not (sections or articles or rules > 1 or coded):
            self.numbered = section_numbering.numbered_section_lines(texts)
        kinds = [kind for text in texts for kind, pattern in DIVISIONS.items() if pattern.match(text)]
        self._division_kind = "subpart" if "part" in kinds and section_numbering.is_divided(texts) else "book"
        self._has_general = any(GENERAL.match(text) and ORDINAL.match(below) for text, below in pairwise(texts))
        self._articles_kind = section_numbering.articles_kind(texts) if is_english else "chapter"
        self.has_inner_parts = "part" in kinds and "chapter" in kinds[: kinds.index("part")]

    def heading(self, text: str, before: str = "", *, in_transitory: bool = False) -> Heading | None:
        """Return the heading that a line begins with, or None. ``before`` is the line that it may continue.

        Transitory articles may be bare ordinals: "Primero.-".
        """
        if text in self.numbered and not GOES_ON.search(before) and (match := CODED.match(text) or BARE.match(text)):
            return Heading("article", number_key(match[1]), f"Section {match[1]}", text[match.end() :])
        if patterns.QUOTED.match(text) and BILL.search(before):
            text = text[1:]
        if not text[:1].isupper() and not text.startswith(("§", "[§")):
            return None
        if self._has_general and (match := GENERAL.match(text)):
            return _heading("title", match[1], text, len(text))
        if patterns.SPOKEN_ANNEX.match(text) and before.endswith((".", ":", ";")):
            return Heading("annex", "", text, "")
        if patterns.TRANSITORY.match(text):
            return Heading("title", "transitorios", text.strip(" :."), "")
        # A mere reference to an article is not in capitals: after "in Congress assembled," an act begins.
        if before and GOES_ON.search(before) and not (text.split()[0].isupper() and not before.isupper()):
            return None
        return self._article(text, in_transitory=in_transitory) or self._division(text)

    def _article(self, text: str, *, in_transitory: bool) -> Heading | None:
        if self.language == "es":
            match = patterns.ARTICLE_ES.match(text) or patterns.PROVISION.match(text)
        else:
            match = (SECTION_EN if self.is_by_section else self._unit_en).match(text)
        if match is None and in_transitory:
            match = ORDINAL.match(text)
        if match is None or (text[match.end() :][:1] == "(" and SPOKEN_OF.match(text[match.end() :])):
            return None
        number, end = match[1], match.end()
        if match.re is SECTION_EN and number not in self.whole and (more := patterns.SUBSECTIONS.match(text, end)):
            number, end = number + more[0], more.end()
        return _heading("article", number, text, end)

    def _division(self, text: str) -> Heading | None:
        for kind, pattern in DIVISIONS.items():
            if match := pattern.match(text):
                return _unless_reference(kind, match, text)
        if patterns.ANNEX.match(text):
            return Heading("annex", "", text.strip(" :."), "")
        if self.language == "es":
            if match := patterns.PROVISIONS.match(text):
                return _heading("title", match[1], text, len(text))
            return _unless_reference("section", patterns.PARAGRAPH.match(text), text)
        if match := patterns.DIVISION.match(text):
            return _unless_reference(self._division_kind, match, text)
        if match := (ARTICLE_EN if self.is_by_section else patterns.SECTION_OF_ARTICLES).match(text):
            return _heading(self._articles_kind if self.is_by_section else "section", match[1], text, match.end())
        return None


def _unless_reference(kind: str, match: re.Match[str] | None, text: str) -> Heading | None:
    if match is None or SPOKEN_OF.match(text[match.end() :]):
        return None
    return _heading(kind, match[1], text, match.end())


def _heading(kind: str, number: str, text: str, end: int) -> Heading:
    key = number_key(number) or "innumerado"
    return Heading(kind, key, text[:end].strip(patterns.AFTER_LABEL), text[end:].lstrip(patterns.AFTER_LABEL))


def number_key(number: str) -> str:
    """Return a number in its comparable form: "12 Bis" is "12-bis", "3o" "3", "Décimo Primero" "decimo-primero".

    Subsections stay: "4 (a)" is "4(a)".
    """
    plain = unicodedata.normalize("NFKD", re.sub(r"(?<=\d)\s?\.?[ºª°]", "", number))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = re.sub(r"(?<=\d)\s?o\b", "", plain)
    below = patterns.LAST_SUBSECTIONS.search(plain)
    plain = re.sub(r"[^a-z0-9.:]+", "-", plain[: below.start()] if below else plain).replace(".-", "-").strip("-.:")
    return plain + "".join(below[1].split()) if below else plain


_SPANISH = re.compile(r"\b(?:el|la|los|las|de|del|que|en|por|para|se|art[ií]culo|ley|cap[ií]tulo)\b", re.I)
_ENGLISH = re.compile(r"\b(?:the|of|and|to|in|shall|section|chapter|act|any|or|by|be)\b", re.I)


def detect_language(texts: list[str]) -> str:
    """Return "es" or "en", by the commonest words of the first lines."""
    sample = "\n".join(texts[:2000])[:200_000]
    return "es" if len(_SPANISH.findall(sample)) > len(_ENGLISH.findall(sample)) else "en"
