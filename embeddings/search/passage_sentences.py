"""Sentences of a passage: of its prose, its list items and the rows of its tables, as plain text with offsets."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, takewhile

from documents.markdown.sentences import plain_text, sentence_spans
from documents.markdown.structure import split_cells
from embeddings.chunking.splitter import Structure
from embeddings.search.table_rows import TableRow, table_rows

_LINE = re.compile(r"[^\n]+")
_ITEM = re.compile(r" *+(?:[-*+]|\d{1,9}[.)]) ++(?=\S)")
_HEADING = re.compile(r" {0,3}#{1,6} ")
_ANSWERED = re.compile(r"\?\W+\w")  # a heading that asks and answers: "Is a referral needed? Yes"
_RULE = re.compile(r"[ \t|:=_*+>#-]*+\Z")  # marks without a word: a line between parts, an empty item


MAX_TERM_CHARS = 60  # of a bold term before its explanation: "**Balance billing.** A bill for …"
_STRAY_MARKS = re.compile(r"\A\*{2,3}(?=\w)|(?<=[\w.!?])\*{2,3}\Z")  # of bold text that is more than one sentence


class Kind(StrEnum):
    SENTENCE = "sentence"
    ITEM = "item"
    ROW = "row"
    HEADING = "heading"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, list item (its first sentence), table row, heading or line of code at [start, end) of the passage.

    ``text`` is plain; of a row it is ``Visit — In network: $60 copay``, and ``heads`` and ``cells`` are its columns.
    ``title`` is the nearest heading above it in the passage, ``lead`` the sentence with a colon that introduces a list.
    """

    kind: Kind
    start: int
    end: int
    text: str
    title: str = ""
    lead: str = ""
    heads: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


def passage_sentences(text: str) -> list[Sentence]:
    """Return what a passage says, in order. Headings are included, table headers only as ``heads`` of their rows."""
    return list(_Reader(text).read())


@dataclass(slots=True)
class _Reader:
    """Reads a passage line by line. ``start`` and ``end`` are of the open block of prose, which has ``kind``."""

    text: str
    title: str = ""
    lead: str = ""
    kind: Kind = Kind.SENTENCE
    start: int = -1
    end: int = -1
    rows: list[TableRow] = field(default_factory=list)

    def read(self) -> Iterator[Sentence]:
        structure = Structure(self.text)
        self.rows = list(table_rows(self.text)) if structure.tables.starts else []
        at = 0
        while line := _LINE.search(self.text, at):
            start, at = line.start(), line.end()
            table, fence = structure.tables.block_at(start), structure.fences.block_at(start)
            if self.start >= 0 and (table or fence or "\n\n" in self.text[self.end : start]):
                yield from self._close()
            if fence:
                yield self._sentence(Kind.CODE, start, at, " ".join(line[0].split()))
            elif table:
                yield from self._table(table.start)
                at = max(table.end, at)
            else:
                yield from self._line(line)
        yield from self._close()

    def _line(self, line: re.Match[str]) -> Iterator[Sentence]:
        if _RULE.match(line[0]):
            yield from self._close()
        elif _HEADING.match(line[0]):
            yield from self._close()
            self.title, self.lead = plain_text(line[0]), ""
            kind = Kind.SENTENCE if _ANSWERED.search(self.title) else Kind.HEADING
            yield self._sentence(kind, *line.span(), self.title)
        elif line[0].lstrip().startswith("|"):
            yield from self._close()
            yield self._row(*line.span())
        elif self.start < 0 or _ITEM.match(line[0]):
            yield from self._close()
            self.start, self.end = line.span()
            self.kind = Kind.ITEM if _ITEM.match(line[0]) else Kind.SENTENCE
        else:
            self.end = line.end()

    def _close(self) -> Iterator[Sentence]:
        """Yield the sentences of the open block; only the first one of a list item is the item."""
        if self.start < 0:
            return
        mark = _ITEM.match(self.text, self.start, self.end) if self.kind == Kind.ITEM else None
        kind, start, self.start = self.kind, mark.end() if mark else self.start, -1
        for span in _join_terms(self.text, sentence_spans(self.text, start, self.end)):
            text = plain_text(self.text[slice(*span)])
            text = _STRAY_MARKS.sub("", text) if "**" in text else text
            if not text:
                continue
            if kind != Kind.ITEM:
                self.lead = ""
            yield self._sentence(kind, *span, text)
            if text.endswith(":"):
                self.lead = text
            kind = Kind.SENTENCE

    def _table(self, start: int) -> Iterator[Sentence]:
        first = bisect_left(self.rows, start, key=lambda row: row.header)
        for row in takewhile(lambda row: row.header == start, islice(self.rows, first, None)):
            if row.is_head:
                yield self._sentence(Kind.HEADING, row.start, row.end, plain_text(row.text))
            else:
                yield self._row(row.start, row.end, tuple(map(plain_text, row.heads)), plain_text(row.text))

    def _row(self, start: int, end: int, heads: tuple[str, ...] = (), text: str = "") -> Sentence:
        cells = tuple(map(plain_text, split_cells(self.text[start:end])))
        text = text or " — ".join(filter(None, cells))
        return Sentence(Kind.ROW, start, end, text, self.title, self.lead, heads, cells)

    def _sentence(self, kind: Kind, start: int, end: int, text: str) -> Sentence:
        is_listed = kind == Kind.ITEM
        return Sentence(kind, start, end, text, "" if kind == Kind.HEADING else self.title, self.lead * is_listed)


def _join_terms(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, a term in bold as one with the sentence that follows it."""
    begin = -1
    for start, end in spans:
        is_term = begin < 0 and text.startswith("**", start) and end - start <= MAX_TERM_CHARS
        if is_term:
            begin, term_end = start, end
        else:
            yield begin if begin >= 0 else start, end
            begin = -1
    if begin >= 0:
        yield begin, term_end
