"""One search at the end of a document's way: that it is found, and in time."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from django.db.models import QuerySet
from django.db.utils import OperationalError

from accounts.rls import as_tenant
from embeddings import active_model
from embeddings.active_model import EmbeddingModel
from embeddings.models import DocumentChunk, ShadowVector
from embeddings.search.vector_search import Scope, nearest_chunks


def probe_index(document_id: UUID, *, user_id: UUID, seconds: float) -> float | None:
    """Search once, as the tenant does, for the document's first passage, and return the seconds; None if it has none.

    Raises ``OperationalError`` when that takes too long.
    """
    live = active_model.active_model(user_id)
    with as_tenant(user_id), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, int(seconds * 1000)))])
        vector = _first(document_id, live)
        if vector is None:
            return None
        began = time.monotonic()
        nearest_chunks(Scope(user_id, live), vector, 1)
        return time.monotonic() - began


def _first(document_id: UUID, live: EmbeddingModel) -> Any:
    chunks = DocumentChunk.objects.filter(document_id=document_id).order_by("chunk_ord")
    found = _of_model(chunks, live)
    if found is None and live.shadowed:
        shadows = ShadowVector.objects.filter(document_id=document_id).order_by("chunk__chunk_ord")
        found = _of_model(shadows, live)
    return found


def _of_model(rows: QuerySet[Any, Any], live: EmbeddingModel) -> Any:
    return rows.filter(embed_model=live.model, embed_version=live.version).values_list("embedding", flat=True).first()


def is_statement_timeout(error: OperationalError) -> bool:
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)
