"""Candidates of a search: by PostgreSQL, or by the search engine, whose candidates PostgreSQL reads and ranks again.

The rows are read in the search's snapshot as its tenant, so that the engine can add nothing to an answer. Documents
that are not sent to it yet are searched in PostgreSQL.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import structlog
from django.db import connection

from accounts.prepared_statements import prepared_cursor
from embeddings.embedders.registry import Vectors
from embeddings.search import bm25, postings, vector_search
from embeddings.search.postings import POSTING, Postings, WordPostings
from embeddings.search.vector_search import SPARE, Scope, VectorHit
from embeddings.search_engine.delivery import engine_vendor
from embeddings.search_engine.entries import EngineUnavailable, load_engine
from outbox import search_feed
from vendors import calls

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# Documents that are not sent yet. With more of them, PostgreSQL answers alone: it has indexes for many.
MOST_PENDING = 50
PAUSE_SECONDS = 5.0  # without the engine once it was away, of each process
_paused_until = 0.0

COUNT_CHUNKS = """
    SELECT term, sum(size)::int FROM (
        SELECT term, octet_length(postings) / %(wide)s AS size FROM document_terms
        WHERE user_id = %(user)s AND term = ANY(%(words)s::text[])
        UNION ALL
        SELECT term, size FROM posting_blocks WHERE user_id = %(user)s AND term = ANY(%(words)s::text[])) t
    GROUP BY term"""
SELECT_CANDIDATES = f"""
    SELECT p.chunk_id = ANY(%(chunks)s::uuid[]), p.document_id, p.chunk_ord, words.lexemes, words.impacts,
           CASE WHEN {bm25.HAS_TABLE} THEN p.text END, p.meta -> 'headings', p.meta ->> 'language'
    FROM (
        SELECT *, {bm25.SIZE} AS size FROM document_chunks
        WHERE user_id = %(user)s AND embedding IS NOT NULL
          AND (chunk_id = ANY(%(chunks)s::uuid[]) OR document_id = ANY(%(pending)s::uuid[]))) p, LATERAL (
        SELECT array_agg(w.lexeme) AS lexemes, array_agg({bm25.IMPACT}::int) AS impacts
        FROM unnest(p.search) w WHERE w.lexeme = ANY(%(words)s::text[])) words"""


class PostgresRetriever:
    """Searches a scope for at most ``n`` chunks by each way. Call inside ``as_tenant``."""

    def __init__(self, scope: Scope, n: int) -> None:
        self._scope, self._n = scope, n

    def nearest_chunks(self, vector: Sequence[float] | Vectors) -> list[VectorHit]:
        return vector_search.nearest_chunks(self._scope, vector, self._n)

    def send_reads(self, lexemes: Sequence[str], name: str, configurations: Sequence[str]) -> Callable[[], Postings]:
        return postings.send_reads(self._scope, lexemes, name, configurations)

    def read_postings(self, lexemes: Sequence[str], name: str, configurations: Sequence[str]) -> Postings:
        return self.send_reads(lexemes, name, configurations)()


def choose_retriever(scope: Scope, n: int) -> PostgresRetriever:
    """Return the engine's retriever where there is an engine that has most documents, and nothing is filtered."""
    is_narrow = scope.document_ids is not None or scope.conditions
    if not search_feed.is_enabled() or is_narrow or time.monotonic() < _paused_until:
        return PostgresRetriever(scope, n)
    pending = search_feed.pending_documents(scope.user_id, most=MOST_PENDING + 1)
    return PostgresRetriever(scope, n) if len(pending) > MOST_PENDING else EngineRetriever(scope, n, pending)


class EngineRetriever(PostgresRetriever):
    """Searches the engine, and the ``pending`` documents in PostgreSQL; all there while the engine is unavailable."""

    def __init__(self, scope: Scope, n: int, pending: Sequence[UUID]) -> None:
        super().__init__(scope, n)
        self._pending = pending

    def nearest_chunks(self, vector: Sequence[float] | Vectors) -> list[VectorHit]:
        chunk_ids = self._ask("search_vectors", vector, self._n + max(SPARE, self._n // 4))
        if chunk_ids is None:
            return super().nearest_chunks(vector)
        hits, found = vector_search.nearest_candidates(self._scope, vector, self._n, chunk_ids, self._pending)
        _log_stale(len(chunk_ids) - found)
        return hits

    def send_reads(self, lexemes: Sequence[str], name: str, configurations: Sequence[str]) -> Callable[[], Postings]:
        """Read the postings of the engine's candidates alone, with the counts of all chunks."""
        fetch_documents = postings.send_reads(self._scope, (), name, configurations)
        cursor = prepared_cursor()
        cursor.execute(COUNT_CHUNKS, self._scope.params | {"words": list(lexemes), "wide": POSTING.itemsize})

        def fetch() -> Postings:
            documents = fetch_documents()
            # Merged postings have deleted documents, too, until they are merged again.
            counts = {term: min(count, documents.chunk_count) for term, count in cursor.fetchall()}
            words = {
                lexeme: bm25.inverse_frequency(documents.chunk_count, counts[lexeme])
                for lexeme in lexemes
                if counts.get(lexeme)
            }
            if not words:
                return documents
            # Twice as many: the names of documents, which the engine does not know, change the order.
            chunk_ids = self._ask("search_words", words, 2 * self._n)
            if chunk_ids is None:
                return postings.read_postings(self._scope, lexemes, name, configurations)
            return replace(documents, words=self._match_words(documents, counts, list(words), chunk_ids))

        return fetch

    def _match_words(
        self, documents: Postings, counts: dict[str, int], lexemes: list[str], chunk_ids: Sequence[UUID]
    ) -> list[WordPostings]:
        params = self._scope.params | bm25.IMPACT_PARAMS
        params |= {"chunks": list(chunk_ids), "pending": list(self._pending), "words": lexemes}
        with connection.cursor() as cursor:
            cursor.execute(SELECT_CANDIDATES, params)
            rows = cursor.fetchall()
        _log_stale(len(chunk_ids) - sum(row[0] for row in rows))
        # Of a document that was indexed twice, the last place is that of its live chunks.
        wanted = np.array([row[1].bytes for row in rows], "S16")
        places = {documents.document_id(at): at for at in np.flatnonzero(np.isin(documents.documents, wanted))}
        chunks = [
            (int(documents.begins[places[document_id]]) + ord, *row)
            for _, document_id, ord, *row in rows
            if document_id in places
        ]
        own: dict[str, WordPostings] = {lexeme: WordPostings(lexeme, counts[lexeme]) for lexeme in lexemes}
        pairs: dict[str, list[tuple[int, int]]] = {lexeme: [] for lexeme in lexemes}
        for slot, found, impacts, *_ in chunks:
            for lexeme, impact in zip(found or (), impacts or (), strict=True):
                pairs[lexeme].append((slot, impact))
        for lexeme, posted in pairs.items():
            own[lexeme].slots, own[lexeme].impacts = np.array(posted, "i8").reshape(-1, 2).T
        tables = [(slot, *table) for slot, found, _, *table in chunks if found and table[0]]
        for lexeme, rows_of_word in bm25.match_rows(tables, lexemes):
            own[lexeme].row_slots = rows_of_word["ord"].astype("i8")
            own[lexeme].row_numbers = rows_of_word["row"].astype("i8")
            own[lexeme].row_impacts = rows_of_word["impact"]
        return [word for word in own.values() if word.slots.size or word.row_slots.size]

    def _ask(self, operation: str, query: Any, most: int) -> list[UUID] | None:
        """Return the engine's candidates; None, and pause it, where it is unavailable."""
        global _paused_until
        if time.monotonic() < _paused_until:
            return None
        try:
            with calls.record_call(engine_vendor(), operation):
                found: list[UUID] = getattr(load_engine(), operation)(
                    self._scope.user_id, self._scope.live, query, most
                )
        except EngineUnavailable as error:
            _paused_until = time.monotonic() + PAUSE_SECONDS
            log.warning("PostgreSQL answers searches for a while.", reason=str(error), seconds=PAUSE_SECONDS)
            return None
        return found


def _log_stale(count: int) -> None:
    """Log candidates that are no row any more: deleted, replaced, or of a document that is sent again just now."""
    if count > 0:
        log.info("Candidates of the search engine were dropped.", candidates=count)
