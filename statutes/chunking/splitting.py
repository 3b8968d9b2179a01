"""Cutting what is longer than a chunk: between paragraphs and fractions, then sentences, then words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from embeddings import tokenizer as tokens

_LINE = re.compile(r"\n\s*+(?=\S)")
# After a sentence's or a fraction's end, or before a fraction that stands in the line.
_SENTENCE = re.compile(
    r"""[.!?\u2026]["'\u201d\u2019»)\]]*+(?= +[«\u201c"'(¿¡]?[^\W_a-zß-öø-ÿ])|;(?= )"""
    r"""|[:,](?= +(?:[IVXLC]{1,6}[.)]|\(?[a-z]\)|\(?\d{1,2}\)) )"""
)
# What a full stop follows without an end: "Art. 5", "núm. 3", "I. La", "U.S.C. 12".
_SHORTENED = re.compile(
    r"(?:^|[\s(«“\"'.])(?:art(?:s|íc)?|arts?|fracc?s?|inc|párr|núms?|nos?|sr|sra|dr|dra|lic|ing|cap|tít|secc?s?|pág|págs|vol|ed"
    r"|par|pars|ch|subd|cl|mr|mrs|ms|v|vs|cf|ibíd|etc|[a-z]|[ivxlc]{1,6}|\d{1,3})\.$",
    re.IGNORECASE,
)
_WORDS = 128  # characters of a sentence without end that are taken at once: at most 512 tokens


class Span(NamedTuple):
    """Text at [start, stop), visible up to ``end``. ``level`` says what it is: 0 lines, 1 sentences, 2 words."""

    start: int
    end: int
    stop: int
    level: int


@dataclass(frozen=True, slots=True)
class Limits:
    """``aim`` is how long the pieces of what is too long are at most on average, in tokens."""

    smallest: int
    largest: int
    aim: int


class Piece(NamedTuple):
    start: int
    end: int
    tokens: int


def split_text(text: str, start: int, stop: int, cost: int, limits: Limits) -> list[Piece]:
    """Cut text[start:stop] of ``cost`` tokens into pieces of like length, each within the limits but for the last."""
    share = cost / -(-cost // limits.aim)
    todo = list(_spans(text, start, stop, 0))[::-1]
    done: list[Piece] = []
    current = _Current(text)
    while todo:
        span = todo.pop()
        count, grown = current.with_(span)
        enough = current.visible >= limits.smallest
        if grown > limits.largest and not enough:
            todo.extend(list(_spans(text, span.start, span.stop, span.level + 1))[::-1])
        elif enough and (grown > limits.largest or (current.count + count) / 2 > share):
            done.append(current.piece)
            current = _Current(text)
            todo.append(span)
        else:
            current.take(span, count, grown)
    return _without_stub(text, [*done, current.piece], limits)


def _without_stub(text: str, done: list[Piece], limits: Limits) -> list[Piece]:
    if len(done) > 1 and done[-1].tokens < limits.smallest:
        start, end = done[-2].start, done[-1].end
        if (count := tokens.count_tokens(text[start:end])) <= limits.largest:
            return [*done[:-2], Piece(start, end, count)]
    return done


class _Current:
    """The piece that grows. Between lines and before spaces no token spans, so counts add up; elsewhere they do not."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start, self._end = -1, -1
        self.count = 0  # with the white space at its end
        self.visible = 0  # without

    @property
    def piece(self) -> Piece:
        return Piece(self._start, self._end, tokens.count_tokens(self._text[self._start : self._end]))

    def with_(self, span: Span) -> tuple[int, int]:
        """Return the count with ``span``, and the count of what is visible of that."""
        before, start = self.count, span.start
        if self._start < 0:
            start = self._first(span)
        elif span.level == 2 and self._text[start] != " ":
            before, start = 0, self._start
        count = before + tokens.count_tokens(self._text[start : span.stop])
        return count, before + tokens.count_tokens(self._text[start : span.end]) if span.end < span.stop else count

    def take(self, span: Span, count: int, visible: int) -> None:
        if self._start < 0:
            self._start = self._first(span)
        self._end, self.count, self.visible = span.end, count, visible

    def _first(self, span: Span) -> int:
        visible = self._text[span.start : span.stop]
        return span.stop - len(visible.lstrip())


def _spans(text: str, start: int, stop: int, level: int) -> Iterator[Span]:
    """Yield the parts of a text at this level; each but the first begins at a line, at a space, or within a word."""
    visible = start + len(text[start:stop].rstrip())
    cuts = (_lines, _sentences, _words)[min(level, 2)](text, start, visible)
    begin = start
    for cut in (*cuts, stop):
        if end := len(text[begin:cut].rstrip()):
            yield Span(begin, begin + end, cut, min(level, 2))
            begin = cut


def _lines(text: str, start: int, stop: int) -> Iterator[int]:
    for gap in _LINE.finditer(text, start, stop):
        yield text.rindex("\n", gap.start(), gap.end()) + 1


def _sentences(text: str, start: int, stop: int) -> Iterator[int]:
    for found in _SENTENCE.finditer(text, start, stop):
        at = found.end()
        if found[0][0] != "." or not _SHORTENED.search(text[max(at - 12, start) : at]):
            yield at


def _words(text: str, start: int, stop: int) -> Iterator[int]:
    while stop - start > _WORDS:
        space = text.rfind(" ", start + 1, start + _WORDS)
        start = space if space > 0 else start + _WORDS
        yield start
