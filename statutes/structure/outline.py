"""Which lines of a statute are headings of divisions and articles, in Spanish and in English."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015"
AFTER_LABEL = " \t.:;" + DASHES
_DASH = re.escape(DASHES)
ROMAN = r"(?:(?=[IVXLCDM])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b)"
_UNITS = r"primer[oa]?|segund[oa]|tercer[oa]?|cuart[oa]|quint[oa]|sext[oa]|s[eé]ptim[oa]|octav[oa]|noven[oa]"
_TENS = (
    r"(?:d[eé]cim|vig[eé]sim|trig[eé]sim|cuadrag[eé]sim|quincuag[eé]sim|sexag[eé]sim|septuag[eé]sim|octog[eé]sim"
    r"|nonag[eé]sim|cent[eé]sim)[oa]"
)
ORDINALS_ES = rf"{_UNITS}|{_TENS}(?:\s?(?:{_UNITS}))?|und[eé]cim[oa]|duod[eé]cim[oa]|[uú]nic[oa]|preliminar"
_ORDINALS_EN = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|one|two|three|four|five|six|seven|eight|nine|ten"
)
_COUNT = (
    rf"(?:{ROMAN}|\d{{1,4}}(?:-?[A-Z]|\.?[ºª°])?|[A-Z]|(?:{ORDINALS_ES})|(?:{_ORDINALS_EN}))"
    r"(?:[\s-]+(?:bis|ter|qu[aá]ter)\b)?"
)
_LATIN = r"[\s-]*(?:bis|ter|qu[aá]ter|quinquies|quintus|sexies|septies|octies|nonies|decies|unvicies|vicies)\b"
_LETTER = rf"(?:\s?\.?[{_DASH}]|\s|)(?-i:[A-Z]{{1,2}})\b(?=\s*[.:{_DASH}]|\s*$|\s+(?-i:[A-ZÁÉÍÓÚÑ])|\s+(?:bis|ter)\b)"
_NUMBER = (
    r"\d{1,4}(?:\.\d{1,3}){0,3}"
    rf"(?:\s?[oºª°](?!\w)(?:\.(?={_LATIN}))?|\.[ºª°])?"  # "2o. Bis"
    rf"(?:{_LATIN}|{_LETTER}|[{_DASH}]\d{{1,2}}\b){{0,3}}(?:\s\d{{1,2}}(?=\s?\.))?"
)
_END = rf"(?:\s*[.:;]?\s*[{_DASH}]+|\s*[.:](?!\d)|\s*$|\s+(?=(?-i:[A-ZÁÉÍÓÚÑ¿¡«])|[\[(\"“]))"

_NAMES = {
    "annex": r"ANEXO|AP[EÉ]NDICE|ANNEX|SCHEDULE|APPENDIX",
    "book": r"LIBRO|BOOK",
    "part": r"PARTE|PART",
    "subpart": r"SUBPARTE|SUBPART",
    "title": r"T[IÍ]TULO|TITLE",
    "subtitle": r"SUBT[IÍ]TULO|SUBTITLE",
    "chapter": r"CAP[IÍ]TULO|CHAPTER",
    "subchapter": r"SUBCAP[IÍ]TULO|SUBCHAPTER",
    "section": r"SECCI[OÓ]N",
    "subsection": r"SUBSECCI[OÓ]N",
}
DIVISIONS = {kind: re.compile(rf"(?:{names})\s+({_COUNT})(?!\w)", re.I) for kind, names in _NAMES.items()}
# In Chile a chapter is divided so.
_PARAGRAPH = re.compile(rf"P[AÁ]RRAFO\s+({ROMAN}|\d{{1,3}}(?:\s?\.?[ºª°])?)(?!\w)\s*[.:{_DASH}]*\s*", re.I)
# An annex that is the only one has no number, and stands alone in its line.
_ANNEX = re.compile(r"(?-i:ANEXOS?|AP[EÉ]NDICES?|ANNEX(?:ES)?|SCHEDULES?|APPENDIX)\s*[.:]?$")
# Where articles are what is cited, a section holds them: in the laws of the European Union, for one.
_SECTION_OF_ARTICLES = re.compile(rf"SECTION\s+({_COUNT})$", re.I)
_TRANSITORY = re.compile(
    r"(?:(?:ART[IÍ]CULOS?|DISPOSICI[OÓ]N(?:ES)?|R[EÉ]GIMEN)\s+)?"
    r"(?:TRANSITORI[OA]S?|T\s+R\s+A\s+N\s+S\s+I\s+T\s+O\s+R\s+I\s+[OA](?:\s+S)?|TRANSITIONAL PROVISIONS)"
    r"(?:\s+DEL?(?:\s+(?:LOS\s+)?DECRETOS?(?:\s+DE(?:\s+REFORMAS?)?)?)?)?\s*[:.]?\s*$",
    re.I,
)
_PROVISIONS = re.compile(
    r"(DISPOSICIONES\s+(?:ADICIONALES|DEROGATORIAS|FINALES"
    r"|COMPLEMENTARIAS(?:\s+(?:FINALES|TRANSITORIAS|MODIFICATORIAS|DEROGATORIAS))?))\s*[:.]?$",
    re.I,
)
_ARTICLE_ES = re.compile(
    rf"(?:ART[IÍ]CULO|ART\.)\s*((?:{_NUMBER}|(?:{ORDINALS_ES})(?:{_LATIN})?)(?:\s+transitorio)?|transitorio)(?!\w){_END}",
    re.I,
)
_PROVISION = re.compile(
    rf"(DISPOSICI[OÓ]N\s+(?:ADICIONAL|TRANSITORIA|DEROGATORIA|FINAL)\s+(?:{ORDINALS_ES}))(?!\w){_END}", re.I
)
_ARTICLE_EN = re.compile(
    rf"(?:ARTICLE|ART\.)\s+(\d{{1,4}}[a-z]{{1,2}}(?=\s*$|\s*[.:{_DASH}])|{_NUMBER}|{ROMAN}|(?:{_ORDINALS_EN})\b)(?!\w){_END}",
    re.I,
)
_SECTION_EN = re.compile(
    rf"\[?(?:SECTION|SEC\.|§{{1,2}})\s*(\d{{1,5}}[A-Z]{{0,2}}(?:[.:{_DASH}]\d{{1,5}}[A-Z]{{0,2}}){{0,5}})(?!\w)"
    rf"(?:(?<=\d)(?:,|\s+to|\s+and)\s+\d{{1,5}}[A-Za-z]{{0,2}}(?=\.\s)|\s*[.:](?!\d)|\s*[{_DASH}]++(?!\d)|\s*(?=\()|\s*$|\s+(?=(?-i:[A-Z])|[\[\"“]))",
    re.I,
)
# Subsections may have headings of their own: "Section 4(a)", "§ 12-3-4(b)(1)".
_SUBSECTION = r"\((?:\d{1,3}|[A-Za-z]|[ivx]{2,5}|[IVX]{2,5}|aa|bb|cc)\)"
_SUBSECTIONS = re.compile(rf"(?:{_SUBSECTION})+(?!\w|\s*[{_DASH}]\s*\()")
_LAST_SUBSECTIONS = re.compile(rf"(?<=[a-z0-9])\s*({_SUBSECTION}(?:\s*{_SUBSECTION})*)[\s.:]*$")
_SECOND = {"(a)": "(b)", "(A)": "(B)", "(1)": "(2)", "(i)": "(ii)", "(I)": "(II)"}
_CLAUSES = re.compile(rf"(?:^|[.;:,{_DASH}]\s+(?:and\s+|or\s+)?)((?:{_SUBSECTION})+)(?=\s)")
_ORDINAL = re.compile(rf"({ORDINALS_ES})(?:\s*[.:]?\s*[{_DASH}]+|\s*[.:]\s+(?=(?-i:[A-ZÁÉÍÓÚÑ])))", re.I)
# What begins a paragraph of its own: fractions, clauses, subsections.
_CLAUSE = rf"(?:{ROMAN}|[ivx]{{1,6}}|[a-zA-Z]|\d{{1,3}})"
ENUMERATED = re.compile(
    rf"(?:\({_CLAUSE}\)\s?)+|(?:{_CLAUSE}[.)][{_DASH}]?|\d{{1,2}}\.?[ºª°][.)]?[{_DASH}]?|{ROMAN}\s*[.{_DASH}]+|[•*{_DASH}])\s+"
)
GOES_ON = re.compile(
    r"(?:[,;(]|\b(?:el|los|las?|al|del?|en|por|con|según|y|[eoua]|que|art[ií]culos?|fracci[oó]n"
    r"|the|of|to|in|and|or|under|with|by|see|from|this|that|section|sections|article|for))$",
    re.I,
)
# After a number: "Título II de esta Ley", "Section 4(a) of this Act", "PART 2 shall" are spoken of, not begun.
_SPOKEN_OF = re.compile(
    r"\s*(?:\([A-Za-z0-9]{1,4}\)\s*)*(?:[,;)]|(?-i:de|del|of|shall|que|y|and|or|o|se|en|in|is|are|may|[a-z]{2,})\b)"
)


# A bill that is quoted whole: "Proyecto de ley: “Artículo 1°.- …"
_QUOTED = re.compile(r"[\"“«](?=[A-ZÁÉÍÓÚ])")
_BILL = re.compile(r"\b(?:proyecto de ley|ley|decreto)\s*:$", re.I)
# British and Commonwealth acts only number their sections: "1 Overview", "2A. Tariffs.—(1) A supplier …".
_BARE = re.compile(rf"(\d{{1,4}}([A-Z]{{0,2}}))(?:\.\s*(?:[{_DASH}]\s*)?|\s+)(?=[A-Z(“])")


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
        self.language = language(texts)
        sections = sum(1 for text in texts if _SECTION_EN.match(text)) if self.language == "en" else 0
        articles = sum(1 for text in texts if _ARTICLE_EN.match(text)) if self.language == "en" else 0
        # Where an English law has sections, its articles hold them; where it has none, articles are what is cited.
        self.is_by_section = sections >= max(1, articles)
        self.whole = whole(texts) if self.is_by_section and self.language == "en" else frozenset[str]()
        self._numbered = _numbered(texts) if self.language == "en" and not (sections or articles) else frozenset()
        kinds = [kind for text in texts for kind, pattern in DIVISIONS.items() if pattern.match(text)]
        self.has_inner_parts = "part" in kinds and "chapter" in kinds[: kinds.index("part")]

    def heading(self, text: str, before: str = "", *, in_transitory: bool = False) -> Heading | None:
        """Return what a line begins, or None. ``before`` is the line that it may go on with.

        Transitory articles may be bare ordinals: "Primero.-".
        """
        if text in self._numbered and not GOES_ON.search(before) and (found := _BARE.match(text)):
            return Heading("article", key(found[1]), f"Section {found[1]}", text[found.end() :])
        if _QUOTED.match(text) and _BILL.search(before):
            text = text[1:]
        if not text[:1].isupper() and not text.startswith(("§", "[§")):
            return None
        if _TRANSITORY.match(text):
            return Heading("title", "transitorios", text.strip(" :."), "")
        # Whoever refers to an article does not shout: after "in Congress assembled," an act begins.
        if before and GOES_ON.search(before) and not (text.split()[0].isupper() and not before.isupper()):
            return None
        return self._article(text, in_transitory=in_transitory) or self._division(text)

    def _division(self, text: str) -> Heading | None:
        for kind, pattern in DIVISIONS.items():
            if found := pattern.match(text):
                return None if _SPOKEN_OF.match(text[found.end() :]) else _heading(kind, found[1], text, found.end())
        if _ANNEX.match(text):
            return Heading("annex", "", text.strip(" :."), "")
        if self.language == "es":
            return _provision_or_paragraph(text)
        if found := (_ARTICLE_EN if self.is_by_section else _SECTION_OF_ARTICLES).match(text):
            return _heading("chapter" if self.is_by_section else "section", found[1], text, found.end())
        return None

    def _article(self, text: str, *, in_transitory: bool) -> Heading | None:
        if self.language == "es":
            found = _ARTICLE_ES.match(text) or _PROVISION.match(text)
        else:
            found = (_SECTION_EN if self.is_by_section else _ARTICLE_EN).match(text)
        if found is None and in_transitory:
            found = _ORDINAL.match(text)
        if found is None or (text[found.end() :][:1] == "(" and _SPOKEN_OF.match(text[found.end() :])):
            return None
        number, end = found[1], found.end()
        if found.re is _SECTION_EN and number not in self.whole and (more := _SUBSECTIONS.match(text, end)):
            number, end = number + more[0], more.end()
        return _heading("article", number, text, end)


def whole(texts: list[str]) -> frozenset[str]:
    """Return the numbers of sections whose label shares its line with their first subsection.

    "Section 4(a) The board …" is one where "(b) The clerk …" goes on with it, and no "Section 4(b)" begins anew.
    """
    headed: dict[str, set[str]] = {}
    followed: set[str] = set()
    number, own, awaited = "", frozenset[str](), frozenset[str]()
    for text in texts:
        at = 0
        if found := _SECTION_EN.match(text):
            at = found.end()
            more = None if _SPOKEN_OF.match(text, at) else _SUBSECTIONS.match(text, at)
            groups = re.findall(_SUBSECTION, more[0]) if more else []
            number, own = found[1], frozenset(groups)
            awaited = frozenset(_SECOND[group] for group in groups if group in _SECOND)
            if more:
                headed.setdefault(number, set()).add(more[0])
                at = more.end()
        for clause in _CLAUSES.finditer(text, at) if awaited else ():
            first = re.match(_SUBSECTION, clause[1])
            if first and first[0] in own:
                awaited = frozenset()  # a list within the subsection
            elif first and first[0] in awaited:
                followed.add(number)
    return frozenset(number for number in followed if len(headed[number]) == 1)


def _provision_or_paragraph(text: str) -> Heading | None:
    if found := _PROVISIONS.match(text):
        return _heading("title", found[1], text, len(text))
    found = _PARAGRAPH.match(text)
    if found is None or _SPOKEN_OF.match(text[found.end() :]):
        return None
    return _heading("section", found[1], text, found.end())


def _numbered(texts: list[str]) -> frozenset[str]:
    """Return the lines that only a number makes sections: they count from 1 on, in the body or in its contents."""
    found: list[str] = []
    last = 0
    for before, text in pairwise(["", *texts]):
        if DIVISIONS["annex"].match(text):
            break  # its paragraphs are numbered too
        if (match := _BARE.match(text)) is None or GOES_ON.search(before):
            continue
        number = int(match[1].removesuffix(match[2]))
        is_again = number == 1 and bool(found) and text.startswith(found[0].rstrip(" .0123456789"))
        if number == last + 1 or is_again or (number == last and match[2]):
            found.append(text)
            last = number
    return frozenset(found) if last > 1 else frozenset()


def _heading(kind: str, number: str, text: str, end: int) -> Heading:
    return Heading(kind, key(number), text[:end].strip(AFTER_LABEL), text[end:].lstrip(AFTER_LABEL))


def key(number: str) -> str:
    """Return a number as it is compared: "12 Bis" is "12-bis", "3o" is "3", "Décimo Primero" "decimo-primero".

    Subsections stay: "4 (a)" is "4(a)".
    """
    plain = unicodedata.normalize("NFKD", re.sub(r"(?<=\d)\s?\.?[ºª°]", "", number))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = re.sub(r"(?<=\d)\s?o\b", "", plain)
    below = _LAST_SUBSECTIONS.search(plain)
    plain = re.sub(r"[^a-z0-9.:]+", "-", plain[: below.start()] if below else plain).replace(".-", "-").strip("-.:")
    return plain + "".join(below[1].split()) if below else plain


_SPANISH = re.compile(r"\b(?:el|la|los|las|de|del|que|en|por|para|se|art[ií]culo|ley|cap[ií]tulo)\b", re.I)
_ENGLISH = re.compile(r"\b(?:the|of|and|to|in|shall|section|chapter|act|any|or|by|be)\b", re.I)


def language(texts: list[str]) -> str:
    """Return "es" or "en", by the commonest words of the first lines."""
    sample = "\n".join(texts[:2000])[:200_000]
    return "es" if len(_SPANISH.findall(sample)) > len(_ENGLISH.findall(sample)) else "en"
