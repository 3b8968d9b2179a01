"""Lines to a law: divisions by rank, articles, paragraphs."""

from __future__ import annotations

import re
from collections import Counter

from statutes.structure import contents
from statutes.structure.canonical import RANKS, RANKS_OF_INNER_PARTS, Article, Division, Law, Line, Paragraph, Place
from statutes.structure.outline import DASHES, ENUMERATED, GOES_ON, Heading, Outline

LONGEST_TITLE = 300  # characters
LONGEST_HEADING, LONGEST_ARTICLE_HEADING = 200, 80
SHORT = 0.7  # of the longest lines: a line of prose goes on to the margin, a heading seldom does
ENDS = (".", ";", ":", ".”", '."', ".»", ".)", ".]")
TRANSITORY, PROVISIONS, PROVISION = "transitorios", "disposiciones-", "disposicion-"
TITLE = re.compile(
    r"(?:(?:THE|LA|EL|REAL)\s+)?(?:LEY|C[OÓ]DIGO|REGLAMENTO|DECRETO|ESTATUTO|CONSTITUCI[OÓ]N|LINEAMIENTOS|DIRECTIVA)\b"
    r"|(?:COMMISSION\s+|COUNCIL\s+)?(?:(?:IMPLEMENTING|DELEGATED)\s+)?(?:REGULATION|DIRECTIVE|DECISION)\s*\((?:E[UC]|EEC)\b"
    r"|AN\s+ACT\b|(?=[^.]*\s(?:ACT|CODE|LAW|STATUTE|REGULATIONS)\b(?:,?\s+(?:OF\s+)?\d{4})?\W*$)",
    re.I,
)


# What an editor adds below a paragraph: "Fracción reformada DOF 01-01-2024".
NOTE = re.compile(
    r"(?:P[áa]rrafos?|Fracci[óo]n(?:es)?|(?:Sub)?[Ii]ncisos?|Art[íi]culos?|Apartados?|Numeral(?:es)?|Denominaci[óo]n"
    r"|Cap[íi]tulos?|T[íi]tulos?|Secci[óo]n(?:es)?|Libros?|Reforma|Fe de erratas|Nota"
    r"|Última reforma)\b[^.;:]{3,160}\bDOF(?:,?\s+(?:y\s+)?\d{1,2}-\d{1,2}-\d{4})+\.?$"
)
_RECITALS = re.compile(
    r"(?:Having regard|Whereas|WHEREAS|Acting in|HA[SV]E? ADOPTED|BE IT ENACTED|Be it|Vist[oa]s?|Considerando)\b"
)
_YEAR = re.compile(r"\b(?:Act|ACT|Order|Regulations|Rules),? \d{4}$")
_RUN_IN = re.compile(r"([A-Z][^.\u2014]{2,100}\.) ?[\u2013\u2014] ?(\S.*)$")  # "4. Meters.—(1) A supplier …"
_OPENING = "([“\"«‘'¿¡§"  # noqa: RUF001


def build(lines: list[Line], *, offsets: str = "characters") -> Law:
    """Return the law that the lines spell. Deterministic; lines without any heading give a preamble only.

    Nothing that can be seen is lost but what parts a label from its text, the hyphen of a word cut by a line's end, and
    the quotation mark that opens a bill which a decree quotes whole.
    """
    kept = [line for line in lines if line.text.strip()]
    return _Builder([line.text.strip() for line in kept], offsets).law(kept)


class Numbering:
    """The keys of a law's articles: what is transitory has numbers of its own, what repeats one is told apart."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def named(self, number: str, *, in_transitory: bool) -> tuple[str, str]:
        """Return an article's id and number."""
        number = f"transitorio-{number}" if in_transitory else number
        self._seen[number] += 1
        again = self._seen[number]
        return (number if again == 1 else f"{number}~{again}"), number


class _Builder:
    def __init__(self, texts: list[str], offsets: str) -> None:
        self._outline = Outline(texts)
        self._texts = texts
        self._width = sorted(map(len, texts))[len(texts) * 9 // 10] if texts else 0
        self._next = 0  # of the line after the one that is read
        self._contents = contents.lines(texts, self._outline)
        self._ranks = RANKS_OF_INNER_PARTS if self._outline.has_inner_parts else RANKS
        self._law = Law("", self._outline.language, offsets)
        self._open: list[Division] = []
        self._article: Article | None = None
        self._untitled: Division | Article | None = None  # whose heading stands in the next lines
        self._numbering = Numbering()

    def law(self, lines: list[Line]) -> Law:
        before: Line | None = None
        for number, line in enumerate(lines):
            self._next = number + 1
            if number in self._contents:
                self._law.contents.append(Paragraph(" ".join(line.text.split()), line.place))
                before = None
                continue
            self._line(line, "" if before is None or line.is_whole else before.text.strip())
            before = line
        for _, article in self._law.articles():
            _give_heading(article)
        for child in self._law.children:
            _stretch(child)
        self._law.title = title(self._law.preamble)
        return self._law

    def _line(self, line: Line, before: str) -> None:
        heading = self._outline.heading(line.text.strip(), before, in_transitory=self._in_transitory())
        if heading is None:
            self._text(line)
        elif heading.kind == "article":
            self._begin_article(heading, line)
        else:
            self._begin_division(heading, line)

    def _begin_division(self, heading: Heading, line: Line) -> None:
        is_last = heading.number == TRANSITORY or heading.number.startswith(PROVISIONS)
        rank = -1 if is_last else self._ranks[heading.kind]
        while self._open and (self._in_transitory() or self._ranks[self._open[-1].kind] >= rank):
            self._open.pop()
        made = Division(heading.kind, heading.number, heading.label, line.place, " ".join(heading.rest.split()))
        self._children().append(made)
        self._open.append(made)
        self._article = None
        self._untitled = made if not heading.rest and not is_last else None

    def _begin_article(self, heading: Heading, line: Line) -> None:
        if heading.number.startswith(PROVISION):
            self._open = [
                one for one in self._open[:1] if one.number == TRANSITORY or one.number.startswith(PROVISIONS)
            ]
        identity, number = self._numbering.named(heading.number, in_transitory=self._in_transitory())
        made = Article(identity, number, heading.label, line.place)
        self._children().append(made)
        self._article, self._untitled = made, None
        if self._outline.language == "en" and (found := _RUN_IN.match(heading.rest)):
            made.heading = found[1]
            self._text(Line(found[2], line.place, line.is_whole))
        elif heading.rest and self._is_title(heading.rest, len(line.text)):
            made.heading = " ".join(heading.rest.split())
        elif heading.rest:
            self._text(Line(heading.rest, line.place, line.is_whole))
        else:
            self._untitled = made

    def _is_title(self, text: str, width: int) -> bool:
        """Tell whether a line's text names the article that begins with it: short, no sentence, not gone on with."""
        following = self._texts[self._next] if self._next < len(self._texts) else ""
        if len(text) > LONGEST_ARTICLE_HEADING or width > SHORT * self._width or ENUMERATED.match(text):
            return False
        if text.endswith((*ENDS, ",")) or GOES_ON.search(text) or not text[0].isupper():
            return False
        return _is_opening(following) and not self._outline.heading(following)

    def _in_transitory(self) -> bool:
        return bool(self._open) and self._open[-1].number == TRANSITORY

    def _children(self) -> list[Division | Article]:
        return self._open[-1].children if self._open else self._law.children

    def _text(self, line: Line) -> None:
        text = " ".join(line.text.split())
        if self._untitled is not None and self._names(text, self._untitled, line):
            self._untitled.heading = f"{self._untitled.heading} {text}".strip()
            self._untitled.place = self._untitled.place.upto(line.place)
            return
        self._untitled = None
        paragraphs = self._paragraphs()
        last = paragraphs[-1] if paragraphs else None
        begins = last is None or line.is_whole or self._begins(text, last, line.place)
        if last is None or begins or (paragraphs is self._law.preamble and _is_of_preamble(text, last.text)):
            paragraphs.append(Paragraph(text, line.place))
        else:
            last.text = _joined(last.text, text)
            last.place = last.place.upto(line.place)
        if self._article is not None:
            self._article.place = self._article.place.upto(line.place)

    def _names(self, text: str, untitled: Division | Article, line: Line) -> bool:
        if isinstance(untitled, Article):
            return not untitled.heading and self._is_title(text, len(text))
        return self._is_heading(text, untitled)

    @staticmethod
    def _is_heading(text: str, untitled: Division) -> bool:
        """Tell whether a line below "CHAPTER II" names it; a second one only goes on in capitals."""
        if len(text) + len(untitled.heading) > LONGEST_HEADING or text.endswith(".") or ENUMERATED.match(text):
            return False
        return not untitled.heading or (untitled.heading.isupper() and text.isupper())

    def _paragraphs(self) -> list[Paragraph]:
        if self._article is not None:
            return self._article.paragraphs
        return self._open[-1].paragraphs if self._open else self._law.preamble

    @staticmethod
    def _begins(text: str, last: Paragraph, place: Place) -> bool:
        """Tell whether a line is a new paragraph: a clause, after a gap or a title, or a capital after an end."""
        if (
            ENUMERATED.match(text)
            or NOTE.match(text)
            or NOTE.match(last.text)
            or (last.text.isupper() and not text.isupper())
        ):
            return True
        gap = place.start - last.place.end > 1
        return last.text.endswith(ENDS) and (gap or _is_opening(text))


def _is_opening(text: str) -> bool:
    """Tell whether a text may be the first of a sentence or a clause."""
    return text.lstrip(_OPENING)[:1].isupper() or ENUMERATED.match(text) is not None


def _is_of_preamble(text: str, before: str) -> bool:
    """Tell whether a line begins a paragraph there: a recital, a title, or what follows "Water Act 2027"."""
    if _RECITALS.match(text) or _YEAR.search(before[-20:]):
        return True
    return TITLE.match(text[:LONGEST_TITLE]) is not None


def title(preamble: list[Paragraph]) -> str:
    """Return what the law calls itself, or its first words."""
    shown = (one.text for one in preamble[:40] if len(one.text.split()) > 1 and len(one.text) <= LONGEST_TITLE)
    named = (text for text in shown if TITLE.match(text))
    return next(named, preamble[0].text if preamble else "")[:LONGEST_TITLE]


def _give_heading(article: Article) -> None:
    """Take a short first line for the article's heading: "Section 4. Definitions." """
    is_clause = "transitorio" in article.number and PROVISION not in article.number
    if len(article.paragraphs) < 2 or article.heading or is_clause:
        return
    first, second = article.paragraphs[:2]
    if second.text.startswith("[") or NOTE.match(second.text):
        return  # what is said of an article is not its text
    is_in_label_line = first.place.start == article.place.start
    if is_in_label_line and len(first.text) <= LONGEST_ARTICLE_HEADING and not first.text.endswith((":", ";", ",")):
        article.heading = first.text
        del article.paragraphs[0]


def _stretch(child: Division | Article) -> Place:
    """Let a division end where the last of what it holds does."""
    if isinstance(child, Division):
        for place in [*(paragraph.place for paragraph in child.paragraphs), *map(_stretch, child.children)]:
            if place.end > child.place.end:
                child.place = child.place.upto(place)
    return child.place


def _joined(before: str, after: str) -> str:
    """Join two lines of one paragraph; a word that was cut at the line's end becomes whole."""
    if before[-1:] in DASHES[:2] and before[-2:-1].isalpha() and after[:1].islower():
        return before[:-1] + after
    return f"{before} {after}"
