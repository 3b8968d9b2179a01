"""BM25 search over the postings of the tenant's own chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection
from numpy.typing import NDArray

from embeddings.indexes.bm25 import EVERY_CHUNK, POSTING, SCALE, read_postings
from embeddings.indexes.text_search_config import ENGLISH
from embeddings.search.vector_search import Scope

LEXEMES = "SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, %(text)s))"
# For several languages: a stop word of any of them is left out; "la" would be a rare word among English chunks, and
# score highest of all. Without its accent, "obligacion" or "garantia" has another stem.
LEXEMES_OF_SEVERAL = """
    WITH typed AS (SELECT DISTINCT lower(token) AS token FROM ts_parse('default', %(text)s)),
    spelled AS (
        SELECT token FROM typed
        UNION SELECT regexp_replace(regexp_replace(token, 'ion$', 'ión'), 'i(as?)$', 'í\\1') FROM typed),
    read AS MATERIALIZED (
        SELECT token, tsvector_to_array(to_tsvector(configuration, token)) AS lexemes
        FROM spelled, unnest(%(configurations)s::regconfig[]) configuration)
    SELECT coalesce(array_agg(DISTINCT lexeme), '{}') FROM read, unnest(lexemes) lexeme
    WHERE token NOT IN (SELECT token FROM read WHERE lexemes = '{}')"""

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


@dataclass(frozen=True, slots=True)
class TextHit:
    """A chunk with words of the query, and its BM25 score."""

    chunk_id: UUID
    bm25: float


@dataclass(frozen=True, slots=True)
class WordPostings:
    """One word's postings: its documents, the number of its chunks in each, and these chunks one after another."""

    chunk_count: int  # of the collection
    documents: NDArray[Any]  # 16 bytes each, sorted
    counts: NDArray[Any]
    postings: NDArray[Any]  # POSTING

    @property
    def idf(self) -> float:
        return log(1 + (self.chunk_count - self.postings.size + 0.5) / (self.postings.size + 0.5))


def query_lexemes(text: str, configurations: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return the lexemes of a text: its stemmed words without stop words, each once."""
    params: dict[str, Any] = {"text": text, "configuration": configurations[0], "configurations": list(configurations)}
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES if len(configurations) == 1 else LEXEMES_OF_SEVERAL, params)
        lexemes: list[str] = cursor.fetchone()[0]
    return lexemes


def search_bm25(scope: Scope, words: list[str], n: int) -> list[TextHit]:
    """Return the ``n`` best chunks with any of ``words``, which are lexemes. Call inside ``as_tenant``."""
    hits: list[TextHit] = []
    for batch in _ranked_batches(_read_postings(scope, words), n + SPARE) if words else ():
        hits += _searchable_hits(scope, batch, n - len(hits))
        if len(hits) == n:
            break
    return hits


def _read_postings(scope: Scope, words: list[str]) -> list[WordPostings]:
    params = scope.params | {"words": words, "every": EVERY_CHUNK, "wide": POSTING.itemsize, "most": MAX_POSTINGS}
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    connection.ensure_connection()
    # Binary, which is half as much to send and nothing to decode: Django's own cursors read text.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(SELECT_POSTINGS.format(documents=documents), params, binary=True)
        return [
            WordPostings(chunk_count, np.frombuffer(ids, "S16"), np.frombuffer(counts, ">i4"), read_postings(postings))
            for chunk_count, ids, counts, postings in cursor.fetchall()
        ]


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
        scores[np.repeat(begins[own], word.counts) + word.postings["ord"]] += word.idf / SCALE * word.postings["impact"]
    left = np.flatnonzero(scores)
    while left.size:
        best = _best(scores[left], size)
        batch, left = left[best], left[~best]
        batch = batch[np.argsort(-scores[batch], kind="stable")]
        document = np.searchsorted(begins, batch, side="right") - 1
        yield {
            "document_ids": [bytes(documents[each]).ljust(16, b"\0").hex() for each in document],
            "ords": (batch - begins[document]).tolist(),
            "scores": scores[batch].tolist(),
        }
        size *= GROWTH


def _best(scores: NDArray[Any], size: int) -> NDArray[Any]:
    """Mark the ``size`` highest, of equal ones those that come first. Much faster than sorting all."""
    if scores.size <= size:
        return np.ones(scores.size, bool)
    least = np.partition(scores, -size)[-size]
    best: NDArray[Any] = scores > least
    best[np.flatnonzero(scores == least)[: size - best.sum()]] = True
    return best


def _searchable_hits(scope: Scope, batch: dict[str, list[Any]], n: int) -> list[TextHit]:
    sql = SELECT_CHUNKS.format(
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        searchable=HAS_ANY_VECTOR if scope.live.shadowed else HAS_LIVE_VECTOR,
    )
    # Array literals are written here: psycopg would look up how to write each element of a list.
    arrays = {name: "{" + ",".join(map(str, column)) + "}" for name, column in batch.items()}
    params = scope.params | arrays | {"n": n}
    for _, more in scope.conditions:
        params |= more
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [TextHit(*row) for row in cursor.fetchall()]
