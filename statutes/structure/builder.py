"""Builder of a law from its lines: title, divisions by rank, articles with their headings, paragraphs."""

import re
from dataclasses import dataclass, field

from statutes.structure import quoted_amendments, table_of_contents
from statutes.structure.article_ids import Numbering, number_prefix
from statutes.structure.closing_formulas import end_matter_heading, is_signature_line
from statutes.structure.headings import Heading, Outline
from statutes.structure.model import (
    INNER_PART_RANKS,
    RANKS,
    Article,
    CanonicalLaw,
    Division,
    Line,
    Paragraph,
    Place,
)
from statutes.structure.patterns import BARE, DASHES, ENUMERATED, GENERAL, GOES_ON

MAX_TITLE_CHARS, MAX_DIVISION_HEADING_CHARS, MAX_HEADING_CHARS, MAX_NOTE_CHARS = 300, 200, 80, 500
TAIL_CHARS = 40  # at a paragraph's end, that decide whether a line continues it
SHORT = 0.7  # of the longest lines: a line of prose reaches the margin, a heading seldom does
ENDS = (".", ";", ":", ".”", '."', ".»", ".)", ".]")
TRANSITORY, PROVISIONS, PROVISION = "transitorios", "disposicion", "disposicion-"
_OPENING = "([“\"«‘'¿¡§"  # noqa: RUF001
TITLE = re.compile(
    r"(?:\d{1,6}\s+)?(?:(?:THE|LA|EL|REAL)\s+)?(?:LEY|C[OÓ]DIGO|REGLAMENTO|DECRETO|ESTATUTO|CONSTITUCI[OÓ]N|LINEAMIENTOS)\b"
    r"|DIRECTIVA\b"
    r"|(?:COMMISSION\s+|COUNCIL\s+)?(?:(?:IMPLEMENTING|DELEGATED)\s+)?(?:REGULATION|DIRECTIVE|DECISION)\s*\((?:E[UC]|EEC)\b"
    r"|AN\s+ACT\b|(?=[^.]*\s(?:ACT|CODE|LAW|STATUTE|REGULATIONS|ORDER|RULES)\b(?:,?\s+(?:OF\s+)?\d{4})?\W*$)",
    re.I,
)
_RECITALS = re.compile(
    r"(?:Having regard|Whereas|WHEREAS|Acting in|HA[SV]E? ADOPTED|BE IT ENACTED|Be it|Vist[oa]s?|Considerando"
    r"|TEXTO VIGENTE|Texto vigente|Última reforma|Nueva Ley|POR CUANTO|(?:EL|LA) PRESIDENT[EA]|EL CONGRESO)\b"
)
_ITEM = re.compile(r"^\d{1,6}\s+(?=[A-ZÁÉÍÓÚ])")  # the number of a gazette's entry
_YEAR = re.compile(r"\b(?:Act|ACT|Order|Regulations|Rules),? \d{4}$")
# An editor's note below a paragraph: "Fracción reformada DOF 01-01-2024".
NOTE = re.compile(
    r"(?:P[áa]rrafos?|Fracci[óo]n(?:es)?|(?:Sub)?[Ii]ncisos?|Art[íi]culos?|Apartados?|Numeral(?:es)?|Denominaci[óo]n"
    r"|Cap[íi]tulos?|T[íi]tulos?|Secci[óo]n(?:es)?|Libros?|Reforma|Fe de erratas|Nota"
    r"|Última reforma)\b[^.;:]{3,160}\bDOF(?:,?\s+(?:y\s+)?\d{1,2}-\d{1,2}-\d{4})+\.?$"
)
# A sentence has a verb, a title has none; in Spanish the future tense or "se" suffices.
_SENTENCE = {
    "es": re.compile(
        r"\b(?:se\s\w|\w{2,}rán?\b|(?:es|son|est[áa]n?|ser[íi]an?|ha|han|hay|tienen?|pueden?"
        r"|deben?|quedan?|rigen?|entran?|corresponden?|regulan?|establecen?|gozan?|constituyen?|comprenden?|aplican?"
        r"|pertenecen?|ejercen?|garantizan?|reconocen?|fijan?|dictan?|reglamentan?|derivan?|emanan?|corren?|consisten?)\b)",
        re.I,
    ),
    "en": re.compile(
        r"\b(?:shall|is|are|was|were|may|must|has|have|does|do|will|means|includes?|applies|apply|takes?|consists?|comes?)\b"
    ),
}
# Words that begin a sentence more often than a title.
_DETERMINED = re.compile(
    r"(?:El|La|Los|Las|Un|Una|Tod[oa]s?|Cada|Cuando|Si|Son|Es|En|Para|A|Al|Est[aeo]s?|Quien(?:es)?|Nadie|Ning[úu]n[oa]?"
    r"|The|An?|Any|Every|Each|All|If|When|No|This|These)\s"
)
_CAPITALS = re.compile(r"([A-ZÁÉÍÓÚÜÑ][A-ZÁÉÍÓÚÜÑ\d ,;/()\-]{2,100}\.) +(?=[(“\"«¿]?\w)(?![A-ZÁÉÍÓÚÜÑ ]{4})(\S.*)$")
# "Naturaleza jurídica.- Los recursos …", "Vigencia. La presente ley …"
_NAMED_ES = re.compile(
    r"([A-ZÁÉÍÓÚÑ][^.:;]{2,80}(?<=[a-záéíóúñ]{4})\.)(?: ?[-\u2013\u2014]+ *| +)(?=[A-ZÁÉÍÓÚÑ¿(«“\"])(\S+ \S.*)$"
)
_RUN_IN = re.compile(r"([A-Z][^.—]{2,100}\.) ?[\u2013\u2014] ?(\S.*)$")  # "4. Meters.—(1) A supplier …"


def build_law(lines: list[Line], *, offsets: str = "characters") -> CanonicalLaw:
    """Return the law of the lines, deterministically: all visible text but separators and hyphens at line ends."""
    visible = [line for line in lines if line.text.strip()]
    builder = _Builder([line.text.strip() for line in visible], offsets)
    before: Line | None = None
    for number, line in enumerate(visible):
        before = line if builder.add_line(number, line, before) else None
    builder.close_paragraph()
    law = builder.law
    _assign_article_headings(law)
    _lift_end_matter(law.children)
    for child in law.children:
        _stretch(child)
    first = law.children[0] if law.children else None  # "CHAPTER 2027-15", and below it the title
    law.title = find_title(law.preamble or (first.paragraphs if isinstance(first, Division) else []))
    return law


def find_title(preamble: list[Paragraph]) -> str:
    texts = [one.text for one in preamble[:40] if len(one.text.split()) > 1 and len(one.text) <= MAX_TITLE_CHARS]
    place = next((number for number, text in enumerate(texts) if TITLE.match(text)), None)
    if place is None:
        return (preamble[0].text if preamble else "")[:MAX_TITLE_CHARS]
    if texts[place].upper() == "AN ACT":
        return " ".join(texts[place : place + 2])[:MAX_TITLE_CHARS]
    return _ITEM.sub("", texts[place])


def _is_of_preamble(text: str, before: str) -> bool:
    """Tell whether a line begins a paragraph of the preamble: a recital, a title, or the line after the title."""
    if _RECITALS.match(text) or _YEAR.search(before[-20:]):
        return True
    return TITLE.match(text[:MAX_TITLE_CHARS]) is not None and not GOES_ON.search(before[-20:])


@dataclass(slots=True)
class _OpenParagraph:
    """The last paragraph while lines continue it. They are joined at its end: a copy for each line is quadratic."""

    paragraph: Paragraph
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    tail: str = ""
    is_upper: bool | None = None  # as its first line with letters: below one in capitals, others begin a paragraph

    def add(self, line: str) -> None:
        # The word that a hyphen at the line's end divides becomes whole.
        if self.tail[-1:] in DASHES[:2] and self.tail[-2:-1].isalpha() and line[:1].islower():
            self.pieces[-1], self.tail = self.pieces[-1][:-1], self.tail[:-1]
        elif self.pieces:
            self.pieces.append(" ")
            self.tail += " "
        self.pieces.append(line)
        self.size += len(line) + 1
        self.tail = (self.tail + line[-TAIL_CHARS:])[-TAIL_CHARS:]
        if self.is_upper is None and any(sign.isupper() or sign.islower() or sign.istitle() for sign in line):
            self.is_upper = line.isupper()

    def is_note(self) -> bool:
        return self.size <= MAX_NOTE_CHARS and NOTE.match("".join(self.pieces)) is not None


class _Builder:
    def __init__(self, texts: list[str], offsets: str) -> None:
        self._outline = Outline(texts)
        self._texts = texts
        self._width = sorted(map(len, texts))[len(texts) * 9 // 10] if texts else 0
        self._below = ""  # the line below the current one
        self._contents = table_of_contents.contents_lines(texts, self._outline)
        self._quoted = quoted_amendments.amendment_lines(texts, self._outline, self._contents)
        # The line in which the last article begins, or the last ordinal, which may be one.
        numbers = (n for n in range(len(texts) - 1, -1, -1) if n not in self._quoted and n not in self._contents)
        headings = ((n, self._outline.heading(texts[n], in_transitory=True)) for n in numbers)
        self._last_article = next((n for n, heading in headings if heading and heading.kind == "article"), -1)
        self._ranks = INNER_PART_RANKS if self._outline.has_inner_parts else RANKS
        self.law = CanonicalLaw("", self._outline.language, offsets)
        self._open: list[Division] = []
        self._article: Article | None = None
        self._untitled: Division | Article | None = None  # whose heading is in the next lines
        self._last: _OpenParagraph | None = None
        self._numbering = Numbering()

    def add_line(self, number: int, line: Line, line_before: Line | None) -> bool:
        """Add a line; return False for a line of the table of contents."""
        text = line.text.strip()
        self._below = self._texts[number + 1] if number + 1 < len(self._texts) else ""
        if number in self._contents:
            self.law.contents.append(Paragraph(" ".join(line.text.split()), line.place))
            return False
        before = "" if line_before is None or line.is_whole else line_before.text.strip()
        # Bare ordinals are articles among transitory, additional and final provisions.
        in_transitory = any(
            number_prefix(division.label) or _heading_prefix(division)
            for division in self._open[-2:]
            if division.kind != "annex"
        )
        heading = self._outline.heading(text, before, in_transitory=in_transitory)
        if number in self._quoted:
            self._add_text(line, begins=heading is not None)
            return True
        has_begun = bool(self._article.paragraphs) if self._article is not None else bool(self._open)
        if heading is None and has_begun:  # "Artículo 9.", and below it "Comuníquese, publíquese y archívese."
            siblings = next((one.children for one in self._open[::-1] if one.kind != "text"), self.law.children)
            is_behind = number >= self._last_article + 1
            heading = end_matter_heading(
                text, before, is_behind=is_behind, in_transitory=in_transitory and bool(siblings)
            )
        if heading is None and self._outline.numbered and self._is_crosshead(text, before):
            self._begin_division(Heading("subchapter", "", "", text), line)
        elif heading is None:
            self._add_text(line)
        elif heading.kind == "article":
            self._begin_article(heading, line)
        elif heading.kind == "text":
            self._begin_text(heading, line)
        else:
            self._begin_division(heading, line)
        return True

    def _is_crosshead(self, text: str, before: str) -> bool:
        if self._below not in self._outline.numbered:
            return False
        if len(text) > MAX_HEADING_CHARS or not text[:1].isupper() or text.endswith((*ENDS, ",")):
            return False
        if isinstance(self._untitled, Division):
            return bool(self._untitled.heading) and not _continues_heading(text, self._untitled)
        return not before or before.endswith((*ENDS, "”"))

    def _begin_division(self, heading: Heading, line: Line) -> None:
        is_last = heading.number == TRANSITORY or heading.number.startswith(PROVISIONS)
        above = self._untitled
        if is_last and isinstance(above, Division) and not above.heading and above.kind != "annex":
            above.heading, self._untitled = heading.label, None  # "TÍTULO VI", and below it "DISPOSICIONES FINALES"
            above.place = above.place.upto(line.place)
            return
        rank = -1 if is_last else self._ranks[heading.kind]
        while self._open and (self._open[-1].number == TRANSITORY or self._ranks[self._open[-1].kind] >= rank):
            self._open.pop()
        division = Division(heading.kind, heading.number, heading.label, line.place, " ".join(heading.rest.split()))
        self._children().append(division)
        self._open.append(division)
        self._article = None
        self._untitled = division if not heading.rest and not is_last else None

    def _begin_text(self, heading: Heading, line: Line) -> None:
        """Begin a text outside of articles. It takes the names of those who sign from the article before it."""
        if not (heading.label or heading.number) and self._open and self._open[-1].kind == "text":
            self._add_text(line, begins=True)
            return
        division = Division("text", "", heading.label, line.place)
        self._close_text()
        self.close_paragraph()
        if self._article is not None and len(self._article.paragraphs) > 1:
            last = self._article.paragraphs[-1]
            if not heading.label and is_signature_line(last.text) and not last.text.endswith("."):
                division.paragraphs.append(self._article.paragraphs.pop())
                division.place = last.place.upto(line.place)
        self._children().append(division)
        self._open.append(division)
        self._article, self._untitled = None, None
        if heading.rest:
            self._add_text(Line(heading.rest, line.place, line.is_whole), begins=True)

    def _close_text(self) -> None:
        while self._open and self._open[-1].kind == "text":
            self._open.pop()

    def _begin_article(self, heading: Heading, line: Line) -> None:
        self._close_text()
        if heading.number.startswith(PROVISION):
            self._open = [
                division
                for division in self._open[:1]
                if division.number == TRANSITORY or division.number.startswith(PROVISIONS)
            ]
        prefix = ""
        if self._open:  # under "TÍTULO VI DISPOSICIONES FINALES" counting goes on
            prefix = number_prefix(self._open[-1].label)
            prefix = prefix or ("" if heading.number[:1].isdigit() else _heading_prefix(self._open[-1]))
        article_id, number = self._numbering.assign(heading.number, prefix)
        article = Article(article_id, number, heading.label, line.place)
        self._children().append(article)
        self._article, self._untitled = article, None
        if parts := _split_run_in_heading(heading.rest, self._outline.language):
            article.heading = parts[0]
            self._add_text(Line(parts[1], line.place, line.is_whole))
        elif heading.rest and self._is_article_heading(heading.rest, len(line.text)):
            article.heading = " ".join(heading.rest.split())
        elif heading.rest:
            self._add_text(Line(heading.rest, line.place, line.is_whole))
        else:
            self._untitled = article

    def _is_article_heading(self, text: str, width: int) -> bool:
        """Tell whether a line's text is the article's heading: short, no sentence, and not continued below."""
        if len(text) > MAX_HEADING_CHARS or width > SHORT * self._width or ENUMERATED.match(text):
            return False
        if text.endswith((*ENDS, ",")) or GOES_ON.search(text) or not text[0].isupper():
            return False
        if _is_sentence(text, self._outline.language):
            return False
        return _is_opening(self._below) and not self._outline.heading(self._below)

    def _children(self) -> list[Division | Article]:
        return self._open[-1].children if self._open else self.law.children

    def _add_text(self, line: Line, *, begins: bool = False) -> None:
        text = " ".join(line.text.split())
        untitled = self._untitled
        if untitled is not None and not begins:
            if isinstance(untitled, Article):
                is_heading = not untitled.heading and self._is_article_heading(text, len(text))
            else:
                is_heading = _continues_heading(text, untitled)
            if is_heading:
                untitled.heading = f"{untitled.heading} {text}".strip()
                untitled.place = untitled.place.upto(line.place)
                return
        self._untitled = None
        paragraphs = self._open[-1].paragraphs if self._open else self.law.preamble
        if self._article is not None:
            paragraphs = self._article.paragraphs
        last = self._last if paragraphs else None
        begins = begins or last is None or line.is_whole or _begins_paragraph(text, last, line.place)
        if last is None or begins or (paragraphs is self.law.preamble and _is_of_preamble(text, last.tail)):
            self.close_paragraph()
            self._last = last = _OpenParagraph(Paragraph("", line.place))
            paragraphs.append(last.paragraph)
        last.add(text)
        last.paragraph.place = last.paragraph.place.upto(line.place)
        if self._article is not None:
            self._article.place = self._article.place.upto(line.place)

    def close_paragraph(self) -> None:
        if self._last is not None:
            self._last.paragraph.text = "".join(self._last.pieces)


def _continues_heading(text: str, division: Division) -> bool:
    """Tell whether a line below "CHAPTER II" belongs to its heading; a second line only in capitals."""
    if len(text) + len(division.heading) > MAX_DIVISION_HEADING_CHARS or ENUMERATED.match(text):
        return False
    if text.endswith(".") and not text.isupper():
        return False
    return not division.heading or (division.heading.isupper() and text.isupper())


def _begins_paragraph(text: str, last: _OpenParagraph, place: Place) -> bool:
    """Tell whether a line begins a paragraph: a clause, a line after a gap or a title, or a capital after an end."""
    if ENUMERATED.match(text) or NOTE.match(text) or last.is_note():
        return True
    if last.is_upper and not text.isupper():
        return True
    gap = place.start - last.paragraph.place.end > 1
    return last.tail.endswith(ENDS) and (gap or _is_opening(text) or BARE.match(text) is not None)


def _heading_prefix(division: Division) -> str:
    return "" if GENERAL.match(division.heading) else number_prefix(division.heading)


def _is_opening(text: str) -> bool:
    return text.lstrip(_OPENING)[:1].isupper() or ENUMERATED.match(text) is not None


def _lift_end_matter(children: list[Division | Article]) -> None:
    """Move texts at the end of a division behind it: signatures are of the law and not of its last chapter."""
    place = 0
    while place < len(children):
        child = children[place]
        if isinstance(child, Division):
            _lift_end_matter(child.children)
            first = len(child.children)
            while first and isinstance(last := child.children[first - 1], Division) and last.kind == "text":
                first -= 1
            children[place + 1 : place + 1] = child.children[first:]
            del child.children[first:]
        place += 1


def _stretch(child: Division | Article) -> Place:
    if isinstance(child, Division):
        for place in [*(paragraph.place for paragraph in child.paragraphs), *map(_stretch, child.children)]:
            if place.end > child.place.end:
                child.place = child.place.upto(place)
    return child.place


# Headings of articles, distinguished from sentences


def _is_sentence(text: str, language: str) -> bool:
    return _SENTENCE[language].search(text) is not None


def _split_run_in_heading(text: str, language: str) -> tuple[str, str] | None:
    """Split an article's heading from the text in the same line: "OBJETO. La ley …", "Meters.—(1) A supplier …"."""
    match = _CAPITALS.match(text) or (_RUN_IN if language == "en" else _NAMED_ES).match(text)
    if match is None or _is_sentence(match[1], language) or _DETERMINED.match(match[1]):
        return None
    return match[1], match[2]


def _assign_article_headings(law: CanonicalLaw) -> None:
    """Make the short first paragraphs of articles their headings: "Section 4. Definitions."."""
    articles = [article for _, article in law.articles()]
    candidates = [article for article in articles if _may_have_heading(article, law.language)]
    plain = [article for article in candidates if not _DETERMINED.match(article.paragraphs[0].text)]
    count = sum(1 for article in articles if article.heading) + len(plain)
    for article in candidates if 2 * count >= len(articles) else plain:
        article.heading = article.paragraphs.pop(0).text


def _may_have_heading(article: Article, language: str) -> bool:
    is_clause = "transitorio" in article.number and not article.number.startswith("disposicion-")
    if len(article.paragraphs) < 2 or article.heading or is_clause:
        return False
    first, second = article.paragraphs[:2]
    if second.text.startswith("[") or NOTE.match(second.text):
        return False  # a note about an article is not its text
    if first.place.start != article.place.start or len(first.text) > MAX_HEADING_CHARS:
        return False
    return not first.text.endswith((":", ";", ",")) and not _is_sentence(first.text, language)
