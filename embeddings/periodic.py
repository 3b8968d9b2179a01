"""What the keeper does for passages from time to time."""

from __future__ import annotations

from uuid import UUID

from django.db import connection, transaction

from embeddings import active_model, shadow_vectors, vector_reuse, vector_store
from embeddings.models import VectorBuffer
from embeddings.reindex_jobs import REEMBED
from jobs.models import UploadJob

# Where a dead letter's vectors stay until its retry, or until the document goes: in the passages they would be found,
# half a document or beside another cut. On an alias ``b`` that has the document.
WAITS_FOR_RETRY = """(
    SELECT j.state = 'deadletter' AND (j.pipeline = 'rechunk' OR d.chunks_version IS NULL)
    FROM upload_jobs j JOIN documents d ON d.document_id = j.document_id
    WHERE j.document_id = b.document_id ORDER BY j.created_at DESC, j.job_id DESC LIMIT 1) IS TRUE"""
# Documents that have something in a buffer though nobody works on them. What waits for a retry is not among them again
# once its buffered chunks are gone, or it would keep the others from their turn.
LEFT = f"""
    SELECT document_id FROM (
        SELECT document_id FROM document_chunk_buffer
        UNION
        SELECT document_id FROM (SELECT DISTINCT document_id FROM document_vector_buffer) b WHERE NOT {WAITS_FOR_RETRY}
    ) b
    WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
                      WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))
    LIMIT 100"""
WAITS = f"SELECT {WAITS_FOR_RETRY} FROM (SELECT %s::uuid AS document_id) b"
# The lock holds up whoever would send the job back to work while its buffers are emptied.
ENDED = """
    SELECT coalesce(bool_and(state IN ('done', 'deadletter')), true)
    FROM (SELECT state FROM upload_jobs WHERE document_id = %s FOR UPDATE) j"""


def empty_buffers() -> None:
    """Empty both buffers of what belongs to finished and dead-lettered jobs, but for what a retry would buy again."""
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        left = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in left:
        _empty(document_id)


def _empty(document_id: UUID) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ENDED, [document_id])
        (ended,) = cursor.fetchone()
        if not ended:
            return
        cursor.execute(WAITS, [document_id])
        (waits,) = cursor.fetchone()
        vector_store.delete_corrupt_vectors(document_id)
        _keep(document_id, waits=waits)
        vector_store.empty_chunk_buffer(document_id)


def _keep(document_id: UUID, *, waits: bool) -> None:
    """Move what a vendor was paid for to where a later retry finds it; ``waits``: it does so in the buffer."""
    jobs = UploadJob.objects.filter(document_id=document_id)
    buffered = VectorBuffer.objects.filter(document_id=document_id)
    for user_id, model, version in list(buffered.values_list("user_id", "embed_model", "embed_version").distinct()):
        bought_by = set(jobs.filter(embed_model=model, embed_version=version).values_list("pipeline", flat=True))
        is_for_live = bought_by - {REEMBED} and not active_model.has_changed(user_id, model=model, version=version)
        if is_for_live and waits:
            continue
        vector_reuse.copy_to_duplicates(document_id, model, version)
        if REEMBED in bought_by:
            shadow_vectors.salvage_shadow_vectors(document_id, model=model, version=version)
        if is_for_live and active_model.confirm_active_model(user_id, model=model, version=version):
            vector_store.salvage_vectors(document_id, model=model, version=version)
        vector_store.delete_buffered_vectors(document_id, model=model, version=version)
