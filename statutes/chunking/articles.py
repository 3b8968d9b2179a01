"""Chunker of statutes, ``legal-articles@1``: an article is a chunk.

It reads rendered markdown alone (``structure.markdown``), so that a reindexing campaign can chunk a stored law again.
The rules:

- An article of 200 to 1,200 tokens is a chunk. A longer one is split at paragraphs and fractions, then sentences, into
  pieces of similar length.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from documents.markdown.normalization import page_at
from embeddings import tokenizer
from embeddings.chunking import Chunk
from statutes.chunking.sections import Unit, count_tokens, iter_units
from statutes.chunking.splitting import Limits, split_text
from statutes.structure.headings import detect_language

NAME = "legal-articles"
VERSION = "1"  # other limits, or other chunks of the same text, are another version
LIMITS = Limits(smallest=200, largest=1200, aim=900)


@dataclass(frozen=True)
class ArticleChunk(Chunk):
    """``articles`` are the ids of its articles, in order; ``piece`` is (n, of) of the first that was split."""

    articles: tuple[str, ...] = ()
    piece: tuple[int, int] | None = None
    language: str = ""

    @property
    def meta(self) -> dict[str, object]:
        """Return what a citation needs, ready for JSON (spec 004 §4.4)."""
        article = self.articles[0] if self.articles else None
        meta: dict[str, object] = {
            **super().meta,
            "position": self.ord,
            "article": article,
            "articles": list(self.articles),
            "language": self.language,
        }
        return meta | {"piece": list(self.piece)} if self.piece else meta


class _Part(NamedTuple):
    """A unit, or a piece of one: text at [start, end) of [start, stop), which has ``cost`` tokens."""

    unit: Unit
    start: int
    end: int
    tokens: int
    cost: int
    piece: tuple[int, int] | None


@dataclass(slots=True)
class _Group:
    """Adjacent parts that make one chunk."""

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
    def piece(self) -> tuple[int, int] | None:
        return next((part.piece for part in self.parts if part.piece), None)

    def can_absorb(self, other: _Group, limits: Limits, *, across: bool, split: bool) -> bool:
        """Tell whether the group that follows may be joined to this one."""
        last, first = self.parts[-1].unit, other.parts[0].unit
        if self.cost + other.tokens > limits.largest or last is first or last.alone or first.alone:
            return False
        if (not across and self.path != other.path) or (not split and (self.piece or other.piece)):
            return False
        return bool(other.articles) if self.articles else first.path[: len(self.path)] == self.path

    def absorb(self, other: _Group) -> None:
        self.parts += other.parts
        # A unit begins with a line, so no token spans the seam.
        self.tokens, self.cost = self.cost + other.tokens, self.cost + other.cost


@dataclass(frozen=True, slots=True)
class ArticleChunker:
    """Chunks laws by article. It is an ``embeddings.chunking.Chunker``."""

    name: str
    version: str
    limits: Limits

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def config(self) -> str:
        """Return the configuration as JSON, to compare two versions."""
        limits = {f"{name}_tokens": limit for name, limit in asdict(self.limits).items()}
        return json.dumps({"encoding": tokenizer.ENCODING, **limits}, sort_keys=True, separators=(",", ":"))

    def split(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> list[Chunk]:
        """Split a rendered law; any other text is split at its headings, of level 6 too.

        Without ``page_starts`` the pages are unknown: each chunk may be on any, from 1 to ``last_page``.
        """
        chunks: list[Chunk] = []
        language = detect_language([text])
        for group in self._groups(text):
            start, end = group.parts[0].start, group.parts[-1].end
            pages = (page_at(page_starts, start), page_at(page_starts, end - 1)) if page_starts else (1, last_page)
            first = next((part.unit for part in group.parts if part.unit.article), group.parts[0].unit)
            chunks.append(
                ArticleChunk(
                    ord=len(chunks),
                    text=text[start:end],
                    start=start,
                    end=end,
                    pages=pages,
                    headings=first.headings,
                    tokens=group.tokens,
                    articles=group.articles,
                    piece=group.piece,
                    language=language,
                )
            )
        return chunks

    def _groups(self, text: str) -> list[_Group]:
        """Split long units, and join short ones to a neighbour. Each step goes through the law once."""
        parts: list[_Part] = []
        for unit in iter_units(text):
            count = count_tokens(text, unit.start, unit.end, unit.stop, unit.cost)
            if count <= self.limits.largest:
                parts.append(_Part(unit, unit.start, unit.end, count, unit.cost, None))
                continue
            pieces = split_text(text, unit.start, unit.stop, unit.cost, self.limits)
            for number, (start, end, count) in enumerate(pieces, 1):
                cost = tokenizer.count_tokens(text[start : unit.stop]) if number == len(pieces) else count
                parts.append(_Part(unit, start, end, count, cost, (number, len(pieces))))
        groups = [_Group([part], part.tokens, part.cost) for part in parts]
        for is_backward, across, split in STEPS:
            joined: list[_Group] = []
            for group in groups:
                short = group if is_backward else joined[-1] if joined else group
                is_short = short.tokens < self.limits.smallest
                if joined and is_short and joined[-1].can_absorb(group, self.limits, across=across, split=split):
                    joined[-1].absorb(group)
                else:
                    joined.append(group)
            groups = joined
        return groups


# A short group is joined:
#  to the one before it, across a division's end, to a piece of a split article
STEPS = (
    (False,             False,                   False),
    (True,              False,                   False),
    (True,              False,                   True),
    (False,             False,                   True),
    (False,             True,                    True),
    (True,              True,                    True),
)  # fmt: skip


CHUNKER = ArticleChunker(NAME, VERSION, LIMITS)
