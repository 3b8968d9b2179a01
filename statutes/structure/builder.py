"""Builder of a law from its lines: divisions by rank, articles, paragraphs."""

from statutes.structure import amendments, table_of_contents
from statutes.structure.article_ids import Numbering, number_prefix
from statutes.structure.end_matter import end_matter_heading, is_signature_line
from statutes.structure.headings import Heading, Outline
from statutes.structure.model import RANKS, RANKS_OF_INNER_PARTS, Article, Division, Law, Line, Paragraph, Place
from statutes.structure.patterns import BARE, DASHES, ENUMERATED, GENERAL, GOES_ON
from statutes.structure.titles import (
    MAX_HEADING_CHARS,
    NOTE,
    assign_article_headings,
    find_title,
    is_of_preamble,
    is_sentence,
    split_run_in_heading,
)  # fmt: skip

MAX_DIVISION_HEADING_CHARS = 200
SHORT = 0.7  # of the longest lines: a line of prose reaches the margin, a heading seldom does
ENDS = (".", ";", ":", ".”", '."', ".»", ".)", ".]")
TRANSITORY, PROVISIONS, PROVISION = "transitorios", "disposicion", "disposicion-"
_OPENING = "([“\"«‘'¿¡§"  # noqa: RUF001


def build_law(lines: list[Line], *, offsets: str = "characters") -> Law:
    """Return the law of the lines. Deterministic; lines without any heading give a preamble only.

    All visible text is kept but separators of labels, the hyphens of words that a line's end divides, and the opening
    mark of a bill that a decree quotes as a whole.
    """
    visible = [line for line in lines if line.text.strip()]
    builder = _Builder([line.text.strip() for line in visible], offsets)
    before: Line | None = None
    for number, line in enumerate(visible):
        before = line if builder.add_line(number, line, before) else None
    law = builder.law
    assign_article_headings(law)
    _lift_end_matter(law.children)
    for child in law.children:
        _stretch(child)
    first = law.children[0] if law.children else None  # "CHAPTER 2027-15", and below it the title
    law.title = find_title(law.preamble or (first.paragraphs if isinstance(first, Division) else []))
    return law


class _Builder:
    def __init__(self, texts: list[str], offsets: str) -> None:
        self._outline = Outline(texts)
        self._texts = texts
        self._width = sorted(map(len, texts))[len(texts) * 9 // 10] if texts else 0
        self._below = ""  # the line below the current one
        self._contents = table_of_contents.contents_lines(texts, self._outline)
        self._quoted = amendments.amendment_lines(texts, self._outline, self._contents)
        # The line in which the last article begins, or the last ordinal, which may be one.
        numbers = (n for n in range(len(texts) - 1, -1, -1) if n not in self._quoted and n not in self._contents)
        headings = ((n, self._outline.heading(texts[n], in_transitory=True)) for n in numbers)
        self._last_article = next((n for n, heading in headings if heading and heading.kind == "article"), -1)
        self._ranks = RANKS_OF_INNER_PARTS if self._outline.has_inner_parts else RANKS
        self.law = Law("", self._outline.language, offsets)
        self._open: list[Division] = []
        self._article: Article | None = None
        self._untitled: Division | Article | None = None  # whose heading is in the next lines
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
        """Tell whether a line is the heading of the sections that follow, as in British acts with bare numbers."""
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
        if parts := split_run_in_heading(heading.rest, self._outline.language):
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
        if is_sentence(text, self._outline.language):
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
        last = paragraphs[-1] if paragraphs else None
        begins = begins or last is None or line.is_whole or _begins_paragraph(text, last, line.place)
        if last is None or begins or (paragraphs is self.law.preamble and is_of_preamble(text, last.text)):
            paragraphs.append(Paragraph(text, line.place))
        else:
            # The word that a hyphen at the line's end divides becomes whole.
            is_divided = last.text[-1:] in DASHES[:2] and last.text[-2:-1].isalpha() and text[:1].islower()
            last.text = last.text[:-1] + text if is_divided else f"{last.text} {text}"
            last.place = last.place.upto(line.place)
        if self._article is not None:
            self._article.place = self._article.place.upto(line.place)


def _continues_heading(text: str, division: Division) -> bool:
    """Tell whether a line below "CHAPTER II" belongs to its heading; a second line only in capitals."""
    if len(text) + len(division.heading) > MAX_DIVISION_HEADING_CHARS or ENUMERATED.match(text):
        return False
    if text.endswith(".") and not text.isupper():
        return False
    return not division.heading or (division.heading.isupper() and text.isupper())


def _begins_paragraph(text: str, last: Paragraph, place: Place) -> bool:
    """Tell whether a line begins a paragraph: a clause, a line after a gap or a title, or a capital after an end."""
    if ENUMERATED.match(text) or NOTE.match(text) or NOTE.match(last.text):
        return True
    if last.text.isupper() and not text.isupper():
        return True
    gap = place.start - last.place.end > 1
    return last.text.endswith(ENDS) and (gap or _is_opening(text) or BARE.match(text) is not None)


def _heading_prefix(division: Division) -> str:
    """Return the prefix of article numbers by a division's heading; general provisions are any chapter."""
    return "" if GENERAL.match(division.heading) else number_prefix(division.heading)


def _is_opening(text: str) -> bool:
    """Tell whether a text may begin a sentence or a clause."""
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
