"""Splitting of text that is longer than a chunk: at paragraphs and fractions, then sentences, then words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from embeddings import tokenizer

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


class Piece(NamedTuple):
    start: int
    end: int
    tokens: int


def split_text(text: str, start: int, stop: int, cost: int, limits: Limits) -> list[Piece]:
    """Split text[start:stop] of ``cost`` tokens into pieces of similar length, within the limits but for the last."""
    share = cost / -(-cost // limits.aim)
    todo = list(_spans(text, start, stop, 0))[::-1]
    pieces: list[Piece] = []
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
    if len(pieces) > 1 and pieces[-1].tokens < limits.smallest:  # a short last piece is joined to the one before
        start, end = pieces[-2].start, pieces[-1].end
        if (count := tokenizer.count_tokens(text[start:end])) <= limits.largest:
            pieces[-2:] = [Piece(start, end, count)]
    return pieces


class _GrowingPiece:
    """A piece that grows. No token spans a line's end or the place before a space, so counts add up only there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start, self._end = -1, -1
        self.count = 0  # with the white space at its end
        self.visible = 0  # without

    @property
    def piece(self) -> Piece:
        return Piece(self._start, self._end, tokenizer.count_tokens(self._text[self._start : self._end]))

    def counts_with(self, span: Span) -> tuple[int, int]:
        """Return the tokens with ``span``, and those without the white space at its end."""
        before, start = self.count, span.start
        if self._start < 0:
            start = self._visible_start(span)
        elif span.level == 2 and self._text[start] != " ":
            before, start = 0, self._start
        count = before + tokenizer.count_tokens(self._text[start : span.stop])
        return count, before + tokenizer.count_tokens(self._text[start : span.end]) if span.end < span.stop else count

    def add(self, span: Span, count: int, visible: int) -> None:
        if self._start < 0:
            self._start = self._visible_start(span)
        self._end, self.count, self.visible = span.end, count, visible

    def _visible_start(self, span: Span) -> int:
        return span.stop - len(self._text[span.start : span.stop].lstrip())


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
