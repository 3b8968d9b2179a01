"""Retriever of records of connected systems and of clients, by vector and by word."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from embeddings import active_model
from embeddings.active_model import EmbeddingModel
from embeddings.search import MIN_CANDIDATES, bm25_search
from embeddings.search.fusion import fuse
from embeddings.search.query import HYBRID, TEXT, VECTOR, QueryEmbedding, parse_query, validate_options
from embeddings.search.snapshot import search_snapshot
from integrations.search import queries
from integrations.search.results import RecordResult, fetch_records
from integrations.search.scope import RECORDS, resolve_scope

__all__ = ["RECORDS", "RecordResult", "search_records"]


def search_records(
    *,
    user_id: UUID,
    query: str,
    sources: Sequence[str] = RECORDS,
    k: int = 10,
    mode: str = HYBRID,
    live: EmbeddingModel | None = None,
    bought: QueryEmbedding | None = None,
) -> list[RecordResult]:
    """Return at most ``k`` records of ``user_id`` that match ``query``, the best first.

    A record without a vector of the tenant's live model is found by its words. ``bought`` has the query's vector for
    another search of the same request. Raises what ``embeddings.search.search`` raises.
    """
    parsed = parse_query(query)
    validate_options(k, mode)
    model = live or active_model.active_model(user_id)
    with search_snapshot(user_id):
        scope = resolve_scope(user_id, model, parsed, sources)
        needs_vector = mode != TEXT and queries.has_vectors(scope)
    if not scope.parts:
        return []
    vector = (bought or QueryEmbedding(user_id)).vector(model, parsed) if needs_vector else None
    with search_snapshot(user_id):
        n, lexemes = max(MIN_CANDIDATES, 4 * k), bm25_search.query_lexemes(parsed.text)
        ranking = fuse(
            model.model,
            queries.nearest_records(scope, vector, n) if vector else [],
            queries.keyword_matches(scope, lexemes, n) if mode != VECTOR else [],
            k,
        )
        return fetch_records(scope, ranking, lexemes)
