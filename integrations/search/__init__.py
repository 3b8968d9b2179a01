"""Retriever of records of connected systems and of clients, by vector and by word."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models.functions import Left

from embeddings import active_model
from embeddings.embedders import EmbeddingModel
from embeddings.search import MIN_CANDIDATES, search_snapshot
from embeddings.search.fusion import RankedChunk, ScoreParts, fuse
from embeddings.search.query_parser import (
    HYBRID,
    TEXT,
    VECTOR,
    QueryEmbedding,
    parse_query,
    query_lexemes,
    validate_options,
)
from embeddings.search.results import render_snippets
from integrations.models import ClientIntelligence, SourceDocument
from integrations.search.queries import (
    CLIENTS,
    RECORDS,
    SearchScope,
    has_vectors,
    keyword_matches,
    nearest_records,
    resolve_scope,
)

__all__ = ["RECORDS", "RecordResult", "search_records"]

MOST_TEXT = 4_000  # characters shown of a record
SNIPPET_CHARS = 20_000  # of a record that the snippet is taken from
CLIENT = "client"  # document type of client_intelligence


@dataclass(frozen=True, slots=True)
class RecordResult:
    """A record that matches a query. ``snippet`` is HTML whose only markup is <mark>."""

    record_id: UUID
    source: str  # "hubspot"; "clients" for a row of client_intelligence
    source_id: UUID | None  # None: the tenant's own row
    document_type: str
    external_id: str | None
    title: str
    url: str | None
    client_name: str | None
    text: str
    snippet: str
    score: float
    parts: ScoreParts
    updated_at: datetime  # at the provider, if known


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
        needs_vector = mode != TEXT and has_vectors(scope)
    if not scope.parts:
        return []
    vector = (bought or QueryEmbedding(user_id)).vector(model, parsed) if needs_vector else None
    with search_snapshot(user_id):
        n, lexemes = max(MIN_CANDIDATES, 4 * k), query_lexemes(parsed.text)
        ranking = fuse(
            model.model,
            nearest_records(scope, vector, n) if vector else [],
            keyword_matches(scope, lexemes, n) if mode != VECTOR else [],
            k,
        )
        return fetch_records(scope, ranking, lexemes)


def fetch_records(scope: SearchScope, ranking: Sequence[RankedChunk], lexemes: Sequence[str]) -> list[RecordResult]:
    """Return the ranked records, in that order. Call inside ``as_tenant``."""
    ids = [ranked.chunk_id for ranked in ranking]
    rows = _documents(scope, ids) | _clients(scope, ids)
    shown = [(ranked, rows[ranked.chunk_id]) for ranked in ranking if ranked.chunk_id in rows]
    excerpts = render_snippets([row["beginning"] for _, row in shown], lexemes)
    return [
        RecordResult(
            record_id=row["id"],
            source=row["source"],
            source_id=row["source_id"],
            document_type=row["document_type"],
            external_id=row["external_id"],
            title=row["title"],
            url=row["url"],
            client_name=row["client_name"],
            text=row["beginning"][:MOST_TEXT],
            snippet=snippet,
            score=ranked.score,
            parts=ranked.parts,
            updated_at=row["source_updated_at"] or row["updated_at"],
        )
        for (ranked, row), snippet in zip(shown, excerpts, strict=True)
    ]


def _documents(scope: SearchScope, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    if scope.documents is None:
        return {}
    own = SourceDocument.objects.filter(user_id=scope.user_id, pk__in=ids, deleted_at=None)
    rows = own.filter(source_id__in=scope.documents.source_ids).annotate(beginning=Left("text", SNIPPET_CHARS))
    columns = ("id", "source_id", "document_type", "external_id", "title", "url")
    return {
        row["id"]: row | {"source": scope.providers[row["source_id"]], "client_name": None}
        for row in rows.values(*columns, "beginning", "source_updated_at", "updated_at")
    }


def _clients(scope: SearchScope, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    if scope.clients is None:
        return {}
    own = ClientIntelligence.objects.filter(user_id=scope.user_id, pk__in=ids)
    rows = own.annotate(beginning=Left("text", SNIPPET_CHARS)).values(
        "id", "source_id", "external_id", "client_name", "beginning", "source_updated_at", "updated_at"
    )
    return {
        row["id"]: row | {"source": CLIENTS, "document_type": CLIENT, "title": row["client_name"], "url": None}
        for row in rows
        if row["source_id"] is None or row["source_id"] in scope.clients.source_ids
    }
