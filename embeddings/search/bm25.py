"""BM25: the index of a document's words, written when its vectors are committed, and the search over it."""

from collections.abc import Iterator
from math import log
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection
from numpy.typing import NDArray

from embeddings.search.vector_search import Scope

K1 = 1.5  # better than 1.2 on both dev sets of docs/retrieval.md
B = 0.75
HEADING_WEIGHT = 2  # a word of the heading path counts like so many in the text
AVERAGE_LENGTH = 130  # words of a chunk: frozen, so that one document's impacts never depend on another's
SCALE = 1000  # impacts, BM25's part of the term frequency, are kept as thousandths
# A chunk with a term, as int4send and int2send write it, sorted by ordinal.
POSTING = np.dtype([("ord", ">i4"), ("impact", ">i2")])
EVERY_CHUNK = ""  # the term whose postings count the chunks

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
        FROM chunks p, unnest(p.search) w)
    INSERT INTO document_terms (user_id, document_id, term, postings)
    SELECT user_id, %(document)s, term, string_agg(
        int4send(chunk_ord) || int2send(round(%(scale)s * tf * (%(k1)s + 1) / (tf + norm))::smallint), ''
        ORDER BY chunk_ord)
    FROM words GROUP BY user_id, term
    UNION ALL
    SELECT user_id, %(document)s, %(every)s, string_agg(int4send(chunk_ord) || int2send(0::smallint), ''
        ORDER BY chunk_ord)
    FROM chunks GROUP BY user_id
    ORDER BY 1, 3"""


def index_document(document_id: UUID) -> None:
    """Replace the document's postings by those of its chunks that have a vector.

    Call inside the transaction that commits the vectors.
    """
    params: dict[str, Any] = {"document": document_id, "more": HEADING_WEIGHT - 1, "scale": SCALE}
    with connection.cursor() as cursor:
        cursor.execute(INSERT, params | {"k1": K1, "b": B, "average": AVERAGE_LENGTH, "every": EVERY_CHUNK})


# Postings (6 bytes each) that a search reads at most: as many words as fit, the rarest first. A word in every other
# chunk of a million hardly adds to a score, and takes as long as all other words together.
MAX_POSTINGS = 1_000_000
# A row a word: the postings of its documents one after another, and the number of chunks, which is the number of
# postings of the empty term. Postings are counted beforehand only where the words, each in every chunk, can be too
# many; counting takes a third as long as reading.
SELECT_POSTINGS = """
    WITH every AS (
        SELECT (coalesce(sum(octet_length(postings)), 0) / %(wide)s)::bigint AS chunks FROM document_terms
        WHERE user_id = %(user)s AND term = %(every)s{documents}),
    counted AS (
        SELECT term, sum(octet_length(postings)) / %(wide)s AS size FROM document_terms
        WHERE user_id = %(user)s AND term = ANY(%(words)s::text[]){documents} GROUP BY term),
    rarest AS (
        SELECT array_agg(term) AS terms FROM (
            SELECT term, sum(size) OVER (ORDER BY size, term) - size AS before FROM counted) c
        WHERE before < %(most)s),
    chosen AS (
        SELECT CASE WHEN (SELECT chunks FROM every) * cardinality(%(words)s::text[]) <= %(most)s
                    THEN %(words)s::text[] ELSE (SELECT terms FROM rarest) END AS terms)
    SELECT (SELECT chunks FROM every),
           string_agg(uuid_send(document_id), '' ORDER BY document_id),
           string_agg(int4send(octet_length(postings) / %(wide)s), '' ORDER BY document_id),
           string_agg(postings, '' ORDER BY document_id)
    FROM document_terms
    WHERE user_id = %(user)s AND term = ANY((SELECT terms FROM chosen)::text[]){documents}
    GROUP BY term"""
# The best-ranked chunks that search may return, in the order of their rank.
SELECT_CHUNKS = """
    SELECT c.chunk_id, r.bm25
    FROM unnest(%(document_ids)s::uuid[], %(ords)s::int[], %(scores)s::float8[]) WITH ORDINALITY
         AS r(document_id, ord, bm25, rank)
    JOIN document_chunks c ON c.document_id = r.document_id AND c.chunk_ord = r.ord
    WHERE c.user_id = %(user)s AND {searchable}{conditions}
    ORDER BY r.rank, c.chunk_id LIMIT %(n)s"""
HAS_LIVE_VECTOR = "c.embed_model = %(model)s AND c.embed_version = %(version)s"
HAS_ANY_VECTOR = f"""({HAS_LIVE_VECTOR} OR EXISTS (
    SELECT 1 FROM shadow_vectors v WHERE v.chunk_id = c.chunk_id AND v.user_id = %(user)s
    AND v.embed_model = %(model)s AND v.embed_version = %(version)s))"""
SPARE, GROWTH = 10, 8  # the first batch has so many more chunks than results, each further one so many times more


class TextHit(NamedTuple):
    """A chunk with words of the query, and its BM25 score."""

    chunk_id: UUID
    bm25: float


class WordPostings(NamedTuple):
    """One word's postings: its documents, the number of its chunks in each, and these chunks one after another."""

    chunk_count: int  # of the collection
    documents: NDArray[Any]  # 16 bytes each, sorted
    counts: NDArray[Any]
    postings: NDArray[Any]  # POSTING


def search_bm25(scope: Scope, lexemes: list[str], n: int) -> list[TextHit]:
    """Return the ``n`` best chunks with any of the ``lexemes``. Call inside ``as_tenant``."""
    if not lexemes:
        return []
    params = scope.params | {"words": lexemes, "every": EVERY_CHUNK, "wide": POSTING.itemsize, "most": MAX_POSTINGS}
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    connection.ensure_connection()
    # Binary, which is half as much to send and nothing to decode: Django's own cursors read text.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(SELECT_POSTINGS.format(documents=documents), params, binary=True)
        words = [
            WordPostings(chunks, np.frombuffer(ids, "S16"), np.frombuffer(counts, ">i4"), np.frombuffer(rows, POSTING))
            for chunks, ids, counts, rows in cursor.fetchall()
        ]
    sql = SELECT_CHUNKS.format(
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        searchable=HAS_ANY_VECTOR if scope.live.shadowed else HAS_LIVE_VECTOR,
    )
    params = scope.params
    for _, more in scope.conditions:
        params |= more
    hits: list[TextHit] = []
    with connection.cursor() as cursor:
        for batch in _ranked_batches(words, n + SPARE):
            # Array literals are written here: psycopg would look up how to write each element of a list.
            arrays = {name: "{" + ",".join(map(str, column)) + "}" for name, column in batch.items()}
            cursor.execute(sql, params | arrays | {"n": n - len(hits)})
            hits += [TextHit(*row) for row in cursor.fetchall()]
            if len(hits) == n:
                break
    return hits


def _ranked_batches(words: list[WordPostings], size: int) -> Iterator[dict[str, list[Any]]]:
    """Score all chunks with one of the words, and yield them in batches, best first.

    Equal scores are in the order of their document and their ordinal.
    """
    documents = np.unique(np.concatenate([word.documents for word in words])) if words else np.zeros(0, "S16")
    at = [np.searchsorted(documents, word.documents) for word in words]
    # Each document has a range of slots: the highest ordinal with one of the words says how many it needs.
    sizes = np.zeros(documents.size, "i8")
    for own, word in zip(at, words, strict=True):
        sizes[own] = np.maximum(sizes[own], word.postings["ord"][np.cumsum(word.counts) - 1] + 1)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    scores = np.zeros(begins[-1])
    for own, word in zip(at, words, strict=True):
        chunks = word.postings.size
        idf = log(1 + (word.chunk_count - chunks + 0.5) / (chunks + 0.5))
        scores[np.repeat(begins[own], word.counts) + word.postings["ord"]] += idf / SCALE * word.postings["impact"]
    left = np.flatnonzero(scores)
    while left.size:
        # The highest, of equal ones those that come first: much faster than sorting all.
        own, size = scores[left], min(size, left.size)
        least = np.partition(own, -size)[-size]
        best = own > least
        best[np.flatnonzero(own == least)[: size - best.sum()]] = True
        batch, left = left[best], left[~best]
        batch = batch[np.argsort(-scores[batch], kind="stable")]
        document = np.searchsorted(begins, batch, side="right") - 1
        yield {
            "document_ids": [bytes(documents[each]).ljust(16, b"\0").hex() for each in document],
            "ords": (batch - begins[document]).tolist(),
            "scores": scores[batch].tolist(),
        }
        size *= GROWTH
