"""Pending deletions: objects in the store, and files and jobs at the parsing vendor, of documents that were deleted."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

from documents import storage
from documents.locks import lock_document
from documents.models import Document, ObjectDeletion, ParseRequest
from documents.parsers import registry
from vendors import calls

VENDOR_PREFIX = "llamaparse://"
SCHEDULE = """
    INSERT INTO object_deletions (deletion_id, document_id, path, drop_after)
    VALUES (gen_random_uuid(), %s, %s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (path) DO UPDATE SET drop_after = excluded.drop_after"""


def schedule_deletion(document_id: UUID, path: str, *, seconds: float) -> None:
    """Record, in the caller's transaction, that ``path`` must be deleted; after ``seconds`` no one can write it."""
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE, [document_id, path, seconds])


def delete_pending_objects(document_id: UUID) -> None:
    """Delete the objects of a deleted document; a document that was declared again meanwhile keeps its objects."""
    with transaction.atomic():
        lock_document(document_id)
        deletions = ObjectDeletion.objects.filter(document_id=document_id, path__startswith=storage.URI_PREFIX)
        if Document.objects.filter(pk=document_id).exists():
            deletions.delete()
            return
        for deletion in deletions:
            bucket, name = storage.locate(deletion.path)
            bucket.delete(name)


def vendor_file_key(request: ParseRequest) -> str:
    """Return the document's file name at the vendor; a document that is deleted and uploaded again gets another."""
    return f"{request.pk}-{request.round}-{request.job_id}"


def vendor_path(request: ParseRequest) -> str:
    """Return the vendor's ids of a parse's job and file, and the tags to find them by if a submit is still running."""
    job_id, file_id = request.vendor_job_id or "", request.file_id or ""
    return f"{VENDOR_PREFIX}{job_id}/{file_id}/{request.pk}:{request.round}/{request.job_id}"


def delete_vendor_copy(path: str) -> bool:
    """Delete the job and file of a ``vendor_path`` at the vendor; return whether nothing is left or can come late."""
    vendor_job_id, file_id, parse, job_id = path.removeprefix(VENDOR_PREFIX).split("/")
    with calls.guarded_call(registry.parsing_vendor(), "forget"):
        client, since = registry.vendor_client(), datetime.now(UTC) - timedelta(days=2)
        job = vendor_job_id or client.find_job({"parse_id": parse, "job_id": job_id}, since)
        file = file_id or client.find_file(f"{parse.replace(':', '-')}-{job_id}")
        is_deleted = client.delete_parse(vendor_job_id=job, file_id=file)
    return is_deleted and bool(vendor_job_id and file_id)
