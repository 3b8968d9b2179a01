"""Search of a tenant's document chunks: vector search and BM25, fused, with snippets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import connection

from embeddings.active_model import EmbeddingModel, active_model
from embeddings.indexes import text_search_config
from embeddings.search import bm25_search
from embeddings.search.filters import parse_filters
from embeddings.search.fusion import fuse
from embeddings.search.query_parser import HYBRID, TEXT, VECTOR, Query, QueryEmbedding, parse_query, validate_options
from embeddings.search.results import Passage, fetch_chunks, make_passages
from embeddings.search.snapshot import search_snapshot
from embeddings.search.vector_search import Scope, nearest_chunks

__all__ = ["HYBRID", "TEXT", "VECTOR", "Passage", "search"]

MIN_CANDIDATES = 50  # of each retriever: what one of them ranks low may be the other's first
MAX_TRIES = 3  # while the tenant's active model changes during the search


def search(
    *,
    user_id: UUID,
    query: str,
    k: int = 10,
    mode: str = HYBRID,
    document_ids: Sequence[UUID] | None = None,
    filters: Any = None,
    merge: bool = False,
    model: EmbeddingModel | None = None,
    query_embedding: QueryEmbedding | None = None,
) -> list[Passage]:
    """Return at most ``k`` passages of ``user_id`` that match ``query``, best first.

    Documents that are unknown or another tenant's contribute nothing. ``merge`` joins neighbouring chunks. ``model``
    replaces the tenant's active model; ``query_embedding`` shares the query's vector with another search of the same
    request. Raises ``ApiError`` for invalid arguments; ``SEARCH_UNAVAILABLE`` when the database takes too long; and,
    unless ``mode`` is text, while the query cannot be embedded: ``SEARCH_UNAVAILABLE``, ``BUDGET_SPENT``,
    ``MODEL_UNAVAILABLE``.
    """
    parsed_query = parse_query(query)
    validate_options(k, mode)
    parsed_filters = parse_filters(filters)
    query_embedding = query_embedding or QueryEmbedding(user_id)
    conditions = (*parsed_filters.conditions, *parsed_query.conditions(text_search_config.configs_of_tenant(user_id)))
    scope = Scope(user_id, model or active_model(user_id), conditions=conditions)

    def narrowed() -> Scope:
        return replace(scope, document_ids=parsed_filters.document_ids(user_id, document_ids))

    passages: list[Passage] = []
    for _ in range(MAX_TRIES):
        vector = None
        if mode != TEXT:
            with search_snapshot(user_id):
                has_vectors = _has_vectors(narrowed())
            vector = query_embedding.vector(scope.live, parsed_query) if has_vectors else None
        passages = []
        if vector or mode == TEXT:
            with search_snapshot(user_id):  # filtered again: documents come and go
                passages = _retrieve(narrowed(), parsed_query, vector, k, mode=mode, merge=merge)
        current = model or active_model(user_id)
        if current == scope.live:
            break
        scope = replace(scope, live=current)  # a cut-over: vectors of the former model may have been gone already
    return passages


def _retrieve(
    scope: Scope, query: Query, vector: list[float] | None, k: int, *, mode: str, merge: bool
) -> list[Passage]:
    n = max(MIN_CANDIDATES, 4 * k)
    lexemes = bm25_search.query_lexemes(query.text, text_search_config.configs_of_tenant(scope.user_id))
    vector_hits = nearest_chunks(scope, vector, n) if vector else []
    text_hits = bm25_search.search_bm25(scope, lexemes, n) if mode != VECTOR else []
    chunks = fetch_chunks(scope.user_id, fuse(scope.live.model, vector_hits, text_hits, k))
    return make_passages(chunks, lexemes, merge=merge)


HAS_VECTORS = """
    SELECT EXISTS (SELECT 1 FROM {table} WHERE user_id = %(user)s
    AND embed_model = %(model)s AND embed_version = %(version)s{documents})"""


def _has_vectors(scope: Scope) -> bool:
    """Tell whether the scope has any vector. Where it has none, the query is not embedded."""
    if scope.document_ids == ():
        return False
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    with connection.cursor() as cursor:
        for table in ("document_chunks", "shadow_vectors")[: 1 + scope.live.shadowed]:
            cursor.execute(HAS_VECTORS.format(table=table, documents=documents), scope.params)
            if cursor.fetchone()[0]:
                return True
    return False
