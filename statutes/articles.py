"""The chunker of laws, ``legal-articles@1``: an article is a passage.

It reads a rendered law alone (``statutes.rendering``), so that a campaign can cut a stored one anew. The rules:

- An article of 200 to 1,200 tokens is one chunk.
- Shorter neighbours of one division are joined in order until they have 200. What is left of a division joins the chunk
  before it there; where that has no room, the next article across the boundary, else the last one before it.
- A longer article is cut at paragraphs and fractions, then sentences, into pieces of like length; what is before or
  after it never joins a piece.
- Text that stands in no article (a preamble, a division's own words) is by itself, however short.
- Headings without text of their own begin the chunk of what follows. No two chunks share a character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from documents.normalization import page_of
from embeddings import tokens
from embeddings.chunking import Chunk
from statutes.outline import language
from statutes.pieces import Limits, Piece, pieces
from statutes.units import Unit, counted, units

NAME = "legal-articles"
VERSION = "1"  # Other limits, or another cut of the same text, are another version.
LIMITS = Limits(smallest=200, largest=1200, aim=900)


@dataclass(frozen=True)
class ArticleChunk(Chunk):
    """``articles`` are the ids of those it holds, in order; ``piece`` is (n, of) where it holds a part of one unit."""

    articles: tuple[str, ...] = ()
    piece: tuple[int, int] | None = None
    language: str = ""

    @property
    def meta(self) -> dict[str, object]:
        """Return what a citation needs, ready for JSON (spec 004 §4.4)."""
        article = self.articles[0] if self.articles else None
        told = {**super().meta, "position": self.ord, "article": article, "articles": list(self.articles)}
        told["language"] = self.language
        return told | {"piece": list(self.piece)} if self.piece else told


@dataclass(slots=True)
class _Group:
    """Neighbours that make one chunk; one unit may make several."""

    units: list[Unit]
    cost: int

    @property
    def path(self) -> tuple[str, ...]:
        return self.units[-1].path

    def tokens(self, text: str) -> int:
        return counted(text, self.units[0].start, self.units[-1].end, self.units[-1].stop, self.cost)


@dataclass(frozen=True, slots=True)
class ArticleChunker:
    """Cuts laws. It is an ``embeddings.chunking.Chunker``."""

    name: str
    version: str
    limits: Limits

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def config(self) -> str:
        """Say how it cuts, as JSON: for whoever compares two versions."""
        limits = {f"{name}_tokens": limit for name, limit in asdict(self.limits).items()}
        return json.dumps({"encoding": tokens.ENCODING, **limits}, sort_keys=True, separators=(",", ":"))

    def cut(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> list[Chunk]:
        """Cut a rendered law; of any other text it makes pieces under its headings, of level 6 too.

        Without ``page_starts`` nobody knows the pages: each chunk may be on any, from 1 to ``last_page``.
        """
        chunks: list[Chunk] = []
        spoken = language([text])
        for group in _grouped(text, units(text), self.limits):
            articles = tuple(unit.article for unit in group.units if unit.article)
            found = self._pieces(text, group)
            for at, (start, end, count) in enumerate(found, 1):
                pages = (page_of(page_starts, start), page_of(page_starts, end - 1)) if page_starts else (1, last_page)
                chunks.append(
                    ArticleChunk(
                        ord=len(chunks),
                        text=text[start:end],
                        start=start,
                        end=end,
                        pages=pages,
                        headings=group.units[0].headings,
                        tokens=count,
                        articles=articles,
                        piece=(at, len(found)) if len(found) > 1 else None,
                        language=spoken,
                    )
                )
        return chunks

    def _pieces(self, text: str, group: _Group) -> list[Piece]:
        first, last, count = group.units[0], group.units[-1], group.tokens(text)
        if count <= self.limits.largest:
            return [Piece(first.start, last.end, count)]
        return pieces(text, first.start, last.stop, group.cost, self.limits)


def _grouped(text: str, found: Iterable[Unit], limits: Limits) -> list[_Group]:
    """Join what is too short: first within a division, in order, then the rests."""
    joining = _Joining(text, limits)
    groups: list[_Group] = []
    for unit in found:
        group = _Group([unit], unit.cost)
        if not (groups and joining.is_short(groups[-1]) and joining.within(groups[-1], group)):
            groups.append(group)
    return joining.backward(joining.forward(joining.backward(groups, across=False)), across=True)


@dataclass(frozen=True, slots=True)
class _Joining:
    text: str
    limits: Limits

    def is_short(self, group: _Group) -> bool:
        return bool(group.units[0].article) and group.tokens(self.text) < self.limits.smallest

    def within(self, group: _Group, other: _Group) -> bool:
        """Take the other in, if it is of the same division too."""
        return group.path == other.path and self.joined(group, other)

    def joined(self, group: _Group, other: _Group) -> bool:
        """Take the other in, if both are articles and there is room."""
        last, cost = other.units[-1], group.cost + other.cost
        if not (group.units[0].article and other.units[0].article):
            return False
        if counted(self.text, group.units[0].start, last.end, last.stop, cost) > self.limits.largest:
            return False
        group.units += other.units
        group.cost = cost
        return True

    def backward(self, groups: list[_Group], *, across: bool) -> list[_Group]:
        kept: list[_Group] = []
        for group in groups:
            before = kept[-1] if kept and self.is_short(group) else None
            if before is None or not (self.joined if across else self.within)(before, group):
                kept.append(group)
        return kept

    def forward(self, groups: list[_Group]) -> list[_Group]:
        kept: list[_Group] = []
        for group in groups:
            if not (kept and self.is_short(kept[-1]) and self.joined(kept[-1], group)):
                kept.append(group)
        return kept


CHUNKER = ArticleChunker(NAME, VERSION, LIMITS)
