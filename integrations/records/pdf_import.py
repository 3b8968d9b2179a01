"""PDFs found in a tenant's Drive go through the upload pipeline, as the tenant's own documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, NamedTuple
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from documents import services, storage
from documents.error_codes import FILE_TOO_LARGE
from documents.models import Document
from documents.validation import MIME
from integrations.error_codes import FILE_NOT_GIVEN
from integrations.models import ConnectedSource, UploadInDoubt
from integrations.providers import McpClient, RawItem, Record
from integrations.records.sql import execute
from integrations.transports.responses import TooLarge
from vendors.guard import VendorRefused

PIECE = 64 * 1024
SUFFIX = ".pdf"


class _Content(NamedTuple):
    sha256: str
    length: int


def import_pdf(
    *, source: ConnectedSource, client: McpClient, item: RawItem, record: Record, job_id: UUID
) -> UUID | None:
    """Put a PDF into the upload pipeline and return its document's id. Call it outside of transactions.

    Done twice it answers the same id; None when the tenant deletes the document at this very moment. What is wrong with
    the file itself the pipeline says at its job. Raises ``Refused`` for a file that is not taken or not given, which
    costs only this item, and what the gate raises. Nobody withdraws the document as long as the sync goes on, so that
    its record can be written; if it is not, ``doubts`` withdraws the document.
    """
    _require_size(item)
    with TemporaryFile() as file:
        content = _fetched(client, item, file)
        declared = services.declare(
            user_id=source.user_id,
            filename=_filename(record.title),
            bytes_len=content.length,
            mime=MIME,
            sha256=content.sha256,
            by_connector=True,
            claim=lambda document_id: _claim(document_id, source, item, job_id),
        )
        document = Document.objects.filter(pk=declared.document_id).first()
        if document is None:
            return None
        bucket, name = storage.locate(document.raw_path)
        if not bucket.exists(name):
            services.store_upload(document, _pieces(file))
    return declared.document_id


def withdraw_upload(document_id: UUID) -> bool:
    """Delete a document that a connector made, unless the tenant has declared it too or a record refers to it.

    Nor while a sync that has passed it on goes on: its record may be about to. Tells whether it is gone. Call it in no
    transaction; calling it again does no harm.
    """
    document = Document.objects.filter(pk=document_id).first()
    return document is None or services.delete(document, unless=lambda: _is_wanted(document_id))


# Asked under the lock under which documents are declared, and claimed in the same transaction.
WANTED = """
    SELECT EXISTS (SELECT FROM documents WHERE document_id = %(document)s AND NOT imported)
        OR EXISTS (SELECT FROM source_documents WHERE upload_document_id = %(document)s AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM uploads_in_doubt u JOIN ingestion_jobs j ON j.id = u.job_id
                   WHERE u.document_id = %(document)s AND j.status IN ('queued', 'running')) AS wanted"""


def _is_wanted(document_id: UUID) -> bool:
    wanted: bool = execute(WANTED, {"document": document_id})[0].wanted
    return wanted


def _claim(document_id: UUID, source: ConnectedSource, item: RawItem, job_id: UUID) -> None:
    UploadInDoubt.objects.create(
        document_id=document_id, source_id=source.pk, external_id=item.external_id, job_id=job_id
    )


def _require_size(item: RawItem) -> None:
    """Refuse by the size that the vendor tells; a file that is longer than it tells ends in ``TooLarge``."""
    told = item.payload.get("size")
    if isinstance(told, str) and told.isdecimal() and len(told) < 20 and int(told) > settings.MAX_FILE_BYTES:
        raise _too_large()


def _fetched(client: McpClient, item: RawItem, file: IO[bytes]) -> _Content:
    digest, length = hashlib.sha256(), 0
    try:
        for piece in client.download(item):
            digest.update(piece)
            length += len(piece)
            file.write(piece)
    except TooLarge as error:
        raise _too_large() from error
    except VendorRefused as refused:  # its owner forbids downloads, say
        detail = "The provider does not give the file."
        raise ApiError(FILE_NOT_GIVEN, detail) from refused
    return _Content(digest.hexdigest(), length)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE):
        yield piece


def _filename(title: str) -> str:
    """Return a name for the file: Drive's may have slashes, no end, or none at all."""
    name = title.replace("/", "-").replace("\\", "-").strip()
    stem = name[: -len(SUFFIX)] if name.lower().endswith(SUFFIX) else name
    return (stem.strip(" .-")[: settings.MAX_FILENAME_CHARS - len(SUFFIX)] or "document") + SUFFIX


def _too_large() -> ApiError:
    detail = f"The file is larger than {settings.MAX_FILE_BYTES} bytes."
    return ApiError(FILE_TOO_LARGE, detail)
