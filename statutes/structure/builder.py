"""Lines to a law: divisions by rank, articles, paragraphs."""

from __future__ import annotations

from statutes.structure import amendments, table_of_contents
from statutes.structure.end_matter import end_matter_heading, is_signature_line
from statutes.structure.headings import Heading, Outline
from statutes.structure.labels import Numbering, number_prefix
from statutes.structure.model import RANKS, RANKS_OF_INNER_PARTS, Article, Division, Law, Line, Paragraph, Place
from statutes.structure.patterns import BARE, DASHES, ENUMERATED, GENERAL, GOES_ON
from statutes.structure.titles import (
    LONGEST_ARTICLE_HEADING,
    NOTE,
    assign_article_headings,
    find_title,
    is_of_preamble,
    is_sentence,
    split_run_in_heading,
)

LONGEST_HEADING = 200
SHORT = 0.7  # of the longest lines: a line of prose goes on to the margin, a heading seldom does
ENDS = (".", ";", ":", ".”", '."', ".»", ".)", ".]")
TRANSITORY, PROVISIONS, PROVISION = "transitorios", "disposicion", "disposicion-"
_OPENING = "([“\"«‘'¿¡§"  # noqa: RUF001


def build_law(lines: list[Line], *, offsets: str = "characters") -> Law:
    """Return the law that the lines spell. Deterministic; lines without any heading give a preamble only.

    Nothing that can be seen is lost but what parts a label from its text, the hyphen of a word cut by a line's end, and
    the quotation mark that opens a bill which a decree quotes whole.
    """
    kept = [line for line in lines if line.text.strip()]
    return _Builder([line.text.strip() for line in kept], offsets).law(kept)


class _Builder:
    def __init__(self, texts: list[str], offsets: str) -> None:
        self._outline = Outline(texts)
        self._texts = texts
        self._width = sorted(map(len, texts))[len(texts) * 9 // 10] if texts else 0
        self._next = 0  # of the line after the one that is read
        self._contents = table_of_contents.contents_lines(texts, self._outline)
        self._quoted = amendments.amendment_lines(texts, self._outline, self._contents)
        self._behind = self._last_article() + 1
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
        assign_article_headings(self._law)
        _lift(self._law.children)
        for child in self._law.children:
            _stretch(child)
        first = self._law.children[0] if self._law.children else None  # "CHAPTER 2027-15", and below it the title
        self._law.title = find_title(self._law.preamble or (first.paragraphs if isinstance(first, Division) else []))
        return self._law

    def _last_article(self) -> int:
        """Return the line in which the law's last article begins, or that of an ordinal, which may be one."""
        for number in range(len(self._texts) - 1, -1, -1):
            if number in self._quoted or number in self._contents:
                continue
            found = self._outline.heading(self._texts[number], in_transitory=True)
            if found is not None and found.kind == "article":
                return number
        return -1

    def _line(self, line: Line, before: str) -> None:
        text, is_in_last = line.text.strip(), self._is_in_last()
        heading = self._outline.heading(text, before, in_transitory=is_in_last)
        if self._next - 1 in self._quoted:
            self._text(line, begins=heading is not None)
            return
        has_begun = bool(self._article.paragraphs) if self._article is not None else bool(self._open)
        if heading is None and has_begun:  # "Artículo 9.", and below it "Comuníquese, publíquese y archívese."
            is_behind = self._next > self._behind
            heading = end_matter_heading(
                text, before, is_behind=is_behind, in_transitory=is_in_last and bool(self._said())
            )
        if heading is None and self._outline.numbered and self._is_crosshead(text, before):
            self._begin_division(Heading("subchapter", "", "", text), line)
        elif heading is None:
            self._text(line)
        elif heading.kind == "article":
            self._begin_article(heading, line)
        elif heading.kind == "text":
            self._begin_text(heading, line)
        else:
            self._begin_division(heading, line)

    def _is_crosshead(self, text: str, before: str) -> bool:
        """Tell whether a line names the sections that follow it, as in British acts, where those only have numbers."""
        following = self._texts[self._next] if self._next < len(self._texts) else ""
        if following not in self._outline.numbered:
            return False
        if len(text) > LONGEST_ARTICLE_HEADING or not text[:1].isupper() or text.endswith((*ENDS, ",")):
            return False
        if isinstance(self._untitled, Division):
            return bool(self._untitled.heading) and not self._is_heading(text, self._untitled)
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
        made = Division(heading.kind, heading.number, heading.label, line.place, " ".join(heading.rest.split()))
        self._children().append(made)
        self._open.append(made)
        self._article = None
        self._untitled = made if not heading.rest and not is_last else None

    def _begin_text(self, heading: Heading, line: Line) -> None:
        """Begin what is in no article, in its place. It takes the names of those who sign from what is before it."""
        if not (heading.label or heading.number) and self._open and self._open[-1].kind == "text":
            self._text(line, begins=True)
            return
        made = Division("text", "", heading.label, line.place)
        self._close_text()
        if self._article is not None and len(self._article.paragraphs) > 1:
            last = self._article.paragraphs[-1]
            if not heading.label and is_signature_line(last.text) and not last.text.endswith("."):
                made.paragraphs.append(self._article.paragraphs.pop())
                made.place = last.place.upto(line.place)
        self._children().append(made)
        self._open.append(made)
        self._article, self._untitled = None, None
        if heading.rest:
            self._text(Line(heading.rest, line.place, line.is_whole), begins=True)

    def _said(self) -> list[Division | Article]:
        """Return what the innermost division holds already."""
        return next((one.children for one in self._open[::-1] if one.kind != "text"), self._law.children)

    def _close_text(self) -> None:
        while self._open and self._open[-1].kind == "text":
            self._open.pop()

    def _begin_article(self, heading: Heading, line: Line) -> None:
        self._close_text()
        if heading.number.startswith(PROVISION):
            self._open = [
                one for one in self._open[:1] if one.number == TRANSITORY or one.number.startswith(PROVISIONS)
            ]
        identity, number = self._numbering.assign(heading.number, self._prefix(heading.number))
        made = Article(identity, number, heading.label, line.place)
        self._children().append(made)
        self._article, self._untitled = made, None
        if found := split_run_in_heading(heading.rest, self._outline.language):
            made.heading = found[0]
            self._text(Line(found[1], line.place, line.is_whole))
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
        if is_sentence(text, self._outline.language):
            return False
        return _is_opening(following) and not self._outline.heading(following)

    def _is_in_last(self) -> bool:
        """Tell whether bare ordinals are articles here: among what is transitory, additional or final."""
        return any(number_prefix(one.label) or _within(one) for one in self._open[-2:] if one.kind != "annex")

    def _prefix(self, number: str) -> str:
        """Return what an article's number begins with; under "TÍTULO VI DISPOSICIONES FINALES" counting goes on."""
        if not self._open:
            return ""
        return number_prefix(self._open[-1].label) or ("" if number[:1].isdigit() else _within(self._open[-1]))

    def _children(self) -> list[Division | Article]:
        return self._open[-1].children if self._open else self._law.children

    def _text(self, line: Line, *, begins: bool = False) -> None:
        text = " ".join(line.text.split())
        if self._untitled is not None and not begins and self._names(text, self._untitled):
            self._untitled.heading = f"{self._untitled.heading} {text}".strip()
            self._untitled.place = self._untitled.place.upto(line.place)
            return
        self._untitled = None
        paragraphs = self._paragraphs()
        last = paragraphs[-1] if paragraphs else None
        begins = begins or last is None or line.is_whole or self._begins(text, last, line.place)
        if last is None or begins or (paragraphs is self._law.preamble and is_of_preamble(text, last.text)):
            paragraphs.append(Paragraph(text, line.place))
        else:
            last.text = _joined(last.text, text)
            last.place = last.place.upto(line.place)
        if self._article is not None:
            self._article.place = self._article.place.upto(line.place)

    def _names(self, text: str, untitled: Division | Article) -> bool:
        if isinstance(untitled, Article):
            return not untitled.heading and self._is_title(text, len(text))
        return self._is_heading(text, untitled)

    @staticmethod
    def _is_heading(text: str, untitled: Division) -> bool:
        """Tell whether a line below "CHAPTER II" names it; a second one only goes on in capitals."""
        if len(text) + len(untitled.heading) > LONGEST_HEADING or ENUMERATED.match(text):
            return False
        if text.endswith(".") and not text.isupper():
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
        return last.text.endswith(ENDS) and (gap or _is_opening(text) or BARE.match(text) is not None)


def _within(division: Division) -> str:
    """Return what a division's heading says as others' labels do; a chapter of general provisions is any chapter."""
    return "" if GENERAL.match(division.heading) else number_prefix(division.heading)


def _is_opening(text: str) -> bool:
    """Tell whether a text may be the first of a sentence or a clause."""
    return text.lstrip(_OPENING)[:1].isupper() or ENUMERATED.match(text) is not None


def _lift(children: list[Division | Article]) -> None:
    """Let a text that ends a division stand behind it: who signs a law does not sign its last chapter."""
    at = 0
    while at < len(children):
        child = children[at]
        if isinstance(child, Division):
            _lift(child.children)
            first = len(child.children)
            while first and _is_text(child.children[first - 1]):
                first -= 1
            children[at + 1 : at + 1] = child.children[first:]
            del child.children[first:]
        at += 1


def _is_text(child: Division | Article) -> bool:
    return isinstance(child, Division) and child.kind == "text"


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
