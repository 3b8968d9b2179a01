"""Index probe: a timed search for a document's first chunk, at the end of its job."""

import time
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.rls import as_tenant
from embeddings.active_model import EmbeddingModel, active_model
from embeddings.models import DocumentChunk, ShadowVector
from embeddings.search.vector_search import Scope, nearest_chunks


def probe_index(document_id: UUID, *, user_id: UUID, seconds: float) -> float | None:
    """Search as the tenant for the document's first chunk; return the seconds it took, None without a chunk.

    Raises ``OperationalError`` after ``seconds``.
    """
    model = active_model(user_id)
    with as_tenant(user_id), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, int(seconds * 1000)))])
        vector = _first_vector(document_id, model)
        if vector is None:
            return None
        began = time.monotonic()
        nearest_chunks(Scope(user_id, model), vector, 1)
        return time.monotonic() - began


def _first_vector(document_id: UUID, model: EmbeddingModel) -> Any:
    rows: dict[str, Any] = {"document_id": document_id, "embed_model": model.model, "embed_version": model.version}
    chunks = DocumentChunk.objects.filter(**rows).order_by("chunk_ord").values_list("embedding", flat=True)
    vector = chunks.first()
    if vector is None and model.shadowed:
        shadows = ShadowVector.objects.filter(**rows).order_by("chunk__chunk_ord")
        vector = shadows.values_list("embedding", flat=True).first()
    return vector
