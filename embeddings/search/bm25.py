"""BM25: the index of a document's words, written when its vectors are committed, and the search over it."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from math import log
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from accounts.prepared_statements import prepared_cursor
from embeddings.search import document_names
from embeddings.search.lexemes import CONFIGURATIONS, ENGLISH, PARTED
from embeddings.search.postings import EVERY_CHUNK, ROW_POSTING, Postings, read_postings
from embeddings.search.table_rows import MAX_ROWS, table_rows
from embeddings.search.vector_search import Scope
from outbox import search_feed

K1 = 1.5  # better than 1.2 on both dev sets of docs/retrieval.md
B = 0.75
HEADING_WEIGHT = 2  # a word of the heading path counts like so many in the text
AVERAGE_LENGTH = 130  # words of a chunk: frozen, so that one document's impacts never depend on another's
NAME_WEIGHT = 1.0  # of the idf of words that name the chunk's document
SCALE = 1000  # impacts, BM25's part of the term frequency, are kept as thousandths
ROW_BITS = 16
AVERAGE_ROW_LENGTH = 30  # words of a row with its column heads and headings
IMPACT_PARAMS = {"more": HEADING_WEIGHT - 1, "scale": SCALE, "k1": K1, "b": B}
IMPACT_PARAMS |= {"average": AVERAGE_LENGTH, "average_row": AVERAGE_ROW_LENGTH}

# Of a word ``w`` of the tsvector ``search`` of a chunk ``p`` with ``size`` words. Weight A marks the words of headings.
SIZE = "(SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(search))::float8"
FREQUENCY = "(cardinality(w.positions) + %(more)s * cardinality(array_positions(w.weights, 'A')))::float8"
NORM = "%(k1)s * (1 - %(b)s + %(b)s * p.size / %(average)s)"
IMPACT = f"round(%(scale)s * {FREQUENCY} * (%(k1)s + 1) / ({FREQUENCY} + {NORM}))"
# Collation "C" compares bytes: a sort in a third of the time. Sorted, so that
# concurrent writers of the same rows lock them in one order.
INSERT = f"""
    DELETE FROM document_terms WHERE document_id = %(document)s;
    WITH chunks AS MATERIALIZED (
        SELECT user_id, chunk_ord, search, {SIZE} AS size
        FROM document_chunks WHERE document_id = %(document)s AND embedding IS NOT NULL),
    words AS (
        SELECT w.lexeme COLLATE "C" AS term, p.user_id, p.chunk_ord, {IMPACT}::smallint AS impact
        FROM chunks p, unnest(p.search) w){{row_terms}}
    INSERT INTO document_terms (user_id, document_id, term, postings, row_postings)
    SELECT user_id, %(document)s, term, postings, {{row_postings}} FROM (
        SELECT user_id, term, string_agg(
            int4send(chunk_ord) || int2send(impact), '' ORDER BY chunk_ord) AS postings
        FROM words GROUP BY user_id, term
        UNION ALL
        SELECT user_id, %(every)s, string_agg(int4send(chunk_ord) || int2send(0::smallint), '' ORDER BY chunk_ord)
        FROM chunks GROUP BY user_id) c{{join}}
    ORDER BY 1, 3"""
ROW_TERMS = f"""
    rows AS MATERIALIZED (
        SELECT ord, number, search, (SELECT sum(cardinality(positions)) FROM unnest(search))::float8 AS size
        FROM unnest(%(ords)s::int[], %(numbers)s::int[], %(configurations)s::regconfig[], %(titles)s::text[],
                    %(texts)s::text[]) AS r(ord, number, configuration, title, text),
             LATERAL (SELECT setweight(to_tsvector(configuration, title), 'A')
                      || to_tsvector(configuration, {PARTED.format("text")})) v(search)),
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
WITH_ROWS = {"row_terms": f",{ROW_TERMS}", "row_postings": "rows", "join": IN_ROWS}
# The pattern finds the line below a table's header.
HAS_TABLE = r"strpos(text, '|') > 0 AND text ~ '\n *[|:-][ |:-]*(\n|$)'"
SELECT_TABLES = f"""
    SELECT chunk_ord, text, meta -> 'headings', meta ->> 'language' FROM document_chunks
    WHERE document_id = %s AND embedding IS NOT NULL AND {HAS_TABLE}
    ORDER BY chunk_ord"""
SELECT_ROW_TERMS = f"WITH{ROW_TERMS} SELECT term, rows FROM row_terms WHERE term = ANY(%(words)s::text[])"


def index_document(document_id: UUID) -> None:
    """Replace the document's postings by those of its chunks that have a vector, of their tables' rows, and its name.

    Call inside the transaction that commits the vectors.
    """
    params: dict[str, Any] = {"document": document_id, "every": EVERY_CHUNK, **IMPACT_PARAMS}
    with connection.cursor() as cursor:
        cursor.execute(SELECT_TABLES, [document_id])
        rows = [row for chunk in cursor.fetchall() for row in _rows_of_chunk(*chunk)]
        parts = WITH_ROWS if rows else WITHOUT_ROWS
        cursor.execute(INSERT.format(**parts), params | _row_params(rows))
    document_names.index_name(document_id)
    search_feed.enqueue([document_id])


class RowOfChunk(NamedTuple):
    """A table's row as ``ROW_TERMS`` takes it."""

    ords: int
    numbers: int
    configurations: str
    titles: str
    texts: str


def _row_params(rows: Sequence[RowOfChunk]) -> dict[str, Any]:
    return dict(zip(RowOfChunk._fields, map(list, zip(*rows, strict=True)), strict=False))


def match_rows(
    chunks: Sequence[tuple[int, str, str | None, str | None]], lexemes: Sequence[str]
) -> list[tuple[str, NDArray[Any]]]:
    """Return the postings (ROW_POSTING) of lexemes in the tables of chunks: number, text, headings as JSON, language.

    The number stands in the place of the ordinal.
    """
    rows = [row for chunk in chunks for row in _rows_of_chunk(*chunk)]
    if not rows:
        return []
    params = IMPACT_PARAMS | {"every": EVERY_CHUNK, "words": list(lexemes)} | _row_params(rows)
    with connection.cursor() as cursor:
        cursor.execute(SELECT_ROW_TERMS, params)
        return [(term, np.frombuffer(postings, ROW_POSTING)) for term, postings in cursor.fetchall()]


def _rows_of_chunk(ord: int, text: str, headings: str | None, language: str | None) -> Iterator[RowOfChunk]:
    path = json.loads(headings or "[]")
    configuration = CONFIGURATIONS.get(language or "", ENGLISH)
    for number, row in enumerate(islice(table_rows(text), MAX_ROWS)):
        title = " ".join(path if row.title in path else [*path, row.title])
        yield RowOfChunk(ord, number, configuration, title, row.text)


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


def inverse_frequency(chunk_count: int, size: int) -> float:
    return log(1 + (chunk_count - size + 0.5) / (size + 0.5))


def inverse_frequencies(postings: Postings, lexemes: Sequence[str]) -> dict[str, float]:
    """Return the idf of each lexeme. One that no chunk has is the rarest; without any word, all weigh alike."""
    own = {word.word: inverse_frequency(postings.chunk_count, word.chunk_count) for word in postings.words}
    rarest = inverse_frequency(postings.chunk_count, 0) if own else 1.0
    return {lexeme: own.get(lexeme, rarest) for lexeme in lexemes}


def best_coverage(postings: Postings, lexemes: Sequence[str]) -> float:
    """Return the greatest share of the lexemes, by idf, that stand in one chunk."""
    idf = inverse_frequencies(postings, lexemes)
    shares = np.zeros(postings.begins[-1])
    for word in postings.words:
        if word.word in idf:
            word.add_presence(shares, idf[word.word])
    total = sum(idf.values())
    return float(shares.max(initial=0.0)) / total if total else 0.0


def search_bm25(scope: Scope, lexemes: list[str], n: int) -> list[TextHit]:
    """Return the ``n`` best chunks with any of the ``lexemes``. Call inside ``as_tenant``."""
    return rank_chunks(scope, read_postings(scope, lexemes), n)


def rank_chunks(
    scope: Scope, postings: Postings, n: int, name_scores: NDArray[np.float64] | None = None
) -> list[TextHit]:
    """Return the ``n`` best chunks; ``name_scores``: what the name of each document adds to its chunks with a word."""
    if not postings.words:
        return []
    sql = SELECT_CHUNKS.format(
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        searchable=HAS_ANY_VECTOR if scope.live.shadowed else HAS_LIVE_VECTOR,
    )
    params = scope.params
    for _, more in scope.conditions:
        params |= more
    hits: list[TextHit] = []
    with prepared_cursor() as cursor:
        for batch in _ranked_batches(postings, name_scores, n + SPARE):
            # Array literals are written here: psycopg would look up how to write each element of a list.
            arrays = {name: "{" + ",".join(map(str, column)) + "}" for name, column in batch.items()}
            cursor.execute(sql, params | arrays | {"n": n - len(hits)})
            for chunk_id, bm25, *row in cursor.fetchall():
                hits.append(TextHit(chunk_id, bm25, RowHit(*row) if row[0] >= 0 else None))
            if len(hits) == n:
                break
    return hits


def _ranked_batches(
    postings: Postings, name_scores: NDArray[np.float64] | None, size: int
) -> Iterator[dict[str, list[Any]]]:
    """Score all chunks with one of the words, and yield them in batches, best first.

    Equal scores are in the order of their document and their ordinal.
    """
    scores = np.zeros(postings.begins[-1])
    for word in postings.words:
        word.add_to(scores, inverse_frequency(postings.chunk_count, word.chunk_count) / SCALE)
    if name_scores is not None and name_scores.any():
        added = np.repeat(NAME_WEIGHT * name_scores, np.diff(postings.begins))
        np.add(scores, added, out=scores, where=scores > 0)
    rows = _best_rows(postings, scores)
    left = np.flatnonzero(scores)
    while left.size:
        # The highest, with all that equal the least of them: much faster than sorting all.
        own, size = scores[left], min(size, left.size)
        best = np.flatnonzero(own >= np.partition(own, -size)[-size])
        documents = np.searchsorted(postings.begins, left[best], side="right") - 1
        ords = left[best] - postings.begins[documents]
        order = np.lexsort((ords, postings.documents[documents], -own[best]))[:size]
        batch, documents = left[best[order]], documents[order]
        left = np.delete(left, best[order])
        best_rows = [rows.get(slot, NO_ROW) for slot in batch.tolist()]
        yield {
            "document_ids": [postings.document_id(at) for at in documents],
            "ords": ords[order].tolist(),
            "scores": scores[batch].tolist(),
            "row_numbers": [row.number for row in best_rows],
            "row_scores": [row.bm25 for row in best_rows],
            "row_shares": [row.share for row in best_rows],
        }
        size *= GROWTH


NO_ROW = RowHit(-1, 0.0, 0.0)


def _best_rows(postings: Postings, scores: NDArray[Any]) -> dict[int, RowHit]:
    """Return the best row of the best chunks by their slot, of equal ones the first."""
    words = postings.words
    if not any(word.row_slots.size for word in words):
        return {}
    least = np.partition(scores, -CHUNKS_WITH_ROWS)[-CHUNKS_WITH_ROWS] if scores.size > CHUNKS_WITH_ROWS else 0.0
    keys, impacts, idfs = [], [], []
    for word in words:
        idf = inverse_frequency(postings.chunk_count, word.chunk_count)
        kept = (scores[word.row_slots] >= least) & (scores[word.row_slots] > 0)
        keys.append(word.row_slots[kept] << ROW_BITS | word.row_numbers[kept])
        impacts.append(idf / SCALE * word.row_impacts[kept])
        idfs.append(np.full(keys[-1].size, idf))
    rows, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    bm25 = np.bincount(inverse, np.concatenate(impacts), rows.size)
    share = np.bincount(inverse, np.concatenate(idfs), rows.size) / sum(
        inverse_frequency(postings.chunk_count, word.chunk_count) for word in words
    )
    order = np.argsort(-bm25, kind="stable")
    chunks, first = np.unique(rows[order] >> ROW_BITS, return_index=True)
    best = order[first]
    numbers = rows[best] & (1 << ROW_BITS) - 1
    hits = map(RowHit, numbers.tolist(), bm25[best].tolist(), share[best].tolist())
    return dict(zip(chunks.tolist(), hits, strict=True))
