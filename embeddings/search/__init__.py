"""Finding passages: by vector, among the caller's own rows and those of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.utils import OperationalError
from pgvector.django import CosineDistance

from embeddings import buying, embedders
from embeddings.models import DocumentChunk
from tenancy.refusals import Refused
from tenancy.rls import as_tenant


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that answers a query, with what a citation needs. ``score`` is the cosine similarity, -1 to 1."""

    chunk_id: UUID
    document_id: UUID
    filename: str
    text: str
    score: float
    pages: list[int]
    headings: list[str]
    start: int
    end: int


def search(*, user_id: UUID, query: str, k: int = 10, document_ids: Sequence[UUID] | None = None) -> list[Passage]:
    """Return the ``k`` passages of ``user_id`` nearest to ``query``, the nearest first.

    Documents that are unknown or another tenant's contribute nothing. Raises ``Refused`` for an unusable query, and
    while the query cannot be embedded: ``SEARCH_UNAVAILABLE``, ``BUDGET_SPENT``.
    """
    wanted = _checked(query, k)
    embedder = embedders.get(settings.EMBEDDER)
    with buying.answerable("SEARCH_UNAVAILABLE", "Search is away; try again shortly.", field="query"):
        vector = buying.embed(embedder, [wanted], user_id=user_id, stage="search")[0].tolist()
    with as_tenant(user_id):
        return [_passage(chunk) for chunk in _nearest(user_id, embedder, vector, k, document_ids)]


def _checked(query: str, k: int) -> str:
    wanted = query.replace("\0", " ").strip()
    if not wanted:
        raise Refused("EMPTY_QUERY", "The query is empty.", field="query")
    if len(wanted) > settings.MAX_QUERY_CHARS:
        detail = f"The query is longer than {settings.MAX_QUERY_CHARS} characters."
        raise Refused("QUERY_TOO_LONG", detail, field="query")
    if not 1 <= k <= settings.MAX_SEARCH_RESULTS:
        raise Refused("K_OUT_OF_RANGE", f"k must be between 1 and {settings.MAX_SEARCH_RESULTS}.", field="k")
    return wanted


def _nearest(
    user_id: UUID, embedder: embedders.Embedder, vector: list[float], k: int, document_ids: Sequence[UUID] | None
) -> Any:
    """An exact scan of the tenant's own rows: full recall, and milliseconds while they are few (DESIGN §9)."""
    own = DocumentChunk.objects.filter(user_id=user_id, embed_model=embedder.model, embed_version=embedder.version)
    if document_ids is not None:
        own = own.filter(document_id__in=document_ids)
    ranked = own.annotate(distance=CosineDistance("embedding", vector)).select_related("document").defer("embedding")
    return ranked.order_by("distance", "chunk_id")[:k]


def _passage(chunk: Any) -> Passage:
    meta = chunk.meta or {}
    return Passage(
        chunk_id=chunk.pk,
        document_id=chunk.document_id,
        filename=chunk.document.filename,
        text=chunk.text,
        score=1.0 - float(chunk.distance),
        pages=meta.get("pages", []),
        headings=meta.get("headings", []),
        start=meta.get("start", 0),
        end=meta.get("end", 0),
    )


PROBE = """
    SELECT c.chunk_id FROM document_chunks c, document_chunks q
    WHERE q.document_id = %(document)s AND q.chunk_ord = 0 AND c.user_id = q.user_id
      AND c.embed_model = q.embed_model AND c.embed_version = q.embed_version
      -- Only this model has an index to be probed; elsewhere the document's own passages do.
      AND (q.embed_model = 'text-embedding-3-small' OR c.document_id = q.document_id)
    ORDER BY c.embedding <=> q.embedding LIMIT 1"""


def probe(document_id: UUID, *, seconds: float) -> None:
    """Search once for the document's first passage; raise ``OperationalError`` when that takes too long."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, int(seconds * 1000)))])
        cursor.execute(PROBE, {"document": document_id})


def timed_out(error: OperationalError) -> bool:
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)
