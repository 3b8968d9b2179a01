"""What the keeper does for passages from time to time."""

from __future__ import annotations

from django.db import connection

# A job that ended leaves nothing in the buffers. Cut again or embedded again, it fills them anew.
EMPTY = """
    DELETE FROM {table} b WHERE NOT EXISTS (
        SELECT 1 FROM upload_jobs j WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))
    AND b.ctid = ANY(ARRAY(SELECT ctid FROM {table} LIMIT 50000))"""


def empty_buffers() -> None:
    """Empty both buffers of what belongs to finished and dead-lettered jobs."""
    with connection.cursor() as cursor:
        for table in ("document_vector_buffer", "document_chunk_buffer"):
            cursor.execute(EMPTY.format(table=table))
