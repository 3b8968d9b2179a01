"""The chunker of laws, ``legal-articles@1``: an article is a passage.

It reads a rendered law alone (``structure.rendering``), so that a campaign can cut a stored one anew. The rules:

- An article of 200 to 1,200 tokens is a passage. A longer one is cut at paragraphs and fractions, then sentences, into
  pieces of like length.
- What has fewer than 200 is joined to a neighbour, whole, where both have at most 1,200 together: within a division the
  articles that follow it until there are 200, else the one before it; where those are cut, the last piece before it,
  else the first after it; where its division has no room, what follows across the boundary, else what is before.
- Text that stands in no article (a preamble, a division's own words) is joined to what follows it in its division, so
  that a title is cited as the first article; after an article it stays by itself, to be cited as no article's, and so
  do signatures and notes, which stand under a heading without words.
- Headings without text of their own begin the passage of what follows. No two passages share a character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from documents.markdown.normalization import page_at
from embeddings import tokenizer as tokens
from embeddings.chunking import Chunk
from statutes.chunking.sections import Unit, count_tokens, iter_units
from statutes.chunking.splitting import Limits, split_text
from statutes.structure.headings import detect_language

NAME = "legal-articles"
VERSION = "1"  # Other limits, or another cut of the same text, are another version.
LIMITS = Limits(smallest=200, largest=1200, aim=900)


@dataclass(frozen=True)
class ArticleChunk(Chunk):
    """``articles`` are the ids of those it holds, in order; ``piece`` is (n, of) of the first cut one."""

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


class _Part(NamedTuple):
    """A unit, or a piece of one: text at [start, end), of [start, stop), which counts ``cost`` tokens."""

    unit: Unit
    start: int
    end: int
    tokens: int
    cost: int
    piece: tuple[int, int] | None


@dataclass(slots=True)
class _Group:
    """Neighbours that make one passage, which ends where its last part does."""

    parts: list[_Part]
    tokens: int
    cost: int  # with the white space that follows

    @property
    def path(self) -> tuple[str, ...]:
        return self.parts[-1].unit.path

    @property
    def articles(self) -> tuple[str, ...]:
        return tuple(part.unit.article for part in self.parts if part.unit.article)

    @property
    def headings(self) -> tuple[str, ...]:
        return next((part.unit for part in self.parts if part.unit.article), self.parts[0].unit).headings

    @property
    def piece(self) -> tuple[int, int] | None:
        return next((part.piece for part in self.parts if part.piece), None)


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

    def split(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> list[Chunk]:
        """Cut a rendered law; of any other text it makes pieces under its headings, of level 6 too.

        Without ``page_starts`` nobody knows the pages: each chunk may be on any, from 1 to ``last_page``.
        """
        chunks: list[Chunk] = []
        spoken = detect_language([text])
        for group in _joined(_parts(text, iter_units(text), self.limits), self.limits):
            start, end = group.parts[0].start, group.parts[-1].end
            pages = (page_at(page_starts, start), page_at(page_starts, end - 1)) if page_starts else (1, last_page)
            chunks.append(
                ArticleChunk(
                    ord=len(chunks),
                    text=text[start:end],
                    start=start,
                    end=end,
                    pages=pages,
                    headings=group.headings,
                    tokens=group.tokens,
                    articles=group.articles,
                    piece=group.piece,
                    language=spoken,
                )
            )
        return chunks


def _parts(text: str, found: Iterable[Unit], limits: Limits) -> Iterator[_Part]:
    for unit in found:
        count = count_tokens(text, unit.start, unit.end, unit.stop, unit.cost)
        if count <= limits.largest:
            yield _Part(unit, unit.start, unit.end, count, unit.cost, None)
            continue
        cut = split_text(text, unit.start, unit.stop, unit.cost, limits)
        for at, (start, end, count) in enumerate(cut, 1):
            cost = tokens.count_tokens(text[start : unit.stop]) if at == len(cut) else count
            yield _Part(unit, start, end, count, cost, (at, len(cut)))


def _joined(parts: Iterable[_Part], limits: Limits) -> list[_Group]:
    """Join what is too short to a neighbour. Each step goes through the law once."""
    groups = [_Group([part], part.tokens, part.cost) for part in parts]
    for backward, across, cut in STEPS:
        joining = _Joining(limits, across, cut)
        groups = joining.backward(groups) if backward else joining.forward(groups)
    return groups


# What a short one is joined to:
#  what is before, across a division's end, what is cut
STEPS = (
    (False,       False,                   False),
    (True,        False,                   False),
    (True,        False,                   True),
    (False,       False,                   True),
    (False,       True,                    True),
    (True,        True,                    True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Joining:
    limits: Limits
    across: bool
    cut: bool

    def is_short(self, group: _Group) -> bool:
        return group.tokens < self.limits.smallest

    def takes(self, group: _Group, other: _Group) -> bool:
        """Take the other in, which follows, if it may be."""
        if not self._may(group, other):
            return False
        group.parts += other.parts
        # A unit begins with a line, so that no token spans the seam.
        group.tokens, group.cost = group.cost + other.tokens, group.cost + other.cost
        return True

    def _may(self, group: _Group, other: _Group) -> bool:
        if group.cost + other.tokens > self.limits.largest:
            return False
        if not self.across and group.path != other.path:
            return False
        if not self.cut and (group.piece or other.piece):
            return False
        if group.parts[-1].unit is other.parts[0].unit or group.parts[-1].unit.alone or other.parts[0].unit.alone:
            return False
        if group.articles:
            return bool(other.articles)
        return other.parts[0].unit.path[: len(group.path)] == group.path

    def backward(self, groups: list[_Group]) -> list[_Group]:
        kept: list[_Group] = []
        for group in groups:
            if not (kept and self.is_short(group) and self.takes(kept[-1], group)):
                kept.append(group)
        return kept

    def forward(self, groups: list[_Group]) -> list[_Group]:
        kept: list[_Group] = []
        for group in groups:
            if not (kept and self.is_short(kept[-1]) and self.takes(kept[-1], group)):
                kept.append(group)
        return kept


CHUNKER = ArticleChunker(NAME, VERSION, LIMITS)
