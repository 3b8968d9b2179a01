"""What the keeper does for passages from time to time."""

from __future__ import annotations

from uuid import UUID

from django.db import connection, transaction

from embeddings import live, reuse, shadow, vectors
from embeddings.models import VectorBuffer
from embeddings.moving import RECHUNK, REEMBED
from jobs.models import UploadJob

# Documents that have something in a buffer though nobody works on them. What a campaign's new cut has bought stays in
# the buffer until its job is retried: in the passages it would be found beside the old cut.
LEFT = """
    SELECT document_id FROM (
        SELECT document_id FROM document_vector_buffer UNION SELECT document_id FROM document_chunk_buffer) b
    WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
                      WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))
      AND (SELECT j.pipeline = %s AND j.state = 'deadletter' FROM upload_jobs j WHERE j.document_id = b.document_id
           ORDER BY j.created_at DESC, j.job_id DESC LIMIT 1) IS NOT TRUE
    LIMIT 100"""
# The lock holds up whoever would send the job back to work while its buffers are emptied.
ENDED = """
    SELECT coalesce(bool_and(state IN ('done', 'deadletter')), true)
    FROM (SELECT state FROM upload_jobs WHERE document_id = %s FOR UPDATE) j"""


def empty_buffers() -> None:
    """Empty both buffers of what belongs to finished and dead-lettered jobs."""
    with connection.cursor() as cursor:
        cursor.execute(LEFT, [RECHUNK])
        left = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in left:
        _empty(document_id)


def _empty(document_id: UUID) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ENDED, [document_id])
        (ended,) = cursor.fetchone()
        if ended:
            # What a vendor was paid for moves to where a later retry finds it, and does not buy it again.
            vectors.drop_unsound(document_id)
            _keep(document_id)
            vectors.empty(document_id)


def _keep(document_id: UUID) -> None:
    jobs = UploadJob.objects.filter(document_id=document_id)
    buffered = VectorBuffer.objects.filter(document_id=document_id)
    for user_id, model, version in buffered.values_list("user_id", "embed_model", "embed_version").distinct():
        bought_by = set(jobs.filter(embed_model=model, embed_version=version).values_list("pipeline", flat=True))
        reuse.spread(document_id, model, version)
        if REEMBED in bought_by:
            shadow.keep(document_id, model=model, version=version)
        if bought_by - {REEMBED} and live.confirm(user_id, model=model, version=version):
            vectors.keep(document_id, model=model, version=version)
