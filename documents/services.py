"""What may be asked of a tenant's documents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from accounts import rate_limit
from accounts.errors import ApiError, not_found
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import ids, storage, validation
from documents.locks import lock
from documents.models import Document, Removal
from documents.parsing import parse_store, vendor_files
from documents.storage import file_cache, object_deletions
from jobs import log_context, pipeline, services
from jobs.errors import safe_error_name
from jobs.events import log_event
from jobs.models import Event, UploadJob
from jobs.states import State

log = logging.getLogger("accessa.documents")

# Uploads that began just before their URL expired may still be under way.
UPLOAD_GRACE_SECONDS = 60.0
# What names the plan of an upload; the chunker's name is written with the job (002 §3).
PIPELINE = "insurance"


@dataclass(frozen=True, slots=True)
class DeclaredUpload:
    """The answer to a declared upload: the four fields of MVP context §6."""

    job_id: UUID
    document_id: UUID
    signed_url: str
    upload_expires_at: datetime


def declare(
    *,
    user_id: UUID,
    filename: str,
    bytes_len: int,
    mime: str,
    sha256: str,
    ocr: bool = False,
    by_connector: bool = False,
    claim: Callable[[UUID], None] | None = None,
) -> DeclaredUpload:
    """Declare a file and return where to put its bytes; declared again, it answers the same ids.

    Renews the URL while the bytes are missing and revives a job that failed. Raises ``Refused`` when over a limit.
    A connector spends none of the tenant's own uploads, and does not try again what failed with the bytes at hand. In
    the same transaction it notes by ``claim`` what it wants the document for: ``delete`` can then ask ``unless``.
    """
    filename = validation.validate_upload(filename=filename, bytes_len=bytes_len, mime=mime, sha256=sha256)
    if not by_connector:
        _spend_question(user_id)
    with transaction.atomic():
        document_id = ids.document_id(user_id, sha256)
        lock(document_id)
        document = Document.objects.filter(pk=document_id).first()
        if document is None:
            (_spend_import if by_connector else _spend_upload)(user_id)
            document = _create(document_id, user_id, filename, bytes_len, mime, sha256, ocr, by_connector)
            job = _enqueue(document)
        else:
            services.lock_jobs(document_id)  # before the document's row, as workers do: the other order could deadlock
            _redeclare(document, filename, bytes_len, ocr)
            job = services.get_latest_job(document_id) if by_connector else _again(document, ocr)
        expires = _renewed(document)
        if claim is not None:
            claim(document_id)
    raw, name = storage.locate(document.raw_path)
    if job.state == State.DEADLETTER and not (by_connector and raw.exists(name)):
        job = _revived(job)
    log_context.bind_job(job)
    url = raw.sign_upload(name, length=document.bytes_len, mime=document.mime, sha256=document.file_sha256)
    return DeclaredUpload(job.pk, document.pk, url, expires)


def _spend_question(user_id: UUID) -> None:
    """Bound how often a URL is asked for: each time leaves an event."""
    limit = settings.UPLOAD_REQUESTS_PER_MINUTE
    detail = f"You can declare files {limit} times a minute."
    rate_limit.spend(f"declare:{user_id}", limit=limit, window=60, code="UPLOAD_LIMIT_REACHED", detail=detail)


def _spend_upload(user_id: UUID) -> None:
    """Count what costs work: a new document or one more try, not a repeated question for the same URL."""
    limit = settings.UPLOADS_PER_DAY
    detail = f"You can upload {limit} files a day."
    rate_limit.spend(f"upload:{user_id}", limit=limit, window=86_400, code="UPLOAD_LIMIT_REACHED", detail=detail)


def _spend_import(user_id: UUID) -> None:
    """Count what a tenant's connectors bring: in a window of its own, so that neither side uses up the other's."""
    limit = settings.IMPORTS_PER_DAY
    detail = f"Your connected systems can bring {limit} files a day."
    rate_limit.spend(f"import:{user_id}", limit=limit, window=86_400, code="IMPORT_LIMIT_REACHED", detail=detail)


def _create(
    document_id: UUID, user_id: UUID, filename: str, bytes_len: int, mime: str, sha256: str, ocr: bool, imported: bool
) -> Document:
    return Document.objects.create(
        document_id=document_id,
        user_id=user_id,
        filename=filename,
        bytes_len=bytes_len,
        mime=mime,
        file_sha256=sha256,
        ocr=ocr,
        imported=imported,
        raw_path=storage.object_uri("raw", user_id, document_id, "pdf"),
    )


def _enqueue(document: Document) -> UploadJob:
    return services.enqueue(
        pipeline=PIPELINE,
        user_id=document.user_id,
        document_id=document.pk,
        raw_path=document.raw_path,
        chunks_version="",
        correlation_id=log_context.correlation_id(),
    )


def _redeclare(document: Document, filename: str, bytes_len: int, ocr: bool) -> None:
    """Believe the newer declaration while no bytes have come: a wrong length must not lock its file out for good."""
    if document.stored_at is not None:
        return
    document.filename, document.bytes_len, document.ocr = filename, bytes_len, ocr
    document.save(update_fields=["filename", "bytes_len", "ocr"])


def _again(document: Document, ocr: bool) -> UploadJob:
    """Answer for bytes that this tenant has declared before: the same job, to be revived when it had failed.

    Who was told that a document needs OCR declares it again with ``ocr``. What a connector brought is the tenant's own
    from now on.
    """
    Document.objects.filter(pk=document.pk, imported=True).update(imported=False)
    job = services.get_latest_job(document.pk)
    log_event(job, "UPLOAD_DEDUP_HIT", Event.Type.STAGE_STARTED)
    if job.state != State.DEADLETTER:
        return job
    _spend_upload(document.user_id)
    if ocr != document.ocr:
        Document.objects.filter(pk=document.pk).update(ocr=ocr)
        services.reset_plan(job)  # another way of parsing: the stage that chose it is run again
    return job


def _revived(job: UploadJob) -> UploadJob:
    """Retry a job that had failed, in no transaction and under no lock: its proofs look into the store."""
    try:
        return services.retry(job, by="upload")
    except ApiError as refused:
        if refused.code != "JOB_ALREADY_ACTIVE":  # who declared it at the same time has revived it
            raise
        return services.get_latest_job(job.document_id)


def _renewed(document: Document) -> datetime:
    """Let the upload expire with the URL that is about to be signed, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE documents SET upload_expires_at = clock_timestamp() + make_interval(secs => %s)"
            " WHERE document_id = %s RETURNING upload_expires_at",
            [settings.SIGNED_URL_SECONDS, document.pk],
        )
        expires: datetime = cursor.fetchone()[0]
    return expires


def complete_upload(document_id: UUID, place: Callable[[], None]) -> None:
    """Let the bytes of a declared document appear by calling ``place()``, and end the wait of its job.

    Under the document's lock: bytes that come while the document is being deleted are refused, not orphaned.
    """
    with transaction.atomic():
        lock(document_id)
        if not Document.objects.filter(pk=document_id).exists():
            raise not_found()
        log_context.bind_document(document_id)
        place()
        services.wake_job(document_id)


def upload_arrived(*, user_id: UUID, document_id: UUID) -> bool:
    """Let a document's job check for its bytes at once because the store reported them; the job verifies that itself.

    Return whether a job waits for this upload.
    """
    pending = Document.objects.filter(pk=document_id, user_id=user_id, stored_at=None).exclude(user_id=SYSTEM_TENANT_ID)
    if not pending.exists():
        return False
    services.wake_job(document_id)
    return True


def store_upload(document: Document, pieces: Iterable[bytes]) -> None:
    """Put a declared document's bytes into the store from this side. Raises ``storage.Rejected`` for other bytes."""
    bucket, name = storage.locate(document.raw_path)
    arriving = bucket.write_incoming(pieces, length=document.bytes_len, sha256=document.file_sha256)
    try:
        complete_upload(document.pk, lambda: bucket.put_file(arriving, name))
    finally:
        arriving.unlink(missing_ok=True)


# Children first: every table that holds a row for the document, then the document.
_TABLES = (
    "parse_requests",
    "document_scanned_pages",
    "document_vector_buffer",
    "document_chunk_buffer",
    "document_terms",
    "shadow_vectors",
    "document_chunks",
    "events",
    "upload_jobs",
    "documents",
)


def delete(document: Document, *, unless: Callable[[], bool] | None = None) -> bool:
    """Remove a document, its rows, vectors, objects and queued work, whatever stage a running job is at.

    A worker that holds the job loses its claim with the row. Objects follow after the commit, and once more when any
    such worker's lease has surely ended; so does what the parsing vendor has of it. Nothing is removed, and False
    returned, if ``unless`` says so: it is asked when nobody can declare the document any more.
    """
    with transaction.atomic():
        lock(document.pk)
        if unless is not None and unless():
            return False
        delete_rows(document)
    delete_objects(document.pk)
    return True


def delete_rows(document: Document) -> None:
    """Remove a document's rows, in the caller's transaction; who has committed it calls ``clear``."""
    lock(document.pk)
    with connection.cursor() as cursor:
        # Waits for the one write that a worker may be making, and fences every later one.
        cursor.execute("SELECT job_id FROM upload_jobs WHERE document_id = %s FOR UPDATE", [document.pk])
        lock(document.pk, "vectors")  # a campaign may be settling them
        parse_store.transfer_shared_parse(document)
        _schedule_removal(document)
        for table in _TABLES:
            cursor.execute(f"DELETE FROM {table} WHERE document_id = %s", [document.pk])


def delete_objects(document_id: UUID) -> None:
    """Remove the objects of a document that was erased; those that cannot go now are left to the sweep."""
    file_cache.evict_document(document_id)
    try:
        delete_pending_objects(document_id)
    except OSError as error:
        log.warning("The files of a deleted document are left to the sweep: %s", safe_error_name(error))


def _schedule_removal(document: Document) -> None:
    # A worker whose job is gone learns of it at its next write, so at the end of its stage at the latest.
    longest = max(step.time_limit for step in pipeline.get_pipeline(PIPELINE).steps) + 2 * settings.JOBS_LEASE_SECONDS
    # And whoever has an upload URL may use it until it expires.
    surely = max(longest, settings.SIGNED_URL_SECONDS + UPLOAD_GRACE_SECONDS)
    for path in [document.raw_path, parse_store.own_path(document), *vendor_files.vendor_paths(document)]:
        object_deletions.schedule_deletion(document.pk, path, seconds=surely)


def delete_pending_objects(document_id: UUID) -> None:
    """Remove the objects of a deleted document; one that was declared anew meanwhile keeps what it has."""
    with transaction.atomic():
        lock(document_id)
        if Document.objects.filter(pk=document_id).exists():
            Removal.objects.filter(document_id=document_id, path__startswith=storage.URI_PREFIX).delete()
            return
        for removal in Removal.objects.filter(document_id=document_id, path__startswith=storage.URI_PREFIX):
            bucket, name = storage.locate(removal.path)
            bucket.delete(name)


def sign_original_url(document: Document) -> str:
    """Return a URL of the original file; raise ``Refused`` while it has not arrived."""
    return _signed(document.raw_path if document.stored_at else None, document.filename)


def sign_parsed_url(document: Document) -> str:
    """Return a URL of the parsed markdown; raise ``Refused`` while there is none."""
    return _signed(document.parsed_path, document.filename.removesuffix(".pdf") + ".md")


def _signed(path: str | None, filename: str) -> str:
    if path is None:
        detail = "The document has not come that far yet."
        raise ApiError("NOT_READY", detail, status=HTTPStatus.CONFLICT)
    bucket, name = storage.locate(path)
    return bucket.sign_download(name, filename=filename)
