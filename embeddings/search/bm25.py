"""BM25: the index of a document's words, written when its vectors are committed, and the search over it."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from math import log
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection
from numpy.typing import NDArray

from embeddings.search import document_names
from embeddings.search.query_parser import CONFIGURATIONS, ENGLISH
from embeddings.search.table_rows import MAX_ROWS, table_rows
from embeddings.search.vector_search import Scope

K1 = 1.5  # better than 1.2 on both dev sets of docs/retrieval.md
B = 0.75
HEADING_WEIGHT = 2  # a word of the heading path counts like so many in the text
AVERAGE_LENGTH = 130  # words of a chunk: frozen, so that one document's impacts never depend on another's
NAME_WEIGHT = 1.0  # of the idf of words that name the chunk's document
SCALE = 1000  # impacts, BM25's part of the term frequency, are kept as thousandths
# A chunk with a term, as int4send and int2send write it, sorted by ordinal.
POSTING = np.dtype([("ord", ">i4"), ("impact", ">i2")])
EVERY_CHUNK = ""  # the term whose postings count the chunks

# A row of a table in a chunk with a term, sorted by ordinal and row.
ROW_POSTING = np.dtype([("ord", ">i4"), ("row", ">i2"), ("impact", ">i2")])
ROW_BITS = 16
AVERAGE_ROW_LENGTH = 30  # words of a row with its column heads and headings

# Weight A marks the words of headings. Collation "C" compares bytes: a sort in a third of the time. Sorted, so that
# concurrent writers of the same rows lock them in one order.
INSERT = """
    DELETE FROM document_terms WHERE document_id = %(document)s;
    WITH chunks AS MATERIALIZED (
        SELECT user_id, chunk_ord, search,
               (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(search))::float8 AS size
        FROM document_chunks WHERE document_id = %(document)s AND embedding IS NOT NULL),
    words AS (
        SELECT w.lexeme COLLATE "C" AS term, p.user_id, p.chunk_ord,
               %(k1)s * (1 - %(b)s + %(b)s * p.size / %(average)s) AS norm,
               (cardinality(positions) + %(more)s * cardinality(array_positions(weights, 'A')))::float8 AS tf
        FROM chunks p, unnest(p.search) w){row_terms}
    INSERT INTO document_terms (user_id, document_id, term, postings, row_postings)
    SELECT user_id, %(document)s, term, postings, {row_postings} FROM (
        SELECT user_id, term, string_agg(
            int4send(chunk_ord) || int2send(round(%(scale)s * tf * (%(k1)s + 1) / (tf + norm))::smallint), ''
            ORDER BY chunk_ord) AS postings
        FROM words GROUP BY user_id, term
        UNION ALL
        SELECT user_id, %(every)s, string_agg(int4send(chunk_ord) || int2send(0::smallint), '' ORDER BY chunk_ord)
        FROM chunks GROUP BY user_id) c{join}
    ORDER BY 1, 3"""
ROW_TERMS = """,
    rows AS MATERIALIZED (
        SELECT ord, number, search, (SELECT sum(cardinality(positions)) FROM unnest(search))::float8 AS size
        FROM unnest(%(ords)s::int[], %(numbers)s::int[], %(configurations)s::regconfig[], %(titles)s::text[],
                    %(texts)s::text[]) AS r(ord, number, configuration, title, text),
             LATERAL (SELECT setweight(to_tsvector(configuration, title), 'A') || to_tsvector(configuration, text))
             v(search)),
    row_words AS (
        SELECT lexeme COLLATE "C" AS term, ord, number, %(k1)s * (1 - %(b)s + %(b)s * size / %(average_row)s) AS norm,
               (cardinality(positions) + %(more)s * cardinality(array_positions(weights, 'A')))::float8 AS tf
        FROM rows, unnest(search)),
    row_terms AS (
        SELECT term, string_agg(int4send(ord) || int2send(number::smallint)
            || int2send(round(%(scale)s * tf * (%(k1)s + 1) / (tf + norm))::smallint), '' ORDER BY ord, number) AS rows
        FROM row_words GROUP BY term
        UNION ALL
        SELECT %(every)s, string_agg(int4send(ord) || int2send(number::smallint) || int2send(0::smallint), ''
            ORDER BY ord, number)
        FROM rows)"""
WITHOUT_ROWS = {"row_terms": "", "row_postings": "NULL::bytea", "join": ""}
# A full join is never a nested loop, which the planner would choose, taking thousands of rows for a few; nor is it
# reduced to a left one while the condition is not strict.
IN_ROWS = " FULL JOIN row_terms USING (term) WHERE coalesce(user_id) IS NOT NULL"
WITH_ROWS = {"row_terms": ROW_TERMS, "row_postings": "rows", "join": IN_ROWS}
# The pattern finds the line below a table's header.
SELECT_TABLES = """
    SELECT chunk_ord, text, meta -> 'headings', meta ->> 'language' FROM document_chunks
    WHERE document_id = %s AND embedding IS NOT NULL AND strpos(text, '|') > 0 AND text ~ '\n *[|:-][ |:-]*(\n|$)'
    ORDER BY chunk_ord"""


def index_document(document_id: UUID) -> None:
    """Replace the document's postings by those of its chunks that have a vector, of their tables' rows, and its name.

    Call inside the transaction that commits the vectors.
    """
    params: dict[str, Any] = {"document": document_id, "more": HEADING_WEIGHT - 1, "scale": SCALE}
    params |= {"k1": K1, "b": B, "average": AVERAGE_LENGTH, "average_row": AVERAGE_ROW_LENGTH, "every": EVERY_CHUNK}
    with connection.cursor() as cursor:
        cursor.execute(SELECT_TABLES, [document_id])
        rows = [row for chunk in cursor.fetchall() for row in _rows_of_chunk(*chunk)]
        parts = WITHOUT_ROWS
        if rows:
            for name, column in zip(RowOfChunk._fields, zip(*rows, strict=True), strict=True):
                params[name] = list(column)
            parts = WITH_ROWS
        cursor.execute(INSERT.format(**parts), params)
    document_names.index_name(document_id)


class RowOfChunk(NamedTuple):
    """A table's row as ``ROW_TERMS`` takes it."""

    ords: int
    numbers: int
    configurations: str
    titles: str
    texts: str


def _rows_of_chunk(ord: int, text: str, headings: str | None, language: str | None) -> Iterator[RowOfChunk]:
    path = json.loads(headings or "[]")
    configuration = CONFIGURATIONS.get(language or "", ENGLISH)
    for number, row in enumerate(islice(table_rows(text), MAX_ROWS)):
        title = " ".join(path if row.title in path else [*path, row.title])
        yield RowOfChunk(ord, number, configuration, title, row.text)


# Postings (6 bytes each, those of rows 8) that a search reads at most: as many words as fit, the rarest first. A word
# in every other chunk of a million hardly adds to a score, and takes as long as all other words together.
MAX_POSTINGS = 1_000_000
# A row a word: the postings of its documents one after another, and the number of chunks, which is the number of
# postings of the empty term. Postings are counted beforehand only where the words, each in every chunk, can be too
# many; counting takes a third as long as reading.
SELECT_POSTINGS = """
    WITH every AS (
        SELECT (coalesce(sum(octet_length(postings)), 0) / %(wide)s)::bigint AS chunks,
               (coalesce(sum(octet_length(row_postings)), 0) / %(wide_row)s)::bigint AS rows FROM document_terms
        WHERE user_id = %(user)s AND term = %(every)s{documents}),
    counted AS (
        SELECT term, sum(octet_length(postings)) / %(wide)s
               + coalesce(sum(octet_length(row_postings)), 0) / %(wide_row)s AS size FROM document_terms
        WHERE user_id = %(user)s AND term = ANY(%(words)s::text[]){documents} GROUP BY term),
    rarest AS (
        SELECT array_agg(term) AS terms FROM (
            SELECT term, sum(size) OVER (ORDER BY size, term) - size AS before FROM counted) c
        WHERE before < %(most)s),
    chosen AS (
        SELECT CASE WHEN (SELECT chunks + rows FROM every) * cardinality(%(words)s::text[]) <= %(most)s
                    THEN %(words)s::text[] ELSE (SELECT terms FROM rarest) END AS terms)
    SELECT term, (SELECT chunks FROM every),
           string_agg(uuid_send(document_id), '' ORDER BY document_id),
           string_agg(int4send(octet_length(postings) / %(wide)s), '' ORDER BY document_id),
           string_agg(postings, '' ORDER BY document_id),
           string_agg(int4send(coalesce(octet_length(row_postings), 0) / %(wide_row)s), '' ORDER BY document_id),
           coalesce(string_agg(row_postings, '' ORDER BY document_id), '')
    FROM document_terms
    WHERE user_id = %(user)s AND term = ANY((SELECT terms FROM chosen)::text[]){documents}
    GROUP BY term"""
# The best-ranked chunks that search may return, in the order of their rank.
SELECT_CHUNKS = """
    SELECT c.chunk_id, r.bm25, r.row_number, r.row_bm25, r.row_share
    FROM unnest(%(document_ids)s::uuid[], %(ords)s::int[], %(scores)s::float8[], %(row_numbers)s::int[],
                %(row_scores)s::float8[], %(row_shares)s::float8[]) WITH ORDINALITY
         AS r(document_id, ord, bm25, row_number, row_bm25, row_share, rank)
    JOIN document_chunks c ON c.document_id = r.document_id AND c.chunk_ord = r.ord
    WHERE c.user_id = %(user)s AND {searchable}{conditions}
    ORDER BY r.rank, c.chunk_id LIMIT %(n)s"""
HAS_LIVE_VECTOR = "c.embed_model = %(model)s AND c.embed_version = %(version)s"
HAS_ANY_VECTOR = f"""({HAS_LIVE_VECTOR} OR EXISTS (
    SELECT 1 FROM shadow_vectors v WHERE v.chunk_id = c.chunk_id AND v.user_id = %(user)s
    AND v.embed_model = %(model)s AND v.embed_version = %(version)s))"""
SPARE, GROWTH = 10, 8  # the first batch has so many more chunks than results, each further one so many times more
CHUNKS_WITH_ROWS = 1_000  # the best chunks, whose rows are scored: more than any search returns


class RowHit(NamedTuple):
    """A row of a table in a chunk, numbered from 0, its BM25 score, and its share of the query's words by their idf."""

    number: int
    bm25: float
    share: float


class TextHit(NamedTuple):
    """A chunk with words of the query, its BM25 score, and the best row of its tables, if it has any."""

    chunk_id: UUID
    bm25: float
    row: RowHit | None = None


class WordPostings(NamedTuple):
    """One word's postings: its documents, the number of its chunks and rows in each, and these one after another."""

    word: str
    chunk_count: int  # of the collection
    documents: NDArray[Any]  # 16 bytes each, sorted
    counts: NDArray[Any]
    postings: NDArray[Any]  # POSTING
    row_counts: NDArray[Any]
    row_postings: NDArray[Any]  # ROW_POSTING

    @property
    def idf(self) -> float:
        return _idf(self.chunk_count, self.postings.size)


def _idf(chunk_count: int, size: int) -> float:
    return log(1 + (chunk_count - size + 0.5) / (size + 0.5))


def inverse_frequencies(words: list[WordPostings], lexemes: list[str]) -> dict[str, float]:
    """Return the idf of each lexeme. One that no chunk has is the rarest; without any word, all weigh alike."""
    found = {word.word: word.idf for word in words}
    rarest = _idf(words[0].chunk_count, 0) if words else 1.0
    return {lexeme: found.get(lexeme, rarest) for lexeme in lexemes}


def best_coverage(words: list[WordPostings], lexemes: list[str]) -> float:
    """Return the greatest share of the lexemes, by idf, that stand in one chunk."""
    slots = _slots(words)
    shares = np.zeros(slots.begins[-1])
    for at, word in enumerate(words):
        shares[slots.locate(at, word.counts, word.postings)] += word.idf
    total = sum(inverse_frequencies(words, lexemes).values())
    return float(shares.max(initial=0.0)) / total if total else 0.0


def search_bm25(scope: Scope, lexemes: list[str], n: int) -> list[TextHit]:
    """Return the ``n`` best chunks with any of the ``lexemes``. Call inside ``as_tenant``."""
    return rank_chunks(scope, read_postings(scope, lexemes), {}, n)


def rank_chunks(scope: Scope, words: list[WordPostings], named: Mapping[UUID, float], n: int) -> list[TextHit]:
    """Return the ``n`` best chunks with any of the ``words``; ``named``: what a document's name adds to its chunks."""
    if not words:
        return []
    sql = SELECT_CHUNKS.format(
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        searchable=HAS_ANY_VECTOR if scope.live.shadowed else HAS_LIVE_VECTOR,
    )
    params = scope.params
    for _, more in scope.conditions:
        params |= more
    hits: list[TextHit] = []
    with connection.cursor() as cursor:
        for batch in _ranked_batches(words, named, n + SPARE):
            # Array literals are written here: psycopg would look up how to write each element of a list.
            arrays = {name: "{" + ",".join(map(str, column)) + "}" for name, column in batch.items()}
            cursor.execute(sql, params | arrays | {"n": n - len(hits)})
            for chunk_id, bm25, *row in cursor.fetchall():
                hits.append(TextHit(chunk_id, bm25, RowHit(*row) if row[0] >= 0 else None))
            if len(hits) == n:
                break
    return hits


def read_postings(scope: Scope, lexemes: list[str]) -> list[WordPostings]:
    """Return the postings of those lexemes that the scope has. Call inside ``as_tenant``."""
    if not lexemes:
        return []
    params = scope.params | {"words": lexemes, "every": EVERY_CHUNK, "most": MAX_POSTINGS}
    params |= {"wide": POSTING.itemsize, "wide_row": ROW_POSTING.itemsize}
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    types: tuple[Any, ...] = "S16", ">i4", POSTING, ">i4", ROW_POSTING
    connection.ensure_connection()
    # Binary, which is half as much to send and nothing to decode: Django's own cursors read text.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(SELECT_POSTINGS.format(documents=documents), params, binary=True)
        return [
            WordPostings(word, chunks, *map(np.frombuffer, columns, types))
            for word, chunks, *columns in cursor.fetchall()
        ]


class Slots(NamedTuple):
    """A range of slots for the chunks of each document: a chunk's slot is its document's first, plus its ordinal."""

    documents: NDArray[Any]
    begins: NDArray[Any]  # of each document, and their end
    words: list[NDArray[Any]]  # each word's documents, as places in ``documents``

    def locate(self, at: int, counts: NDArray[Any], postings: NDArray[Any]) -> NDArray[Any]:
        """Return the slot of each posting of the word ``at``, or of each of its rows' postings."""
        slots: NDArray[Any] = np.repeat(self.begins[self.words[at]], counts) + postings["ord"]
        return slots


def _slots(words: list[WordPostings]) -> Slots:
    documents = np.unique(np.concatenate([word.documents for word in words])) if words else np.zeros(0, "S16")
    places = [np.searchsorted(documents, word.documents) for word in words]
    # The highest ordinal with one of the words says how many slots a document needs.
    sizes = np.zeros(documents.size, "i8")
    for own, word in zip(places, words, strict=True):
        sizes[own] = np.maximum(sizes[own], word.postings["ord"][np.cumsum(word.counts) - 1] + 1)
        if word.row_postings.size:  # a long head is cut: its last word may stand in rows alone
            own, last = own[word.row_counts > 0], np.cumsum(word.row_counts)[word.row_counts > 0] - 1
            sizes[own] = np.maximum(sizes[own], word.row_postings["ord"][last] + 1)
    return Slots(documents, np.concatenate([[0], np.cumsum(sizes)]), places)


def _ranked_batches(
    words: list[WordPostings], named: Mapping[UUID, float], size: int
) -> Iterator[dict[str, list[Any]]]:
    """Score all chunks with one of the words, and yield them in batches, best first.

    Equal scores are in the order of their document and their ordinal.
    """
    slots = _slots(words)
    scores = np.zeros(slots.begins[-1])
    for at, word in enumerate(words):
        scores[slots.locate(at, word.counts, word.postings)] += word.idf / SCALE * word.postings["impact"]
    _add_names(scores, slots, named)
    rows = _best_rows(words, slots, scores)
    left = np.flatnonzero(scores)
    while left.size:
        # The highest, of equal ones those that come first: much faster than sorting all.
        own, size = scores[left], min(size, left.size)
        least = np.partition(own, -size)[-size]
        best = own > least
        best[np.flatnonzero(own == least)[: size - best.sum()]] = True
        batch, left = left[best], left[~best]
        batch = batch[np.argsort(-scores[batch], kind="stable")]
        document = np.searchsorted(slots.begins, batch, side="right") - 1
        best_rows = [rows.get(slot, NO_ROW) for slot in batch.tolist()]
        yield {
            "document_ids": [bytes(slots.documents[each]).ljust(16, b"\0").hex() for each in document],
            "ords": (batch - slots.begins[document]).tolist(),
            "scores": scores[batch].tolist(),
            "row_numbers": [row.number for row in best_rows],
            "row_scores": [row.bm25 for row in best_rows],
            "row_shares": [row.share for row in best_rows],
        }
        size *= GROWTH


def _add_names(scores: NDArray[Any], slots: Slots, named: Mapping[UUID, float]) -> None:
    """Add to each score what its document's name adds."""
    for document_id, score in named.items():
        at = int(np.searchsorted(slots.documents, np.bytes_(document_id.bytes)))
        if at < slots.documents.size and bytes(slots.documents[at]).ljust(16, b"\0") == document_id.bytes:
            own = scores[slots.begins[at] : slots.begins[at + 1]]
            own[own > 0] += NAME_WEIGHT * score


NO_ROW = RowHit(-1, 0.0, 0.0)


def _best_rows(words: list[WordPostings], slots: Slots, scores: NDArray[Any]) -> dict[int, RowHit]:
    """Return the best row of the best chunks by their slot, of equal ones the first."""
    if not any(word.row_postings.size for word in words):
        return {}
    least = np.partition(scores, -CHUNKS_WITH_ROWS)[-CHUNKS_WITH_ROWS] if scores.size > CHUNKS_WITH_ROWS else 0.0
    keys, impacts, idfs = [], [], []
    for at, word in enumerate(words):
        chunks = slots.locate(at, word.row_counts, word.row_postings)
        kept = (scores[chunks] >= least) & (scores[chunks] > 0)
        keys.append(chunks[kept] << ROW_BITS | word.row_postings["row"][kept])
        impacts.append(word.idf / SCALE * word.row_postings["impact"][kept])
        idfs.append(np.full(keys[-1].size, word.idf))
    rows, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    bm25 = np.bincount(inverse, np.concatenate(impacts), rows.size)
    share = np.bincount(inverse, np.concatenate(idfs), rows.size) / sum(word.idf for word in words)
    order = np.argsort(-bm25, kind="stable")
    chunks, first = np.unique(rows[order] >> ROW_BITS, return_index=True)
    best = order[first]
    numbers = rows[best] & (1 << ROW_BITS) - 1
    hits = map(RowHit, numbers.tolist(), bm25[best].tolist(), share[best].tolist())
    return dict(zip(chunks.tolist(), hits, strict=True))
