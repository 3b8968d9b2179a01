"""What is shown of a record that was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models.functions import Left

from embeddings.search import snippets
from embeddings.search.fusion import RankedChunk, ScoreParts
from integrations.models import ClientIntelligence, SourceDocument
from integrations.search.scope import CLIENTS, SearchScope

MOST_TEXT = 4_000  # characters shown of a record
LOOKED_THROUGH = 20_000  # characters among which the snippet is looked for
CLIENT = "client"  # the document type of a row of client_intelligence


@dataclass(frozen=True, slots=True)
class RecordResult:
    """A record that answers a query. ``snippet`` is HTML in which nothing but <mark> is markup."""

    record_id: UUID
    source: str  # "hubspot"; "clients" for what is known of a client
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
    updated_at: datetime  # at the provider, where it tells


def fetch_records(scope: SearchScope, ranking: Sequence[RankedChunk], lexemes: Sequence[str]) -> list[RecordResult]:
    """Fetch what was ranked, in that order. Call inside ``as_tenant``."""
    ids = [ranked.chunk_id for ranked in ranking]
    rows = _documents(scope, ids) | _clients(scope, ids)
    shown = [(ranked, rows[ranked.chunk_id]) for ranked in ranking if ranked.chunk_id in rows]
    marked = snippets.render_snippets([row["beginning"] for _, row in shown], lexemes)
    return [_found(ranked, row, snippet) for (ranked, row), snippet in zip(shown, marked, strict=True)]


def _documents(scope: SearchScope, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    if scope.documents is None:
        return {}
    own = SourceDocument.objects.filter(user_id=scope.user_id, pk__in=ids, deleted_at=None)
    rows = own.filter(source_id__in=scope.documents.source_ids).annotate(beginning=Left("text", LOOKED_THROUGH))
    named = ("id", "source_id", "document_type", "external_id", "title", "url")
    return {
        row["id"]: row | {"source": scope.providers[row["source_id"]], "client_name": None}
        for row in rows.values(*named, "beginning", "source_updated_at", "updated_at")
    }


def _clients(scope: SearchScope, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    if scope.clients is None:
        return {}
    rows = ClientIntelligence.objects.filter(user_id=scope.user_id, pk__in=ids)
    shown = rows.annotate(beginning=Left("text", LOOKED_THROUGH)).values(
        "id", "source_id", "external_id", "client_name", "beginning", "source_updated_at", "updated_at"
    )
    return {
        row["id"]: row | {"source": CLIENTS, "document_type": CLIENT, "title": row["client_name"], "url": None}
        for row in shown
        if row["source_id"] is None or row["source_id"] in scope.clients.source_ids
    }


def _found(ranked: RankedChunk, row: dict[str, Any], snippet: str) -> RecordResult:
    return RecordResult(
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
