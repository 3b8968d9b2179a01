"""Detection of headings of divisions and articles in a statute's lines, in Spanish and in English."""

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from statutes.structure import patterns, quotation_marks


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
        sections = sum(1 for text in texts if patterns.SECTION_EN.match(text)) if is_english else 0
        articles = sum(1 for text in texts if patterns.ARTICLE_EN.match(text)) if is_english else 0
        rules = sum(1 for text in texts if patterns.RULE_EN.match(text)) if is_english else 0
        coded = code_section_lines(texts) if is_english and not sections else none
        # Where an English law has sections, its articles contain them; where it has none, articles are cited.
        self.is_by_section = sections >= max(1, articles) or len(coded) > articles
        self._unit_en = patterns.ARTICLE_EN if articles or rules < 2 else patterns.RULE_EN
        self.whole = none
        if self.is_by_section and is_english:
            self.whole = sections_with_subsections(texts)
        self.numbered = coded if len(coded) > articles else none
        if is_english and not (sections or articles or rules > 1 or coded):
            self.numbered = numbered_section_lines(texts)
        kinds = [kind for text in texts for kind, pattern in patterns.DIVISIONS.items() if pattern.match(text)]
        self._division_kind = "subpart" if "part" in kinds and is_divided(texts) else "book"
        self._has_general = any(
            patterns.GENERAL.match(text) and patterns.ORDINAL.match(below) for text, below in pairwise(texts)
        )
        self._articles_kind = articles_kind(texts) if is_english else "chapter"
        self.has_inner_parts = "part" in kinds and "chapter" in kinds[: kinds.index("part")]

    def heading(self, text: str, before: str = "", *, in_transitory: bool = False) -> Heading | None:
        """Return the heading that a line begins with, or None. ``before`` is the line that it may continue."""
        if (
            text in self.numbered
            and not patterns.GOES_ON.search(before)
            and (match := patterns.CODED.match(text) or patterns.BARE.match(text))
        ):
            return Heading("article", number_key(match[1]), f"Section {match[1]}", text[match.end() :])
        if patterns.QUOTED.match(text) and patterns.BILL.search(before):
            text = text[1:]
        if not text[:1].isupper() and not text.startswith(("§", "[§")):
            return None
        if self._has_general and (match := patterns.GENERAL.match(text)):
            return _heading("title", match[1], text, len(text))
        if patterns.SPOKEN_ANNEX.match(text) and before.endswith((".", ":", ";")):
            return Heading("annex", "", text, "")
        if patterns.TRANSITORY.match(text):
            return Heading("title", "transitorios", text.strip(" :."), "")
        # A mere reference to an article is not in capitals: after "in Congress assembled," an act begins.
        if before and patterns.GOES_ON.search(before) and not (text.split()[0].isupper() and not before.isupper()):
            return None
        return self._article(text, in_transitory=in_transitory) or self._division(text)

    def _article(self, text: str, *, in_transitory: bool) -> Heading | None:
        if self.language == "es":
            match = patterns.ARTICLE_ES.match(text) or patterns.PROVISION.match(text)
        else:
            match = (patterns.SECTION_EN if self.is_by_section else self._unit_en).match(text)
        if match is None and in_transitory:
            match = patterns.ORDINAL.match(text)
        if match is None or (text[match.end() :][:1] == "(" and patterns.SPOKEN_OF.match(text[match.end() :])):
            return None
        number, end = match[1], match.end()
        if (
            match.re is patterns.SECTION_EN
            and number not in self.whole
            and (more := patterns.SUBSECTIONS.match(text, end))
        ):
            number, end = number + more[0], more.end()
        return _heading("article", number, text, end)

    def _division(self, text: str) -> Heading | None:
        for kind, pattern in patterns.DIVISIONS.items():
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
        if match := (patterns.ARTICLE_EN if self.is_by_section else patterns.SECTION_OF_ARTICLES).match(text):
            return _heading(self._articles_kind if self.is_by_section else "section", match[1], text, match.end())
        return None


def _unless_reference(kind: str, match: re.Match[str] | None, text: str) -> Heading | None:
    if match is None or patterns.SPOKEN_OF.match(text[match.end() :]):
        return None
    return _heading(kind, match[1], text, match.end())


def _heading(kind: str, number: str, text: str, end: int) -> Heading:
    key = number_key(number) or "innumerado"
    return Heading(kind, key, text[:end].strip(patterns.AFTER_LABEL), text[end:].lstrip(patterns.AFTER_LABEL))


def number_key(number: str) -> str:
    """Return a number in its comparable form: "12-bis", "3" of "3o", "decimo-primero", "4(a)" of "4 (a)"."""
    plain = unicodedata.normalize("NFKD", re.sub(r"(?<=\d)\s?\.?[ºª°]", "", number))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = re.sub(r"(?<=\d)\s?o\b", "", plain)
    below = patterns.LAST_SUBSECTIONS.search(plain)
    plain = re.sub(r"[^a-z0-9.:]+", "-", plain[: below.start()] if below else plain).replace(".-", "-").strip("-.:")
    return plain + "".join(below[1].split()) if below else plain


_SPANISH = re.compile(r"\b(?:el|la|los|las|de|del|que|en|por|para|se|art[ií]culo|ley|cap[ií]tulo)\b", re.I)
_ENGLISH = re.compile(r"\b(?:the|of|and|to|in|shall|section|chapter|act|any|or|by|be)\b", re.I)


def detect_language(texts: list[str]) -> str:
    sample = "\n".join(texts[:2000])[:200_000]
    return "es" if len(_SPANISH.findall(sample)) > len(_ENGLISH.findall(sample)) else "en"


# Section numbers of English statutes: bare numbers that count as sections, and which divisions contain which


def sections_with_subsections(texts: list[str]) -> frozenset[str]:
    """Return the numbers of sections whose label is in one line with their first subsection.

    "Section 4(a) The board …" is one where "(b) The clerk …" continues it, and no "Section 4(b)" begins another.
    """
    headed: dict[str, set[str]] = {}
    continued: set[str] = set()
    number, own, expected = "", frozenset[str](), frozenset[str]()
    for text in texts:
        end = 0
        if match := patterns.SECTION_EN.match(text):
            end = match.end()
            more = None if patterns.SPOKEN_OF.match(text, end) else patterns.SUBSECTIONS.match(text, end)
            groups = re.findall(patterns.SUBSECTION, more[0]) if more else []
            number, own = match[1], frozenset(groups)
            expected = frozenset(patterns.SECOND[group] for group in groups if group in patterns.SECOND)
            if more:
                headed.setdefault(number, set()).add(more[0])
                end = more.end()
        for clause in patterns.CLAUSES.finditer(text, end) if expected else ():
            first = re.match(patterns.SUBSECTION, clause[1])
            if first and first[0] in own:
                expected = frozenset()  # a list within the subsection
            elif first and first[0] in expected:
                continued.add(number)
    return frozenset(number for number in continued if len(headed[number]) == 1)


def articles_kind(texts: list[str]) -> str:
    """Return the kind of division that articles are: in California chapters contain them, in Indiana the reverse."""
    chapter = next((n for n, text in enumerate(texts) if patterns.DIVISIONS["chapter"].match(text)), None)
    article = next((n for n, text in enumerate(texts) if patterns.ARTICLE_EN.match(text)), None)
    if chapter is None or article is None:
        return "chapter"
    return "subchapter" if chapter < article else "subtitle"


def is_divided(texts: list[str]) -> bool:
    """Tell whether parts contain divisions: the first part begins before the first division."""
    first = next((n for n, text in enumerate(texts) if patterns.DIVISION.match(text)), len(texts))
    return any(patterns.DIVISIONS["part"].match(text) for text in texts[:first])


def code_section_lines(texts: list[str]) -> frozenset[str]:
    """Return the lines that are sections of a code by their number alone: three or more, nearly all in order."""
    lines: list[str] = []
    last: tuple[int, ...] = ()
    count = 0
    for before, text in pairwise(["", *texts]):
        if (match := patterns.CODED.match(text)) and not patterns.GOES_ON.search(before):
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
    quoted = frozenset(quotation_marks.quoted_lines(texts, lambda text, _: patterns.BARE.match(text[1:]) is not None))
    for line, (before, text) in enumerate(pairwise(["", *texts])):
        if patterns.DIVISIONS["annex"].match(text):
            break  # its paragraphs are numbered too
        if line in quoted or (match := patterns.BARE.match(text)) is None or patterns.GOES_ON.search(before):
            continue
        number = int(match[1].removesuffix(match[2]))
        is_restart = number == 1 and bool(lines) and text.startswith(lines[0].rstrip(" .0123456789"))
        if number == last + 1 or is_restart or (number == last and match[2]):
            lines.append(text)
            last = number
    return frozenset(lines) if last > 1 else frozenset()
