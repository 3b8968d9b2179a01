"""Import of a tenant's Drive PDFs into the upload pipeline, and deletion of orphaned imports.

``orphan_candidates`` has a row for each document that may be orphaned, written in the transaction that made it so: by
the import, until the sync has written its record; and by the database's triggers (0002) when a record ceases to refer
to its document, for whatever reason. Rows are never updated, so that deleting the rows just checked deletes none that
came since. Each page ends by checking its own source's rows; a periodic task checks those left by a worker that died or
by a sync that was stopped.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import UUID

from django.conf import settings

from accounts.error_codes import ApiError
from documents import services, storage
from documents.error_codes import FILE_TOO_LARGE
from documents.models import Document
from documents.storage import MIME
from integrations.error_codes import FILE_NOT_GIVEN
from integrations.models import ConnectedSource, OrphanCandidate
from integrations.providers import McpClient, RawItem, Record
from integrations.records.bulk_sql import execute
from integrations.transports.responses import TooLarge
from jobs.cluster import shared_state
from vendors.calls import VendorRefused

PIECE = 64 * 1024
SUFFIX = ".pdf"
AT_ONCE = 100

# Read under the lock under which documents are declared, and their rows in doubt are written in its transaction.
IN_USE = """
    SELECT EXISTS (SELECT FROM documents WHERE document_id = %(document)s AND NOT imported)
        OR EXISTS (SELECT FROM source_documents WHERE upload_document_id = %(document)s AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM orphan_candidates u JOIN ingestion_jobs j ON j.id = u.job_id
                   WHERE u.document_id = %(document)s AND j.status IN ('queued', 'running')) AS in_use"""
# The usual end of a row in doubt: its own record refers to the document. Another record is no reason, it may cease to.
# Not as a join, which the planner may begin with all records of the source.
DELETE_SETTLED = """
    DELETE FROM orphan_candidates u WHERE u.source_id = %(source)s AND u.job_id IS NOT NULL AND u.document_id = (
        SELECT d.upload_document_id FROM source_documents d
        WHERE d.source_id = u.source_id AND d.external_id = u.external_id AND d.deleted_at IS NULL)"""
_DUE = """
    SELECT u.id, u.document_id FROM orphan_candidates u
    WHERE {of} NOT EXISTS (
        SELECT FROM ingestion_jobs j WHERE j.id = u.job_id AND j.status IN ('queued', 'running'))
    ORDER BY u.id LIMIT %(most)s"""
DUE = _DUE.format(of="")
DUE_OF_SOURCE = _DUE.format(of="u.source_id = %(source)s AND")


def import_pdf(
    *, source: ConnectedSource, client: McpClient, item: RawItem, record: Record, job_id: UUID
) -> UUID | None:
    """Put a PDF into the upload pipeline and return its document's id. Call it outside of transactions.

    Idempotent; None when the tenant deletes the document at this very moment. Defects of the file itself are reported
    by its upload job. Raises ``ApiError`` for a file that is too large or not given, which fails only this item, and
    what ``vendors.calls`` raises. The document stays as long as the sync goes on, so that its record can be written; if
    it is not, ``withdraw_orphans`` deletes the document.
    """

    def claim(document_id: UUID) -> None:
        OrphanCandidate.objects.create(
            document_id=document_id, source_id=source.pk, external_id=item.external_id, job_id=job_id
        )

    size = item.payload.get("size")  # by the vendor; a file that is longer than that ends in ``TooLarge``
    if isinstance(size, str) and size.isdecimal() and len(size) < 20 and int(size) > settings.MAX_FILE_BYTES:
        raise _too_large()
    with TemporaryFile() as file:
        sha256, length = _download(client, item, file)
        declared = services.declare(
            user_id=source.user_id,
            filename=_filename(record.title),
            bytes_len=length,
            mime=MIME,
            sha256=sha256,
            by_connector=True,
            claim=claim,
        )
        document = Document.objects.filter(pk=declared.document_id).first()
        if document is None:
            return None
        bucket, name = storage.locate(document.raw_path)
        if not bucket.exists(name):
            file.seek(0)
            services.store_upload(document, iter(partial(file.read, PIECE), b""))
    return declared.document_id


def withdraw_upload(document_id: UUID) -> bool:
    """Delete a document that a connector imported; return whether it is gone. Call it in no transaction. Idempotent.

    It stays while the tenant has uploaded it too, a record refers to it, or the sync that imported it goes on: its
    record may be about to be written.
    """
    document = Document.objects.filter(pk=document_id).first()
    params = {"document": document_id}
    return document is None or services.delete(document, unless=lambda: bool(execute(IN_USE, params)[0].in_use))


def withdraw_orphans(source_id: UUID) -> None:
    """Delete the documents that no record of a source refers to any more. Call it in no transaction.

    A worker that has to stop leaves the rest to the periodic task.
    """
    execute(DELETE_SETTLED, {"source": source_id})
    params = {"source": source_id, "most": AT_ONCE}
    while not shared_state.is_stopping() and (due := execute(DUE_OF_SOURCE, params)):
        _withdraw(due)


def withdraw_due_orphans() -> int:
    """Delete orphaned documents of all sources; return how many rows in doubt were checked."""
    due = execute(DUE, {"most": AT_ONCE})
    _withdraw(due)
    return len(due)


def _withdraw(due: Sequence[Any]) -> None:
    """Delete the documents, then the rows by their ids, for a newer one may have come since."""
    for document_id in dict.fromkeys(row.document_id for row in due):
        withdraw_upload(document_id)
        OrphanCandidate.objects.filter(pk__in=[row.id for row in due if row.document_id == document_id]).delete()


def _download(client: McpClient, item: RawItem, file: IO[bytes]) -> tuple[str, int]:
    digest, length = hashlib.sha256(), 0
    try:
        for piece in client.download(item):
            digest.update(piece)
            length += len(piece)
            file.write(piece)
    except TooLarge as error:
        raise _too_large() from error
    except VendorRefused as refused:  # its owner forbids downloads, say
        raise ApiError(FILE_NOT_GIVEN) from refused
    return digest.hexdigest(), length


def _filename(title: str) -> str:
    """Return a file name: Drive's may have slashes, no suffix, or be empty."""
    name = title.replace("/", "-").replace("\\", "-").strip()
    stem = name[: -len(SUFFIX)] if name.lower().endswith(SUFFIX) else name
    return (stem.strip(" .-")[: settings.MAX_FILENAME_CHARS - len(SUFFIX)] or "document") + SUFFIX


def _too_large() -> ApiError:
    return ApiError(FILE_TOO_LARGE, f"The file is larger than {settings.MAX_FILE_BYTES} bytes.")
