"""The text arm: BM25 over the words of the tenant's own passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection
from numpy.typing import NDArray

from embeddings.indexes import bm25 as terms
from embeddings.indexes.bm25 import EVERY_PASSAGE, POSTING, SCALE
from embeddings.indexes.text_search_config import ENGLISH
from embeddings.search.vector_search import Scope

LEXEMES = "SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, %(text)s))"
# Of several languages: what is a stop word in any of them is none of a question's words; "la" would be a rare word
# among English passages, and the best of all. Without its accent, "obligacion" or "garantia" has another stem.
LEXEMES_OF_SEVERAL = """
    WITH typed AS (SELECT DISTINCT lower(token) AS token FROM ts_parse('default', %(text)s)),
    asked AS (
        SELECT token FROM typed
        UNION SELECT regexp_replace(regexp_replace(token, 'ion$', 'ión'), 'i(as?)$', 'í\\1') FROM typed),
    read AS MATERIALIZED (
        SELECT token, tsvector_to_array(to_tsvector(configuration, token)) AS lexemes
        FROM asked, unnest(%(configurations)s::regconfig[]) configuration)
    SELECT coalesce(array_agg(DISTINCT lexeme), '{}') FROM read, unnest(lexemes) lexeme
    WHERE token NOT IN (SELECT token FROM read WHERE lexemes = '{}')"""

# What a search reads at most, in places where a word stands (6 bytes each): as many words as fit, the rarest first.
# A word that every other passage of a million has tells hardly anything, and takes as long as all others together.
MOST_PLACES = 1_000_000
# A row a word, what its documents have of it one after another, and how many passages there are: as many as places of
# the empty term. Places are counted beforehand only where the words, each in every passage, can be too many; to count
# them takes a third as long as to read them.
POSTINGS = """
    WITH every AS (
        SELECT (coalesce(sum(octet_length(postings)), 0) / %(wide)s)::bigint AS passages FROM document_terms
        WHERE user_id = %(user)s AND term = %(every)s{documents}),
    counted AS (
        SELECT term, sum(octet_length(postings)) / %(wide)s AS places FROM document_terms
        WHERE user_id = %(user)s AND term = ANY(%(words)s::text[]){documents} GROUP BY term),
    rarest AS (
        SELECT array_agg(term) AS terms FROM (
            SELECT term, sum(places) OVER (ORDER BY places, term) - places AS before FROM counted) c
        WHERE before < %(most)s),
    wanted AS (
        SELECT CASE WHEN (SELECT passages FROM every) * cardinality(%(words)s::text[]) <= %(most)s
                    THEN %(words)s::text[] ELSE (SELECT terms FROM rarest) END AS terms)
    SELECT (SELECT passages FROM every),
           string_agg(uuid_send(document_id), '' ORDER BY document_id),
           string_agg(int4send(octet_length(postings) / %(wide)s), '' ORDER BY document_id),
           string_agg(postings, '' ORDER BY document_id)
    FROM document_terms
    WHERE user_id = %(user)s AND term = ANY((SELECT terms FROM wanted)::text[]){documents}
    GROUP BY term"""
# Of those that rank best, what may be found, in the order in which they come in.
FOUND = """
    SELECT c.chunk_id, r.bm25
    FROM unnest(%(found)s::uuid[], %(ords)s::int[], %(scores)s::float8[]) WITH ORDINALITY
         AS r(document_id, ord, bm25, rank)
    JOIN document_chunks c ON c.document_id = r.document_id AND c.chunk_ord = r.ord
    WHERE c.user_id = %(user)s AND {findable}{conditions}
    ORDER BY r.rank, c.chunk_id LIMIT %(n)s"""
OF_LIVE = "c.embed_model = %(model)s AND c.embed_version = %(version)s"
SHADOWED = f"""({OF_LIVE} OR EXISTS (
    SELECT 1 FROM shadow_vectors v WHERE v.chunk_id = c.chunk_id AND v.user_id = %(user)s
    AND v.embed_model = %(model)s AND v.embed_version = %(version)s))"""
SPARE, GROWTH = 10, 8  # the first look is at so many more than are wanted, each further one at so many times more


@dataclass(frozen=True, slots=True)
class TextHit:
    """A passage in which words of the question stand; ``bm25`` says how well they single it out."""

    chunk_id: UUID
    bm25: float


@dataclass(frozen=True, slots=True)
class Postings:
    """One word: in which documents it stands, in how many passages of each, and these passages one after another."""

    passages: int  # that there are, with the word or without
    documents: NDArray[Any]  # 16 bytes each, sorted
    counts: NDArray[Any]
    places: NDArray[Any]  # POSTING

    @property
    def idf(self) -> float:
        return log(1 + (self.passages - self.places.size + 0.5) / (self.places.size + 0.5))


def query_lexemes(text: str, configurations: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return a text's words as full text search knows them: stemmed, without stop words, each once."""
    values: dict[str, Any] = {"text": text, "configuration": configurations[0], "configurations": list(configurations)}
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES if len(configurations) == 1 else LEXEMES_OF_SEVERAL, values)
        found: list[str] = cursor.fetchone()[0]
    return found


def search_bm25(scope: Scope, words: list[str], n: int) -> list[TextHit]:
    """Return the ``n`` best passages in which any of ``words``, lexemes, stands. Call inside ``as_tenant``."""
    found: list[TextHit] = []
    for batch in _ranked(_read(scope, words), n + SPARE) if words else ():
        found += _findable(scope, batch, n - len(found))
        if len(found) == n:
            break
    return found


def _read(scope: Scope, words: list[str]) -> list[Postings]:
    values = _values(scope) | {"words": words, "every": EVERY_PASSAGE, "wide": POSTING.itemsize, "most": MOST_PLACES}
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    connection.ensure_connection()
    # Binary, which is half as much to send and nothing to decode: Django's own cursors read text.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(POSTINGS.format(documents=documents), values, binary=True)
        return [
            Postings(passages, np.frombuffer(ids, "S16"), np.frombuffer(counts, ">i4"), terms.read_postings(places))
            for passages, ids, counts, places in cursor.fetchall()
        ]


def _ranked(words: list[Postings], size: int) -> Iterator[dict[str, list[Any]]]:
    """Score all passages with one of the words, and yield them in batches, the best first.

    What is equally good comes in the order of its document and its place there.
    """
    documents = np.unique(np.concatenate([word.documents for word in words])) if words else np.zeros(0, "S16")
    at = [np.searchsorted(documents, word.documents) for word in words]
    # Where a document's passages begin among all: the highest ordinal with one of the words says how many it may have.
    sizes = np.zeros(documents.size, "i8")
    for own, word in zip(at, words, strict=True):
        sizes[own] = np.maximum(sizes[own], word.places["ord"][np.cumsum(word.counts) - 1] + 1)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    scores = np.zeros(begins[-1])
    for own, word in zip(at, words, strict=True):
        scores[np.repeat(begins[own], word.counts) + word.places["ord"]] += word.idf / SCALE * word.places["impact"]
    left = np.flatnonzero(scores)
    while left.size:
        best = _best(scores[left], size)
        batch, left = left[best], left[~best]
        batch = batch[np.argsort(-scores[batch], kind="stable")]
        document = np.searchsorted(begins, batch, side="right") - 1
        yield {
            "found": [bytes(documents[each]).ljust(16, b"\0").hex() for each in document],
            "ords": (batch - begins[document]).tolist(),
            "scores": scores[batch].tolist(),
        }
        size *= GROWTH


def _best(scores: NDArray[Any], size: int) -> NDArray[Any]:
    """Mark the ``size`` highest, of equal ones those that come first. Much faster than to sort them all."""
    if scores.size <= size:
        return np.ones(scores.size, bool)
    least = np.partition(scores, -size)[-size]
    best: NDArray[Any] = scores > least
    best[np.flatnonzero(scores == least)[: size - best.sum()]] = True
    return best


def _findable(scope: Scope, batch: dict[str, list[Any]], n: int) -> list[TextHit]:
    sql = FOUND.format(
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        findable=SHADOWED if scope.live.shadowed else OF_LIVE,
    )
    # Written as literals here: psycopg asks each element of a list how it is written.
    arrays = {name: "{" + ",".join(map(str, values)) + "}" for name, values in batch.items()}
    values = _values(scope) | arrays | {"n": n}
    for _, more in scope.conditions:
        values |= more
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return [TextHit(*row) for row in cursor.fetchall()]


def _values(scope: Scope) -> dict[str, Any]:
    return {
        "user": scope.user_id,
        "model": scope.live.model,
        "version": scope.live.version,
        "documents": list(scope.document_ids or ()),
    }
