"""Retriever of records of connected systems and of clients, by vector and by word."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from embeddings import active_model
from embeddings.active_model import EmbeddingModel
from embeddings.search import MIN_CANDIDATES, bm25_search
from embeddings.search import query as asking
from embeddings.search.fusion import fuse
from embeddings.search.query import HYBRID, TEXT, VECTOR, Query, QueryEmbedding
from embeddings.search.snapshot import search_snapshot
from integrations.search import queries, scope
from integrations.search.results import RecordResult, fetch_records
from integrations.search.scope import RECORDS, SearchScope

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
    """Return at most ``k`` records of ``user_id`` that answer ``query``, the best first.

    A record without a vector of the tenant's live model is found by its words. ``bought`` has the query's vector for
    another search of the same request. Raises what ``embeddings.search.search`` raises.
    """
    question = asking.parse_query(query)
    asking.validate_options(k, mode)
    pointer = live or active_model.active_model(user_id)
    with search_snapshot(user_id):
        meant = scope.resolve_scope(user_id, pointer, question, sources)
        wants_vector = mode != TEXT and queries.has_vectors(meant)
    if not meant.parts:
        return []
    vector = (bought or QueryEmbedding(user_id)).vector(pointer, question) if wants_vector else None
    with search_snapshot(user_id):
        return _answer(meant, question, vector, k, by_text=mode != VECTOR)


def _answer(
    meant: SearchScope, question: Query, vector: list[float] | None, k: int, *, by_text: bool
) -> list[RecordResult]:
    n = max(MIN_CANDIDATES, 4 * k)
    lexemes = bm25_search.query_lexemes(question.text)
    ranking = fuse(
        meant.live.model,
        queries.nearest_records(meant, vector, n) if vector else [],
        queries.keyword_matches(meant, lexemes, n) if by_text else [],
        k,
    )
    return fetch_records(meant, ranking, lexemes)
