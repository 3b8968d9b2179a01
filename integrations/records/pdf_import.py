"""Import of a tenant's Drive PDFs into the upload pipeline."""

import hashlib
from functools import partial
from tempfile import TemporaryFile
from typing import IO
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from documents import services
from documents.error_codes import FILE_TOO_LARGE
from documents.models import Document
from documents.storage import buckets
from documents.storage.buckets import MIME
from integrations.error_codes import FILE_NOT_GIVEN
from integrations.models import ConnectedSource, OrphanCandidate
from integrations.providers.interface import McpClient, RawItem, Record
from integrations.transports.responses import TooLarge
from vendors.calls import VendorRefused

PIECE = 64 * 1024
SUFFIX = ".pdf"


def import_pdf(
    *, source: ConnectedSource, client: McpClient, item: RawItem, record: Record, job_id: UUID
) -> UUID | None:
    """Put a PDF into the upload pipeline and return its document's id. Call it outside of transactions.

    Idempotent; None when the tenant deletes the document at this very moment. Defects of the file itself are reported
    by its upload job. Raises ``ApiError`` for a file that is too large or not given, which fails only this item, and
    what ``vendors.calls`` raises. The document stays as long as the sync goes on, so that its record can be written; if
    it is not, ``orphaned_imports`` deletes the document.
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
        bucket, name = buckets.locate(document.raw_path)
        if not bucket.exists(name):
            file.seek(0)
            services.store_upload(document, iter(partial(file.read, PIECE), b""))
    return declared.document_id


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
