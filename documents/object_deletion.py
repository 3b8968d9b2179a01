"""Deletion of a document's objects: recorded with its rows, done after them."""

from uuid import UUID

from django.db import connection, transaction

from documents.locks import lock_document
from documents.models import Document, ObjectDeletion
from documents.storage import buckets

SCHEDULE = """
    INSERT INTO object_deletions (deletion_id, user_id, document_id, path, drop_after)
    VALUES (gen_random_uuid(), %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (path) DO UPDATE SET drop_after = excluded.drop_after"""


def schedule_deletion(user_id: UUID, document_id: UUID, path: str, *, seconds: float) -> None:
    """Record, in the caller's transaction, that ``path`` must be deleted; after ``seconds`` no one can write it."""
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE, [user_id, document_id, path, seconds])


def delete_pending_objects(document_id: UUID) -> None:
    """Delete the objects of a deleted document; a document that was declared again meanwhile keeps its objects."""
    with transaction.atomic():
        lock_document(document_id)
        deletions = ObjectDeletion.objects.filter(document_id=document_id, path__startswith=buckets.URI_PREFIX)
        if Document.objects.filter(pk=document_id).exists():
            deletions.delete()
            return
        for deletion in deletions:
            bucket, name = buckets.locate(deletion.path)
            bucket.delete(name)
