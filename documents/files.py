"""Files of a document in the store: the document's lock, the verified original, and deletion."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from django.db import connection, transaction

from documents import storage
from documents.error_codes import HASH_MISMATCH, LENGTH_MISMATCH
from documents.locks import lock_document
from documents.models import Document, ObjectDeletion
from jobs.outcomes import Permanent

SCHEDULE = """
    INSERT INTO object_deletions (deletion_id, document_id, path, drop_after)
    VALUES (gen_random_uuid(), %s, %s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (path) DO UPDATE SET drop_after = excluded.drop_after"""


class ContentMismatch(Permanent):
    """The store holds another file than the declared one."""


@contextmanager
def verified_original(document: Document) -> Iterator[Path]:
    """Yield the path of the original as a local file. Raises ``ContentMismatch`` when it is not the declared file.

    Verified at every use: an upload URL works for some minutes, and a store that checks no hash accepts other bytes.
    """
    bucket, name = storage.locate(document.raw_path)
    with bucket.local_file(name) as path:
        if path.stat().st_size != document.bytes_len:
            if bucket.size(name) == document.bytes_len:  # complete in the store, truncated on its way here
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            raise ContentMismatch(LENGTH_MISMATCH)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != document.file_sha256:
                raise ContentMismatch(HASH_MISMATCH)
        yield path


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
