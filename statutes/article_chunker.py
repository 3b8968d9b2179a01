"""Chunker of statutes, ``legal-articles@1``: an article is a chunk.

It reads rendered markdown alone (``structure.markdown``), so that a reindexing campaign can chunk a stored law again.
The rules:

- An article of 200 to 1,200 tokens is a chunk. A longer one is split at paragraphs and fractions, then sentences, into
  pieces of similar length.
- What has fewer than 200 is joined to a neighbour, whole, where both have at most 1,200 together: within a division the
  articles that follow it until there are 200, else the one before it; where those are split, the last piece before it,
  else the first after it; where its division has no room, what follows across the boundary, else what is before.
- Text in no article (a preamble, a division's own words) is joined to what follows it in its division, so that a title
  is cited as the first article; after an article it stays by itself, to be cited as no article's, and so do signatures
  and notes, which are under a heading without words.
- Headings without text of their own begin the passage of what follows. No two passages share a character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from documents.markdown.normalization import page_at
from embeddings import tokenizer
from embeddings.chunking.chunkers import Chunk
from statutes.structure.article_ids import ArticleIds, DivisionStack, strip_anchor
from statutes.structure.headings import detect_language
from statutes.structure.markdown import ARTICLE_LEVEL

MAX_TITLE_CHARS = 200  # of a heading in a path, which is repeated in every chunk of a division
_HEADING = re.compile(r"^(#{1,6})(?: +([^\n]*))?$", re.MULTILINE)


# Units: articles, and the text outside of articles


@dataclass(slots=True)
class Unit:
    """Text at [start, end), without white space at either end, of [start, stop), which has ``cost`` tokens.

    It begins with the headings above it. ``article`` is the id, "" for text outside of articles; ``path`` the titles of
    the divisions around it, ``headings`` with the article's own. A unit that stands ``alone`` is under a heading
    without words: signatures are no part of the annex that follows them.
    """

    start: int
    end: int
    stop: int
    cost: int
    path: tuple[str, ...]
    headings: tuple[str, ...]
    article: str
    alone: bool = False


def iter_units(text: str) -> Iterator[Unit]:
    """Yield the units of a text in order; they contain every visible character of it."""
    visible = re.search(r"\S", text)
    if visible is None:
        return
    last = len(text.rstrip())
    divisions, ids = DivisionStack(), ArticleIds()
    article = title = ""
    alone = False

    def unit(start: int, stop: int) -> Unit:
        end = start + len(text[start:stop].rstrip())
        path = tuple(division[:MAX_TITLE_CHARS] for division in divisions.titles)
        headings = (*path, title[:MAX_TITLE_CHARS]) if title else path
        return Unit(start, end, stop, tokenizer.count_tokens(text[start:stop]), path, headings, article, alone)

    pending = visible.start()
    heading = _HEADING.search(text)
    if heading is None or heading.start() > pending:
        stop = heading.start() if heading else len(text)
        yield unit(pending, stop)
        pending = stop
    while heading is not None:
        level, words = len(heading[1]), (heading[2] or "").rstrip()
        is_article = level == ARTICLE_LEVEL
        alone = not (is_article or words)
        if is_article:
            article, title = ids.next_id(words, divisions.innermost), strip_anchor(words)
        else:
            article = title = ""
            divisions.enter(level, words)
        body = heading.end()
        heading = _HEADING.search(text, body)
        stop = heading.start() if heading else len(text)
        # A heading without text belongs to what follows it.
        if is_article or stop > last or text[body:stop].strip():
            yield unit(pending, stop)
            pending = stop


# Pieces of a unit that is longer than a chunk

_LINE = re.compile(r"\n\s*+(?=\S)")
# After a sentence's or a fraction's end, or before a fraction within a line.
_SENTENCE = re.compile(
    r"""[.!?\u2026]["'\u201d\u2019»)\]]*+(?= +[«\u201c"'(¿¡]?[^\W_a-zß-öø-ÿ])|;(?= )"""
    r"""|[:,](?= +(?:[IVXLC]{1,6}[.)]|\(?[a-z]\)|\(?\d{1,2}\)) )"""
)
# Abbreviations, whose full stop ends no sentence: "Art. 5", "núm. 3", "I. La", "U.S.C. 12".
_ABBREVIATION = re.compile(
    r"(?:^|[\s(«“\"'.])(?:art(?:s|íc)?|arts?|fracc?s?|inc|párr|núms?|nos?|sr|sra|dr|dra|lic|ing|cap|tít|secc?s?|pág|págs|vol|ed"
    r"|par|pars|ch|subd|cl|mr|mrs|ms|v|vs|cf|ibíd|etc|[a-z]|[ivxlc]{1,6}|\d{1,3})\.$",
    re.IGNORECASE,
)
_MAX_WORDS_CHARS = 128  # of a sentence without end that are taken at once: at most 512 tokens


class Span(NamedTuple):
    """Text at [start, stop), visible up to ``end``. ``level``: 0 lines, 1 sentences, 2 words."""

    start: int
    end: int
    stop: int
    level: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens. ``aim`` is the largest average length of the pieces of a split text."""

    smallest: int
    largest: int
    aim: int


def split_text(text: str, start: int, stop: int, cost: int, limits: Limits) -> list[tuple[int, int, int]]:
    """Split text[start:stop] of ``cost`` tokens into pieces of similar length, within the limits but for the last.

    Return the start, the end and the tokens of each.
    """
    share = cost / -(-cost // limits.aim)
    todo = list(_spans(text, start, stop, 0))[::-1]
    pieces: list[tuple[int, int, int]] = []
    current = _GrowingPiece(text)
    while todo:
        span = todo.pop()
        count, visible = current.counts_with(span)
        enough = current.visible >= limits.smallest
        if visible > limits.largest and not enough:
            todo.extend(list(_spans(text, span.start, span.stop, span.level + 1))[::-1])
        elif enough and (visible > limits.largest or (current.count + count) / 2 > share):
            pieces.append(current.piece)
            current = _GrowingPiece(text)
            todo.append(span)
        else:
            current.add(span, count, visible)
    pieces.append(current.piece)
    if len(pieces) > 1 and pieces[-1][2] < limits.smallest:  # a short last piece is joined to the one before
        start, end = pieces[-2][0], pieces[-1][1]
        if (count := tokenizer.count_tokens(text[start:end])) <= limits.largest:
            pieces[-2:] = [(start, end, count)]
    return pieces


class _GrowingPiece:
    """A piece that grows. No token spans a line's end or the place before a space, so counts add up only there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start, self._end = -1, -1
        self.count = 0  # with the white space at its end
        self.visible = 0  # without

    @property
    def piece(self) -> tuple[int, int, int]:
        return self._start, self._end, tokenizer.count_tokens(self._text[self._start : self._end])

    def counts_with(self, span: Span) -> tuple[int, int]:
        """Return the tokens with ``span``, and those without the white space at its end."""
        before, start = self.count, span.start
        if self._start < 0:
            start = span.stop - len(self._text[start : span.stop].lstrip())
        elif span.level == 2 and self._text[start] != " ":
            before, start = 0, self._start
        count = before + tokenizer.count_tokens(self._text[start : span.stop])
        return count, before + tokenizer.count_tokens(self._text[start : span.end]) if span.end < span.stop else count

    def add(self, span: Span, count: int, visible: int) -> None:
        if self._start < 0:
            self._start = span.stop - len(self._text[span.start : span.stop].lstrip())
        self._end, self.count, self.visible = span.end, count, visible


def _spans(text: str, start: int, stop: int, level: int) -> Iterator[Span]:
    """Yield the spans of a text at this level; each but the first begins at a line, at a space, or within a word."""
    visible = start + len(text[start:stop].rstrip())
    cuts = (_line_starts, _sentence_ends, _word_starts)[min(level, 2)](text, start, visible)
    begin = start
    for cut in (*cuts, stop):
        if length := len(text[begin:cut].rstrip()):
            yield Span(begin, begin + length, cut, min(level, 2))
            begin = cut


def _line_starts(text: str, start: int, stop: int) -> Iterator[int]:
    for gap in _LINE.finditer(text, start, stop):
        yield text.rindex("\n", gap.start(), gap.end()) + 1


def _sentence_ends(text: str, start: int, stop: int) -> Iterator[int]:
    for match in _SENTENCE.finditer(text, start, stop):
        end = match.end()
        if match[0][0] != "." or not _ABBREVIATION.search(text[max(end - 12, start) : end]):
            yield end


def _word_starts(text: str, start: int, stop: int) -> Iterator[int]:
    while stop - start > _MAX_WORDS_CHARS:
        space = text.rfind(" ", start + 1, start + _MAX_WORDS_CHARS)
        start = space if space > 0 else start + _MAX_WORDS_CHARS
        yield start


# Chunks


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
        own = {"position": self.ord, "article": article, "articles": list(self.articles), "language": self.language}
        return {**super().meta, **own, **({"piece": list(self.piece)} if self.piece else {})}


class _Part(NamedTuple):
    """A unit, or a piece of one; ``cost`` is its tokens with the white space that follows."""

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
    def articles(self) -> tuple[str, ...]:
        return tuple(part.unit.article for part in self.parts if part.unit.article)

    @property
    def piece(self) -> tuple[int, int] | None:
        return next((part.piece for part in self.parts if part.piece), None)

    def can_absorb(self, other: _Group, limits: Limits, *, across: bool, split: bool) -> bool:
        last, first = self.parts[-1].unit, other.parts[0].unit
        if self.cost + other.tokens > limits.largest or last is first or last.alone or first.alone:
            return False
        if (not across and last.path != other.parts[-1].unit.path) or (not split and (self.piece or other.piece)):
            return False
        return bool(other.articles) if self.articles else first.path[: len(last.path)] == last.path

    def absorb(self, other: _Group) -> None:
        self.parts += other.parts
        # A unit begins with a line, so no token spans the seam.
        self.tokens, self.cost = self.cost + other.tokens, self.cost + other.cost


@dataclass(frozen=True, slots=True)
class ArticleChunker:
    """Chunks laws by article. It is an ``embeddings.chunking.chunkers.Chunker``."""

    name: str = "legal-articles"
    version: str = "1"  # other limits, or other chunks of the same text, are another version
    limits: Limits = Limits(smallest=200, largest=1200, aim=900)

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
            count = tokenizer.recount_tokens(text, unit.start, unit.stop, unit.end, unit.cost)
            if count < 0:
                count = tokenizer.count_tokens(text[unit.start : unit.end])
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


CHUNKER = ArticleChunker()
