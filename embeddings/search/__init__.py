"""Finding passages: by vector and by word, among the caller's own rows and those of one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from embeddings import active_model
from embeddings.active_model import EmbeddingModel
from embeddings.indexes import text_search_config
from embeddings.search import bm25_search, merge_neighbours, snippets
from embeddings.search import query as asking
from embeddings.search.filters import Filters
from embeddings.search.filters import parse_filters as read_filters
from embeddings.search.fusion import fuse
from embeddings.search.query import HYBRID, TEXT, VECTOR, Query
from embeddings.search.query_embedding import QueryEmbedding
from embeddings.search.results import Passage, RetrievedChunk, fetch_chunks
from embeddings.search.snapshot import search_snapshot
from embeddings.search.vector_search import Scope, nearest_chunks

__all__ = ["HYBRID", "TEXT", "VECTOR", "Passage", "search"]

MIN_CANDIDATES = 50  # of each arm: what one of them ranks low may be the other's first
MOST_TRIES = 3  # while the tenant's model changes under the search


def search(
    *,
    user_id: UUID,
    query: str,
    k: int = 10,
    mode: str = HYBRID,
    document_ids: Sequence[UUID] | None = None,
    filters: Any = None,
    merge: bool = False,
    live: EmbeddingModel | None = None,
    bought: QueryEmbedding | None = None,
) -> list[Passage]:
    """Return at most ``k`` passages of ``user_id`` that answer ``query``, the best first.

    Documents that are unknown or another tenant's contribute nothing. ``live`` searches with another model than the
    tenant's own; ``bought`` has the query's vector for another search of the same request. Raises ``Refused`` for what
    cannot be asked; ``SEARCH_UNAVAILABLE`` when the database takes too long; and, unless ``mode`` is text, while the
    query cannot be embedded: ``SEARCH_UNAVAILABLE``, ``BUDGET_SPENT``, ``MODEL_UNAVAILABLE``.
    """
    question = asking.parse_query(query)
    asking.validate_options(k, mode)
    narrowed = read_filters(filters)
    pointer = live or active_model.active_model(user_id)
    bought = bought or QueryEmbedding(user_id)
    for _ in range(MOST_TRIES):
        found = _found(user_id, pointer, question, narrowed, document_ids, k=k, mode=mode, merge=merge, bought=bought)
        now = live or active_model.active_model(user_id)
        if now == pointer:
            break
        # Moved meanwhile: vectors of the former model may have been gone already.
        pointer = now
    return found


def _found(
    user_id: UUID,
    live: EmbeddingModel,
    question: Query,
    narrowed: Filters,
    document_ids: Sequence[UUID] | None,
    *,
    k: int,
    mode: str,
    merge: bool,
    bought: QueryEmbedding,
) -> list[Passage]:
    vector = None
    if mode != TEXT:
        with search_snapshot(user_id):
            if not _findable(_scope(user_id, live, question, narrowed, document_ids)):
                return []
        vector = bought.vector(live, question)
    with search_snapshot(user_id):
        scope = _scope(user_id, live, question, narrowed, document_ids)  # anew: documents come and go
        return _answer(scope, question, vector, k, by_text=mode != VECTOR, merge=merge)


def _scope(
    user_id: UUID, live: EmbeddingModel, question: Query, narrowed: Filters, document_ids: Sequence[UUID] | None
) -> Scope:
    wanted = None if document_ids is None else tuple(sorted(set(document_ids)))
    passing = narrowed.document_ids(user_id)
    if passing is not None:
        wanted = passing if wanted is None else tuple(sorted(set(passing) & set(wanted)))
    return Scope(
        user_id,
        live,
        wanted,
        (*narrowed.conditions, *question.conditions(text_search_config.configs_of_tenant(user_id))),
    )


ANY = """
    SELECT EXISTS (SELECT 1 FROM {table} WHERE user_id = %(user)s
    AND embed_model = %(model)s AND embed_version = %(version)s{documents})"""


def _findable(scope: Scope) -> bool:
    """Tell whether there is anything to be found: for nothing, no query is embedded."""
    if scope.document_ids == ():
        return False
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    values: dict[str, Any] = {
        "user": scope.user_id,
        "model": scope.live.model,
        "version": scope.live.version,
        "documents": list(scope.document_ids or ()),
    }
    with connection.cursor() as cursor:
        for table in ("document_chunks", "shadow_vectors")[: 1 + scope.live.shadowed]:
            cursor.execute(ANY.format(table=table, documents=documents), values)
            if cursor.fetchone()[0]:
                return True
    return False


def _answer(
    scope: Scope, question: Query, vector: list[float] | None, k: int, *, by_text: bool, merge: bool
) -> list[Passage]:
    n = max(MIN_CANDIDATES, 4 * k)
    lexemes = bm25_search.query_lexemes(question.text, text_search_config.configs_of_tenant(scope.user_id))
    ranking = fuse(
        scope.live.model,
        nearest_chunks(scope, vector, n) if vector else [],
        bm25_search.search_bm25(scope, lexemes, n) if by_text else [],
        k,
    )
    found = fetch_chunks(scope.user_id, ranking)
    return (
        [] if not found else _shown(merge_neighbours.neighbours(found) if merge else [[one] for one in found], lexemes)
    )


def _shown(groups: Sequence[Sequence[RetrievedChunk]], lexemes: list[str]) -> list[Passage]:
    texts = [merge_neighbours.joined(group) for group in groups]
    marked = snippets.render_snippets(
        texts, lexemes, [text_search_config.config_of_chunk(group[0].meta) for group in groups]
    )
    return [_passage(group, text, snippet) for group, text, snippet in zip(groups, texts, marked, strict=True)]


def _passage(group: Sequence[RetrievedChunk], text: str, snippet: str) -> Passage:
    best = min(group, key=lambda one: (-one.ranked.score, one.ranked.chunk_id))
    return Passage(
        chunk_id=best.ranked.chunk_id,
        chunk_ids=[one.ranked.chunk_id for one in group],
        document_id=best.document_id,
        filename=best.filename,
        text=text,
        snippet=snippet,
        score=best.ranked.score,
        parts=best.ranked.parts,
        pages=[min(one.pages[0] for one in group), max(one.pages[-1] for one in group)] if best.pages else [],
        headings=best.headings,
        start=min(one.start for one in group),
        end=max(one.end for one in group),
        meta=best.meta,
    )
