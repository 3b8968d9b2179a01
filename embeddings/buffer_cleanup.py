"""Periodic task: empty the buffers of finished and dead-lettered jobs."""

from uuid import UUID

from django.db import connection, transaction

from embeddings import active_model, pending_chunks, shadow_vectors, vector_store
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import REEMBED, VectorBuffer
from jobs.models import UploadJob

# A dead letter whose vectors stay in the buffer until its retry or the document's deletion: committed, they would make
# half a document searchable, or a second chunker's chunks. On an alias ``b`` that has the document.
WAITS_FOR_RETRY = """(
    SELECT j.state = 'deadletter' AND (j.pipeline IN ('rechunk', 'reparse') OR d.chunks_version IS NULL)
    FROM upload_jobs j JOIN documents d ON d.document_id = j.document_id
    WHERE j.document_id = b.document_id ORDER BY j.created_at DESC, j.job_id DESC LIMIT 1) IS TRUE"""
# Documents with buffered rows and no active job. One that waits for a retry is not listed again once its buffered
# chunks are gone, or it would keep the others from their turn.
LEFTOVERS = f"""
    SELECT document_id FROM (
        SELECT document_id FROM document_chunk_buffer
        UNION
        SELECT document_id FROM (SELECT DISTINCT document_id FROM document_vector_buffer) b WHERE NOT {WAITS_FOR_RETRY}
    ) b
    WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
                      WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))
    LIMIT 100"""
WAITS = f"SELECT {WAITS_FOR_RETRY} FROM (SELECT %s::uuid AS document_id) b"
# The lock holds up a retry of the job while its buffers are emptied.
HAS_ENDED = """
    SELECT coalesce(bool_and(state IN ('done', 'deadletter')), true)
    FROM (SELECT state FROM upload_jobs WHERE document_id = %s FOR UPDATE) j"""


def empty_buffers() -> None:
    """Empty both buffers of jobs that have ended. Vectors that a retry would buy again are kept."""
    with connection.cursor() as cursor:
        cursor.execute(LEFTOVERS)
        document_ids = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in document_ids:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(HAS_ENDED, [document_id])
            if not cursor.fetchone()[0]:
                continue
            cursor.execute(WAITS, [document_id])
            (waits_for_retry,) = cursor.fetchone()
            vector_store.delete_corrupt_vectors(document_id)
            _salvage_vectors(document_id, waits_for_retry=waits_for_retry)
            cursor.execute(vector_store.EMPTY_CHUNK_BUFFER, {"document": document_id})


def _salvage_vectors(document_id: UUID, *, waits_for_retry: bool) -> None:
    """Move paid vectors to where a later retry finds them. ``waits_for_retry``: it finds them in the buffer."""
    jobs = UploadJob.objects.filter(document_id=document_id)
    buffered = VectorBuffer.objects.filter(document_id=document_id)
    for user_id, name, version in list(buffered.values_list("user_id", "embed_model", "embed_version").distinct()):
        model = EmbeddingModel(name, version)
        pipelines = set(jobs.filter(embed_model=name, embed_version=version).values_list("pipeline", flat=True))
        is_for_active = pipelines - {REEMBED} and not active_model.has_changed(user_id, model)
        if is_for_active and waits_for_retry:
            continue
        pending_chunks.copy_to_duplicates(document_id, model)
        if REEMBED in pipelines:
            shadow_vectors.salvage_shadow_vectors(document_id, model)
        if is_for_active and active_model.confirm_active_model(user_id, model):
            vector_store.salvage_vectors(document_id, model)
        vector_store.delete_buffered_vectors(document_id, model)
