"""Bulk-inserted jobs without files, for the no-op pipelines."""

from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from benchmarks import database
from documents.models import Document
from jobs.pipeline import get_pipeline

TABLES = "documents, upload_jobs, events, document_chunks, document_chunk_buffer, document_vector_buffer"
INSERT_DOCUMENTS = """
    INSERT INTO documents (document_id, user_id, filename, mime, bytes_len, file_sha256, raw_path)
    SELECT gen_random_uuid(), md5('user' || i %% %(users)s)::uuid, 'x.pdf', 'application/pdf', 1, i::text, 'x'
    FROM generate_series(1, %(jobs)s) i"""
INSERT_JOBS = """
    INSERT INTO upload_jobs (job_id, user_id, document_id, stage, pipeline, raw_path, chunks_version, correlation_id,
                             created_at)
    SELECT gen_random_uuid(), user_id, document_id, %(stage)s, %(pipeline)s, 'x', 'x', gen_random_uuid(),
           now() - random() * interval '1 hour'
    FROM documents d WHERE NOT EXISTS (SELECT FROM upload_jobs j WHERE j.document_id = d.document_id)"""
# Older than all others, and never run: no document is behind them.
INSERT_JOBS_OF_ONE_USER = """
    INSERT INTO upload_jobs (job_id, user_id, document_id, stage, pipeline, raw_path, chunks_version, correlation_id,
                             created_at)
    SELECT gen_random_uuid(), md5('crowd')::uuid, gen_random_uuid(), 'embedded', 'noop', 'x', 'x', gen_random_uuid(),
           now() - interval '2 hours' - i * interval '1 millisecond'
    FROM generate_series(1, %s) i"""


def truncate_tables() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLES} CASCADE")


def create_jobs(count: int, *, users: int, pipeline: str) -> None:
    """Queue ``count`` jobs dealt out to ``users``, past the services: what is measured is what runs them."""
    stage = get_pipeline(pipeline).steps[0].stage.value
    values = {"jobs": count, "users": users, "pipeline": pipeline, "stage": stage}
    _execute_bulk((INSERT_DOCUMENTS, values), (INSERT_JOBS, values))


def create_jobs_of_one_user(count: int) -> None:
    """Queue ``count`` jobs of one user."""
    _execute_bulk((INSERT_JOBS_OF_ONE_USER, [count]))


def _execute_bulk(*statements: tuple[str, Any]) -> None:
    """Run statements without triggers and foreign keys: they would take minutes for a million rows."""
    with database.connect(user="postgres") as superuser, superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        for sql, values in statements:
            superuser.execute(sql, values)


def create_document(user_id: UUID) -> Document:
    """One more document to enqueue a job for."""
    document_id = uuid4()
    return Document.objects.create(
        document_id=document_id,
        user_id=user_id,
        filename="x.pdf",
        bytes_len=1,
        mime="application/pdf",
        file_sha256=document_id.hex,
        raw_path="x",
    )
