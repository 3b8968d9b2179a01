"""A law as normalized markdown: the text that is stored as its document's parse, and cut."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from documents.normalization import normalize
from statutes.structure.canonical import Article, Division, Law, Paragraph, Place
from statutes.structure.labels import BETWEEN, Divisions, Ids

ARTICLE_LEVEL = 6  # headings of this level are articles, those above are divisions
DEEPEST = ARTICLE_LEVEL - 1  # divisions deeper than this share a level
# A paragraph that begins like this would be read as a heading, or as the begin of code.
_MARKS = ("#", "```", "~~~")


class Block(NamedTuple):
    """A heading or a paragraph at [start, end) of the rendered text; ``article`` is "" where it stands in none."""

    start: int
    end: int
    article: str
    place: Place


class RenderedArticle(NamedTuple):
    """An article at [start, end) of the rendered text; ``path`` are the titles of the divisions around it."""

    start: int
    end: int
    id: str
    path: tuple[str, ...]
    page: int | None  # its first, where the format has pages


@dataclass(frozen=True, slots=True)
class Rendered:
    """``page_starts`` is as ``documents.normalization`` has it, and empty where the format has no pages."""

    text: str
    page_starts: tuple[int, ...]
    articles: tuple[RenderedArticle, ...]
    blocks: tuple[Block, ...]

    def sources(self, start: int, end: int) -> list[dict[str, Any]]:
        """Return where [start, end) of the text stands in the file that was read: one place for each article in it.

        Text that is in no article has a place of its own, without one; headings above an article are left out.
        """
        first = bisect_right(self.blocks, start, key=lambda block: block.end)
        inside = self.blocks[first : bisect_left(self.blocks, end, lo=first, key=lambda block: block.start)]
        told = [block for block in inside if block.article or self.text[block.start] != "#"]
        found = []
        for article, run in groupby(told or inside, key=lambda block: block.article):
            places = [block.place for block in run]
            whole = Place(min(at.start for at in places), max(at.end for at in places), places[0].page)
            found.append({"article": article or None, **whole.as_json()})
        return found


def render(law: Law, *, pages: int = 0) -> Rendered:
    """Return the law's markdown; the same law gives the same, and normalizing it changes nothing.

    A division is a heading of its depth, an article one of level 6, a paragraph one line. A heading without words
    closes the divisions below its level. ``pages`` is how many the file has, where the last ones hold no text.
    """
    return _Renderer().rendered(law, pages)


@dataclass(slots=True)
class _Renderer:
    lines: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    articles: list[RenderedArticle] = field(default_factory=list)
    divisions: Divisions = field(default_factory=Divisions)
    ids: Ids = field(default_factory=Ids)
    at: int = 0
    depth: int = 0  # of the division whose heading was written last

    def rendered(self, law: Law, pages: int) -> Rendered:
        self._paragraphs(law.preamble, "")
        self._children(law.children, 0)
        text = "\n\n".join(self.lines) + "\n" if self.lines else ""
        return Rendered(text, _page_starts(self.blocks, len(text), pages), tuple(self.articles), tuple(self.blocks))

    def _children(self, children: Sequence[Division | Article], depth: int) -> None:
        for child in children:
            if isinstance(child, Division):
                self._division(child, depth + 1)
                continue
            if self.depth > depth < DEEPEST:
                self._heading(depth + 1, "", child.place)
            self.depth = depth
            self._article(child)

    def _division(self, division: Division, depth: int) -> None:
        self.depth = depth
        self._heading(min(depth, DEEPEST), _line(division.title), _above(division))
        self._paragraphs(division.paragraphs, "")
        self._children(division.children, depth)

    def _heading(self, level: int, title: str, place: Place) -> None:
        self.divisions.enter(level, title)
        self._line(f"{'#' * level} {title}".rstrip(), "", place)

    def _article(self, article: Article) -> None:
        path = tuple(self.divisions.titles)
        title = _line(BETWEEN.join(filter(None, (article.label, article.heading))))
        title = self.ids.written(title, self.divisions.innermost, article.id)
        start = self.at
        self._line(f"{'#' * ARTICLE_LEVEL} {title}".rstrip(), article.id, _above(article))
        self._paragraphs(article.paragraphs, article.id)
        self.articles.append(RenderedArticle(start, self.blocks[-1].end, article.id, path, article.place.page))

    def _paragraphs(self, paragraphs: Sequence[Paragraph], article: str) -> None:
        for paragraph in paragraphs:
            if line := _line(paragraph.text):
                self._line(line, article, paragraph.place)

    def _line(self, line: str, article: str, place: Place) -> None:
        end = self.at + len(line)
        self.lines.append(line)
        self.blocks.append(Block(self.at, end, article, place))
        self.at = end + 2


def _line(text: str) -> str:
    """Return text as one line of markdown that normalizing leaves alone and nobody takes for a heading or for code."""
    plain = normalize(" ".join(text.split())).strip()
    return normalize(f"\\{plain}" if plain.startswith(_MARKS) else plain).strip()


def _above(part: Division | Article) -> Place:
    """Return the place of a heading: up to the text below it, for a part's own place holds that too."""
    place, below = part.place, part.paragraphs
    return Place(place.start, max(below[0].place.start, place.start) if below else place.end, place.page)


def _page_starts(blocks: Sequence[Block], end: int, pages: int) -> tuple[int, ...]:
    starts: list[int] = []
    for page, start in _paged(blocks):
        starts += [start] * (page - len(starts))
    return (*starts, *[end] * (pages - len(starts)))


def _paged(blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Yield each block's page with its offset; the first page that has text begins with the text."""
    first = True
    for block in blocks:
        if block.place.page is not None:
            yield block.place.page, 0 if first else block.start
            first = False
