"""A law as normalized markdown: the text that is stored as its document's parse, and cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from documents.markdown.normalization import normalize
from statutes.structure.labels import LABEL_SEPARATOR, ArticleIds, DivisionStack
from statutes.structure.model import Article, Division, Law, Paragraph, Place

ARTICLE_LEVEL = 6  # headings of this level are articles, those above are divisions
DEEPEST = ARTICLE_LEVEL - 1  # divisions deeper than this share a level
# A paragraph that begins like this would be read as a heading, or as the begin of code.
_MARKS = ("#", "```", "~~~")


class Block(NamedTuple):
    """A heading or a paragraph of the rendered text begins here, and on this page, where the format has pages."""

    start: int
    page: int | None


@dataclass(frozen=True, slots=True)
class Rendered:
    """``page_starts`` is as ``documents.markdown.normalization`` has it, and empty where the format has no pages."""

    text: str
    page_starts: tuple[int, ...]


def render_markdown(law: Law, *, pages: int = 0) -> Rendered:
    """Return the law's markdown; the same law gives the same, and normalizing it changes nothing.

    A division is a heading of its depth, an article one of level 6, a paragraph one line. A heading without words
    closes the divisions below its level. ``pages`` is how many the file has, where the last ones hold no text.
    """
    return _Renderer().rendered(law, pages)


@dataclass(slots=True)
class _Renderer:
    lines: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    divisions: DivisionStack = field(default_factory=DivisionStack)
    ids: ArticleIds = field(default_factory=ArticleIds)
    at: int = 0
    depth: int = 0  # of the division whose heading was written last

    def rendered(self, law: Law, pages: int) -> Rendered:
        self._paragraphs(law.preamble)
        self._children(law.children, 0)
        text = "\n\n".join(self.lines) + "\n" if self.lines else ""
        return Rendered(text, _page_starts(self.blocks, len(text), pages))

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
        self._heading(min(depth, DEEPEST), _line(division.title), division.place)
        self._paragraphs(division.paragraphs)
        self._children(division.children, depth)

    def _heading(self, level: int, title: str, place: Place) -> None:
        self.divisions.enter(level, title)
        self._line(f"{'#' * level} {title}".rstrip(), place.page)

    def _article(self, article: Article) -> None:
        title = _line(LABEL_SEPARATOR.join(filter(None, (article.label, article.heading))))
        title = self.ids.heading_with_id(title, self.divisions.innermost, article.id)
        self._line(f"{'#' * ARTICLE_LEVEL} {title}".rstrip(), article.place.page)
        self._paragraphs(article.paragraphs)

    def _paragraphs(self, paragraphs: Sequence[Paragraph]) -> None:
        for paragraph in paragraphs:
            if line := _line(paragraph.text):
                self._line(line, paragraph.place.page)

    def _line(self, line: str, page: int | None) -> None:
        self.lines.append(line)
        self.blocks.append(Block(self.at, page))
        self.at += len(line) + 2


def _line(text: str) -> str:
    """Return text as one line of markdown that normalizing leaves alone and nobody takes for a heading or for code."""
    plain = normalize(" ".join(text.split())).strip()
    return normalize(f"\\{plain}" if plain.startswith(_MARKS) else plain).strip()


def _page_starts(blocks: Sequence[Block], end: int, pages: int) -> tuple[int, ...]:
    starts: list[int] = []
    for page, start in _paged(blocks):
        starts += [start] * (page - len(starts))
    return (*starts, *[end] * (pages - len(starts)))


def _paged(blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Yield each block's page with its offset; the first page that has text begins with the text."""
    first = True
    for block in blocks:
        if block.page is not None:
            yield block.page, 0 if first else block.start
            first = False
