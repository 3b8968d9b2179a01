"""The text arm: BM25 over the words of the tenant's own passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from embeddings import terms
from embeddings.languages import ENGLISH
from embeddings.search.nearest import Scope
from embeddings.terms import EVERY_PASSAGE, POSTING, SCALE

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
# A row a word, what its documents have of it one after another. Of the empty term, which stands in every passage, the
# last place of each document is enough.
POSTINGS = """
    WITH words AS (
        SELECT term, sum(octet_length(postings)) / %(wide)s AS places FROM document_terms
        WHERE user_id = %(user)s AND term = ANY(%(words)s){documents} GROUP BY term),
    wanted AS (
        SELECT term FROM (SELECT term, sum(places) OVER rarest - places AS before FROM words
                          WINDOW rarest AS (ORDER BY places, term)) w
        WHERE before < %(most)s)
    SELECT term,
           string_agg(uuid_send(document_id), '' ORDER BY document_id),
           string_agg(int4send(octet_length(postings) / %(wide)s), '' ORDER BY document_id),
           string_agg(CASE WHEN term = %(every)s THEN substr(postings, octet_length(postings) - %(wide)s + 1)
                           ELSE postings END, '' ORDER BY document_id)
    FROM document_terms
    WHERE user_id = %(user)s AND term = ANY((SELECT array_agg(term) FROM wanted) || %(every)s::text){documents}
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
GROWTH = 8  # the first look is at little more than is wanted, each further one at so many times more


@dataclass(frozen=True, slots=True)
class Match:
    """A passage in which words of the question stand; ``bm25`` says how well they single it out."""

    chunk_id: UUID
    bm25: float


@dataclass(frozen=True, slots=True)
class Postings:
    """One word: in which documents it stands, in how many passages of each, and these passages one after another."""

    documents: NDArray[Any]  # 16 bytes each, sorted
    counts: NDArray[Any]
    places: NDArray[Any]  # POSTING


def lexemes(text: str, configurations: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return a text's words as full text search knows them: stemmed, without stop words, each once."""
    values: dict[str, Any] = {"text": text, "configuration": configurations[0], "configurations": list(configurations)}
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES if len(configurations) == 1 else LEXEMES_OF_SEVERAL, values)
        found: list[str] = cursor.fetchone()[0]
    return found


def find(scope: Scope, words: list[str], n: int) -> list[Match]:
    """Return the ``n`` best passages in which any of ``words``, lexemes, stands. Call inside ``as_tenant``."""
    found: list[Match] = []
    for batch in _ranked(_read(scope, words), 2 * n) if words else ():
        found += _findable(scope, batch, n - len(found))
        if len(found) == n:
            break
    return found


def _read(scope: Scope, words: list[str]) -> dict[str, Postings]:
    values = _values(scope) | {"words": words, "every": EVERY_PASSAGE, "wide": POSTING.itemsize, "most": MOST_PLACES}
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    with connection.cursor() as cursor:
        cursor.execute(POSTINGS.format(documents=documents), values)
        return {
            term: Postings(np.frombuffer(ids, "S16"), np.frombuffer(counts, ">i4"), terms.read(places))
            for term, ids, counts, places in cursor.fetchall()
        }


def _ranked(read: dict[str, Postings], size: int) -> Iterator[dict[str, list[Any]]]:
    """Score all passages with one of the words, and yield them in batches, the best first.

    What is equally good comes in the order of its document and its place there.
    """
    every = read.pop(EVERY_PASSAGE, None)
    if every is None:
        return
    # Where a document's passages begin among all: its highest ordinal says how many it may have.
    begins = np.concatenate([[0], np.cumsum(every.places["ord"].astype("i8") + 1)])
    passages, scores = int(every.counts.sum()), np.zeros(begins[-1])
    for word in read.values():
        df = int(word.counts.sum())
        idf = log(1 + (passages - df + 0.5) / (df + 0.5)) / SCALE
        at = np.repeat(begins[np.searchsorted(every.documents, word.documents)], word.counts) + word.places["ord"]
        scores[at] += idf * word.places["impact"]
    order = np.flatnonzero(scores)
    order = order[np.argsort(-scores[order], kind="stable")]
    while order.size:
        batch, order = order[:size], order[size:]
        document = np.searchsorted(begins, batch, side="right") - 1
        yield {
            "found": [UUID(bytes=bytes(every.documents[at]).ljust(16, b"\0")) for at in document],
            "ords": (batch - begins[document]).tolist(),
            "scores": scores[batch].tolist(),
        }
        size *= GROWTH


def _findable(scope: Scope, batch: dict[str, list[Any]], n: int) -> list[Match]:
    sql = FOUND.format(
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        findable=SHADOWED if scope.live.shadowed else OF_LIVE,
    )
    values = _values(scope) | batch | {"n": n}
    for _, more in scope.conditions:
        values |= more
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return [Match(*row) for row in cursor.fetchall()]


def _values(scope: Scope) -> dict[str, Any]:
    return {
        "user": scope.user_id,
        "model": scope.live.model,
        "version": scope.live.version,
        "documents": list(scope.document_ids or ()),
    }
