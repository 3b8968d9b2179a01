"""Queues of jobs that have no file behind them, for the pipelines that do nothing."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.db import connection

from benchmarks import database
from documents.models import Document
from jobs.models import UploadJob

TABLES = "documents, upload_jobs, events, document_chunks, document_chunk_buffer, document_vector_buffer"
DOCUMENTS = """
    INSERT INTO documents (document_id, user_id, filename, mime, bytes_len, file_sha256, raw_path)
    SELECT gen_random_uuid(), md5(%(salt)s || i %% %(users)s)::uuid, 'x.pdf', 'application/pdf', 1, i::text, 'x'
    FROM generate_series(1, %(jobs)s) i"""
JOBS = """
    INSERT INTO upload_jobs (job_id, user_id, document_id, stage, pipeline, raw_path, chunks_version, correlation_id,
                             created_at)
    SELECT gen_random_uuid(), user_id, document_id, 'embedded', %(pipeline)s, 'x', 'x', gen_random_uuid(),
           now() - %(age)s::interval - random() * interval '1 hour'
    FROM documents d WHERE NOT EXISTS (SELECT FROM upload_jobs j WHERE j.document_id = d.document_id)"""
RATE = """
    SELECT count(*), percentile_disc(0.1) WITHIN GROUP (ORDER BY at), percentile_disc(0.9) WITHIN GROUP (ORDER BY at)
    FROM ({finished}) f (at)"""


def clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLES}")


def seed(count: int, *, users: int, pipeline: str, salt: str = "user", age: str = "0") -> None:
    """Queue ``count`` jobs dealt out to ``users``, past the services: what is measured is what runs them."""
    with database.connect(user="postgres") as superuser, superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")  # a million rows without their triggers
        values = {"jobs": count, "users": users, "pipeline": pipeline, "salt": salt, "age": age}
        superuser.execute(DOCUMENTS, values)
        superuser.execute(JOBS, values)


def idle() -> bool:
    """Whether nothing that may run is left."""
    return not UploadJob.objects.filter(state__in=["queued", "working"]).exists()


def document(user_id: UUID) -> Document:
    """One more document to enqueue a job for."""
    made = uuid4()
    return Document.objects.create(
        document_id=made,
        user_id=user_id,
        filename="x.pdf",
        bytes_len=1,
        mime="application/pdf",
        file_sha256=made.hex,
        raw_path="x",
    )
