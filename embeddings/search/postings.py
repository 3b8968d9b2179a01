"""Postings of words: the layout of their stored bytes, and the reading of those of a query, merged and not yet merged.

A slot is a chunk's place in the arrays of one query: its document's first slot plus its ordinal.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from accounts.prepared_statements import prepared_cursor
from embeddings.search.vector_search import Scope

EVERY_CHUNK = ""  # the term whose postings are all chunks of a document, until they are merged
MERGED = "\x02"  # its name from then on
NAME_PREFIX = "\x01"  # of the terms of documents' names: no lexeme has it
# Of a document's term, as int4send and int2send write them: chunks sorted by ordinal, rows by ordinal and row.
POSTING = np.dtype([("ord", ">i4"), ("impact", ">i2")])
ROW_POSTING = np.dtype([("ord", ">i4"), ("row", ">i2"), ("impact", ">i2")])
# Of a segment's term. A term in more than half of the slots has the impact of each slot instead, 0 where it is absent:
# half as many bytes, and added to the scores in a tenth of the time.
SEGMENT_POSTING = np.dtype([("slot", "<u2"), ("impact", "<u2")])
SEGMENT_ROW_POSTING = np.dtype([("slot", "<u2"), ("row", "<u2"), ("impact", "<u2")])
DENSE_IMPACT = np.dtype("<u2")
SEGMENT_DOCUMENT = np.dtype([("document_id", "S16"), ("begin", "<u4"), ("chunks", "<u4")])

# Postings that a query reads at most: as many words as fit, the rarest first. A word in every other chunk of a million
# hardly adds to a score, and takes as long as all other words together.
MAX_POSTINGS = 1_000_000
SELECT_SEGMENTS = """
    SELECT segment_id, slots, documents, deleted_documents FROM posting_segments
    WHERE user_id = %(user)s{segments} ORDER BY segment_id"""
IN_DOCUMENTS = " AND document_id = ANY(%(documents)s)"
IN_SEGMENTS = f""" AND segment_id = ANY(ARRAY(
    SELECT segment_id FROM document_terms WHERE user_id = %(user)s AND term = %(merged)s{IN_DOCUMENTS}))"""
# Postings are counted only where the words, each in every chunk and row, can be too many.
CHOSEN = """
    WITH every AS (
        SELECT (SELECT coalesce(sum(octet_length(postings) / %(wide)s
                                    + coalesce(octet_length(row_postings), 0) / %(wide_row)s), 0)
                FROM document_terms WHERE user_id = %(user)s AND term = %(every)s{documents})
               + (SELECT coalesce(sum(slots + rows), 0)
                  FROM posting_segments WHERE user_id = %(user)s{segments}) AS size),
    counted AS (
        SELECT term, sum(size) AS size FROM (
            SELECT term, octet_length(postings) / %(wide)s
                   + coalesce(octet_length(row_postings), 0) / %(wide_row)s AS size
            FROM document_terms WHERE user_id = %(user)s AND term = ANY(%(words)s::text[]){documents}
            UNION ALL
            SELECT term, size + coalesce(octet_length(row_postings), 0) / %(wide_segment_row)s
            FROM posting_blocks WHERE user_id = %(user)s AND term = ANY(%(words)s::text[]){segments}) t GROUP BY term),
    chosen AS (
        SELECT CASE WHEN (SELECT size FROM every) * cardinality(%(words)s::text[]) <= %(most)s THEN %(words)s::text[]
               ELSE ARRAY(SELECT term FROM (
                   SELECT term, sum(size) OVER (ORDER BY size, term) - size AS before FROM counted) c
                   WHERE before < %(most)s) END || ARRAY(
                   SELECT %(prefix)s || lexeme
                   FROM unnest(%(configurations)s::regconfig[]) c, unnest(to_tsvector(c, %(name)s))) AS terms)"""
# A row a term: the postings of its documents one after another.
SELECT_DOCUMENT_TERMS = f"""{CHOSEN}
    SELECT term,
           string_agg(uuid_send(document_id), '' ORDER BY document_id),
           string_agg(int4send(octet_length(postings) / %(wide)s), '' ORDER BY document_id),
           string_agg(postings, '' ORDER BY document_id),
           string_agg(int4send(coalesce(octet_length(row_postings), 0) / %(wide_row)s), '' ORDER BY document_id),
           coalesce(string_agg(row_postings, '' ORDER BY document_id), '')
    FROM document_terms
    WHERE user_id = %(user)s AND term = ANY((SELECT terms || %(every)s::text FROM chosen)::text[]){{documents}}
    GROUP BY term"""
SELECT_BLOCKS = f"""{CHOSEN}
    SELECT term, segment_id, size, postings, coalesce(row_postings, '') FROM posting_blocks
    WHERE user_id = %(user)s AND term = ANY((SELECT terms FROM chosen)::text[]){{segments}} ORDER BY term, segment_id"""


@dataclass(slots=True)
class WordPostings:
    """The chunks with a word by their slot, and its impacts in them; the same of the rows of their tables."""

    word: str
    chunk_count: int = 0  # with the word
    slots: NDArray[Any] = field(default_factory=lambda: np.zeros(0, "i8"))
    impacts: NDArray[Any] = field(default_factory=lambda: np.zeros(0, "u2"))
    dense: list[tuple[int, NDArray[Any]]] = field(default_factory=list)  # a first slot, and the impacts from there on
    row_slots: NDArray[Any] = field(default_factory=lambda: np.zeros(0, "i8"))
    row_numbers: NDArray[Any] = field(default_factory=lambda: np.zeros(0, "i8"))
    row_impacts: NDArray[Any] = field(default_factory=lambda: np.zeros(0, "u2"))

    def add_to(self, scores: NDArray[Any], weight: float) -> None:
        """Add ``weight`` times the word's impact to the score of each chunk."""
        scores[self.slots] += weight * self.impacts
        for begin, impacts in self.dense:
            scores[begin : begin + impacts.size] += weight * impacts

    def add_presence(self, shares: NDArray[Any], weight: float) -> None:
        """Add ``weight`` for each chunk that has the word."""
        shares[self.slots] += weight
        for begin, impacts in self.dense:
            shares[begin : begin + impacts.size] += weight * (impacts > 0)


@dataclass(frozen=True, slots=True)
class Postings:
    """Postings of a query's words, and the documents of the scope, whose names have ``names``, as places among them."""

    documents: NDArray[Any]  # 16 bytes each
    begins: NDArray[Any]  # first slot of each document, ascending, and the number of slots
    document_count: int  # of the scope: ``documents`` has those deleted as well
    chunk_count: int
    words: list[WordPostings]
    names: list[NDArray[Any]]

    def document_id(self, at: int | np.integer[Any]) -> UUID:
        return UUID(bytes=bytes(self.documents[at]).ljust(16, b"\0"))  # numpy cuts zeros off


NO_POSTINGS = Postings(np.zeros(0, "S16"), np.zeros(1, "i8"), 0, 0, [], [])


class _TermRow(NamedTuple):
    """Of SELECT_DOCUMENT_TERMS: documents with the term, the number of their postings, and these one after another."""

    documents: NDArray[Any]
    counts: NDArray[Any]
    postings: NDArray[Any]
    row_counts: NDArray[Any]
    row_postings: NDArray[Any]


_TYPES: tuple[Any, ...] = "S16", ">i4", POSTING, ">i4", ROW_POSTING


class _Segment(NamedTuple):
    begin: int  # first slot
    is_live: NDArray[Any] | None  # of each slot; None: all are


def read_postings(
    scope: Scope, lexemes: Sequence[str], name: str = "", configurations: Sequence[str] = ("english",)
) -> Postings:
    """Return the postings of those lexemes that the scope has, and the documents whose names have words of ``name``.

    Call inside ``as_tenant``, in a transaction of one snapshot: documents may be merged meanwhile.
    """
    return send_reads(scope, lexemes, name, configurations)()


def send_reads(
    scope: Scope, lexemes: Sequence[str], name: str = "", configurations: Sequence[str] = ("english",)
) -> Callable[[], Postings]:
    """Do as ``read_postings``, but return a function that returns the postings.

    Within a pipeline, statements sent before it is called are in the same round trip.
    """
    params = scope.params | {"words": list(lexemes), "most": MAX_POSTINGS}
    params |= {"prefix": NAME_PREFIX, "name": name, "configurations": list(configurations)}
    params |= {"every": EVERY_CHUNK, "merged": MERGED, "wide": POSTING.itemsize, "wide_row": ROW_POSTING.itemsize}
    params |= {"wide_segment_row": SEGMENT_ROW_POSTING.itemsize}
    is_narrow = scope.document_ids is not None
    filters = {"documents": IN_DOCUMENTS if is_narrow else "", "segments": IN_SEGMENTS if is_narrow else ""}
    cursors = []
    for sql in (SELECT_SEGMENTS, SELECT_DOCUMENT_TERMS, SELECT_BLOCKS):
        cursors.append(prepared_cursor())
        cursors[-1].execute(sql.format(**filters), params)
    return lambda: _lay_out(scope, lexemes, *(cursor.fetchall() for cursor in cursors))


Rows = list[tuple[Any, ...]]


def _lay_out(scope: Scope, lexemes: Sequence[str], segment_rows: Rows, term_rows: Rows, blocks: Rows) -> Postings:
    layout = _Layout(scope)
    for segment in segment_rows:
        layout.add_segment(*segment)
    terms = {term: _TermRow(*map(np.frombuffer, columns, _TYPES)) for term, *columns in term_rows}
    layout.add_documents(terms.pop(EVERY_CHUNK, None))
    blocks_of = {term: list(own) for term, own in groupby(blocks, key=itemgetter(0))}
    words = [layout.word(term, terms.get(term), blocks_of.get(term, [])) for term in lexemes]
    names = sorted({term for term in {*terms, *blocks_of} if term.startswith(NAME_PREFIX)})
    documents, begins = np.concatenate(layout.documents), np.append(np.concatenate(layout.begins), layout.end)
    return Postings(
        documents,
        begins,
        layout.document_count,
        layout.chunk_count,
        [word for word in words if word.chunk_count or word.row_slots.size],
        [layout.named(begins, terms.get(term), blocks_of.get(term, [])) for term in names],
    )


class _Layout:
    """Slots of a scope's documents: those of segments first, then those that are not merged yet."""

    def __init__(self, scope: Scope) -> None:
        wanted = scope.document_ids
        self._wanted = None if wanted is None else np.array([each.bytes for each in wanted], "S16")
        self._segments: dict[int, _Segment] = {}
        self._unmerged, self._unmerged_begins = np.zeros(0, "S16"), np.zeros(0, "i8")
        self.documents, self.begins = [self._unmerged], [self._unmerged_begins]
        self.end = self.document_count = self.chunk_count = 0

    def add_segment(self, segment_id: int, slots: int, documents: bytes, deleted: Sequence[UUID]) -> None:
        own = np.frombuffer(documents, SEGMENT_DOCUMENT)
        is_live = None
        if deleted or self._wanted is not None:
            is_live = ~np.isin(own["document_id"], np.array([each.bytes for each in deleted], "S16"))
            if self._wanted is not None:
                is_live &= np.isin(own["document_id"], self._wanted)
        self._segments[segment_id] = _Segment(
            self.end, None if is_live is None else np.repeat(is_live, np.diff(own["begin"], append=slots))
        )
        self.documents.append(own["document_id"])
        self.begins.append(self.end + own["begin"].astype("i8"))
        self.end += slots
        self.document_count += own.size if is_live is None else int(is_live.sum())
        self.chunk_count += int((own["chunks"] if is_live is None else own["chunks"][is_live]).sum())

    def add_documents(self, every: _TermRow | None) -> None:
        """Add the documents that are not merged yet; ``every`` has their chunks."""
        if every is None:
            return
        sizes = every.postings["ord"][np.cumsum(every.counts) - 1] + 1  # their highest ordinal says how many slots
        self._unmerged, self._unmerged_begins = every.documents, self.end + np.cumsum(sizes) - sizes
        self.documents.append(self._unmerged)
        self.begins.append(self._unmerged_begins)
        self.end += int(sizes.sum())
        self.document_count += every.documents.size
        self.chunk_count += every.postings.size

    def word(self, word: str, row: _TermRow | None, blocks: Iterable[Sequence[Any]]) -> WordPostings:
        postings, rows, dense, count = [], [], [], 0
        for _, segment_id, size, stored, stored_rows in blocks:
            begin, is_live = self._segments[segment_id]
            if len(stored) != size * SEGMENT_POSTING.itemsize:
                impacts = np.frombuffer(stored, DENSE_IMPACT)
                impacts = impacts if is_live is None else impacts * is_live
                dense.append((begin, impacts))
                count += size if is_live is None else int(np.count_nonzero(impacts))
            else:
                postings.append(_place(np.frombuffer(stored, SEGMENT_POSTING), begin, is_live))
            if stored_rows:
                rows.append(_place(np.frombuffer(stored_rows, SEGMENT_ROW_POSTING), begin, is_live))
        if row is not None:
            begins = self._unmerged_begins[np.searchsorted(self._unmerged, row.documents)]
            slots = np.repeat(begins, row.counts) + row.postings["ord"]
            postings.append((slots, row.postings))
            if row.row_postings.size:
                rows.append((np.repeat(begins, row.row_counts) + row.row_postings["ord"], row.row_postings))
        posted = WordPostings(word, dense=dense)
        if postings:
            posted.slots = np.concatenate([slots for slots, _ in postings])
            posted.impacts = np.concatenate([each["impact"] for _, each in postings])
        if rows:
            posted.row_slots = np.concatenate([slots for slots, _ in rows])
            posted.row_numbers = np.concatenate([each["row"] for _, each in rows])
            posted.row_impacts = np.concatenate([each["impact"] for _, each in rows])
        posted.chunk_count = count + posted.slots.size
        return posted

    def named(self, begins: NDArray[Any], row: _TermRow | None, blocks: Iterable[Sequence[Any]]) -> NDArray[Any]:
        """Return the documents with this term of a name, as places among all."""
        firsts = [np.zeros(0, "i8")]
        for _, segment_id, _, stored, _ in blocks:
            firsts.append(_place(np.frombuffer(stored, SEGMENT_POSTING), *self._segments[segment_id])[0])
        if row is not None:
            firsts.append(self._unmerged_begins[np.searchsorted(self._unmerged, row.documents)])
        return np.searchsorted(begins, np.concatenate(firsts))


def _place(postings: NDArray[Any], begin: int, is_live: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the slots of a segment's live postings, and these."""
    live = postings if is_live is None else postings[is_live[postings["slot"]]]
    return begin + live["slot"].astype("i8"), live
