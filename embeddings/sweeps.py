"""What the keeper does for passages from time to time."""

from __future__ import annotations

from uuid import UUID

from django.db import connection, transaction

from embeddings import vectors

# Documents that have something in a buffer though nobody works on them.
LEFT = """
    SELECT document_id FROM (
        SELECT document_id FROM document_vector_buffer UNION SELECT document_id FROM document_chunk_buffer) b
    WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
                      WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))
    LIMIT 100"""
# The lock holds up whoever would send the job back to work while its buffers are emptied.
ENDED = """
    SELECT coalesce(bool_and(state IN ('done', 'deadletter')), true)
    FROM (SELECT state FROM upload_jobs WHERE document_id = %s FOR UPDATE) j"""


def empty_buffers() -> None:
    """Empty both buffers of what belongs to finished and dead-lettered jobs."""
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        left = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in left:
        _empty(document_id)


def _empty(document_id: UUID) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ENDED, [document_id])
        (ended,) = cursor.fetchone()
        if ended:
            # What a vendor was paid for moves to its chunk: a later retry does not buy it again.
            vectors.drop_unsound(document_id)
            vectors.keep(document_id)
            vectors.empty(document_id)
