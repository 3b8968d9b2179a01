"""Uploads and documents of a tenant: declare, store, delete, and sign download URLs."""

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from accounts import prepared_statements, rate_limit
from accounts.audit.log import record_action
from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.idempotency_keys import IdempotentRequest
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import deterministic_ids, error_codes, object_deletion, parse_store, vendor_parses
from documents.locks import lock_document
from documents.models import Document, ParseRequest
from documents.storage import buckets, file_cache
from documents.storage.thumbnails import thumbnail_path
from documents.upload_request_validation import validate_upload
from jobs import pipeline, services, telemetry
from jobs.choices import State
from jobs.lifecycle import log_event
from jobs.models import Event, UploadJob
from jobs.safe_errors import safe_error_name
from outbox import search_feed

log = logging.getLogger("accessa.documents")

# Uploads that began just before their URL expired may still be running.
UPLOAD_GRACE_SECONDS = 60.0
READ_BYTES = 1024 * 1024
# The pipeline of an upload; the chunker's name is written with the job (002 §3).
PIPELINE = "insurance"
RENEW_UPLOAD = """
    UPDATE documents SET upload_expires_at = clock_timestamp() + make_interval(secs => %s) WHERE document_id = %s"""
# With the columns that are read afterwards.
INSERT_DOCUMENT = """
    INSERT INTO documents (document_id, user_id, filename, bytes_len, mime, file_sha256, ocr, imported, raw_path,
                           upload_expires_at)
    VALUES (%(document_id)s, %(user_id)s, %(filename)s, %(bytes_len)s, %(mime)s, %(file_sha256)s, %(ocr)s, %(imported)s,
            %(raw_path)s, clock_timestamp() + make_interval(secs => %(seconds)s))
    ON CONFLICT (document_id) DO NOTHING
    RETURNING document_id, user_id, bytes_len, mime, file_sha256, ocr, raw_path, upload_expires_at"""
# Of the document's newest job that is no campaign's.
NEWEST_STATE = """
    SELECT (SELECT state FROM upload_jobs j WHERE j.document_id = d.document_id AND campaign_id IS NULL
            ORDER BY created_at DESC, job_id DESC LIMIT 1) AS state
    FROM documents d WHERE document_id = %(document_id)s"""
# Children first: every table that holds a row for the document, then the document.
TABLES = (
    "parse_requests", "document_tags", "document_ocr_pages", "document_staged_parses", "document_vector_buffer",
    "document_chunk_buffer", "answer_feedback", "document_terms", "shadow_vectors", "sentence_vectors",
    "document_chunks", "events",
    "upload_jobs", "documents",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeclaredUpload:
    """The response to a declared upload: the four fields of MVP context §6."""

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
    request: IdempotentRequest | None = None,
) -> DeclaredUpload:
    """Declare a file and return its upload URL; the same file declared again gets the same ids.

    Renews the URL while the bytes are missing and retries a job that failed. Raises ``ApiError`` over a rate limit.
    A connector's upload does not count against the tenant's own uploads, and does not retry a job that failed although
    its bytes are stored. ``claim(document_id)``, in the same transaction, lets ``unless`` of ``delete`` see its need.
    """
    filename = validate_upload(filename=filename, bytes_len=bytes_len, mime=mime, sha256=sha256)
    document_id = deterministic_ids.document_id(user_id, sha256)
    if not by_connector:
        rate_limit.check_rate(rate_limit.UPLOAD_REQUESTS, user_id)  # each request leaves an event
    limit = rate_limit.IMPORTS if by_connector else rate_limit.UPLOADS
    expected = _causes_work(document_id, by_connector=by_connector)
    with rate_limit.reserved_use(limit, user_id, expected=expected) as take_use, transaction.atomic():
        lock_document(document_id)
        fields = {"filename": filename, "bytes_len": bytes_len, "ocr": ocr}
        document = _insert(document_id, user_id, mime=mime, file_sha256=sha256, imported=by_connector, **fields)
        if document is not None:
            take_use()
            job = _enqueue(document, request)
        else:
            document = _update_declared(document_id, **fields)
            job = services.get_latest_job(document_id) if by_connector else _redeclare(document, ocr, take_use)
        if claim is not None:
            claim(document_id)
        if request is not None:
            request.record()
    return _sign_upload(document, job, by_connector=by_connector)


def _causes_work(document_id: UUID, *, by_connector: bool) -> bool:
    """Tell whether a declaration would make a job, or retry one that failed: these count as uploads."""
    rows = prepared_statements.execute(NEWEST_STATE, {"document_id": document_id})
    return not rows or (rows[0]["state"] == State.DEADLETTER and not by_connector)


def _insert(document_id: UUID, user_id: UUID, **fields: Any) -> Document | None:
    """Insert a document and start its upload's time; return None if it exists."""
    fields |= {
        "document_id": document_id, "user_id": user_id, "seconds": settings.SIGNED_URL_SECONDS,
        "raw_path": buckets.object_uri("raw", user_id, document_id, "pdf"),
    }  # fmt: skip
    rows = prepared_statements.execute(INSERT_DOCUMENT, fields)
    return prepared_statements.load(Document, rows[0]) if rows else None


def _update_declared(document_id: UUID, **fields: Any) -> Document:
    """Renew the upload's time of a document, and its fields while the bytes are missing."""
    services.lock_jobs(document_id)  # before the document's row, as workers do: the other order could deadlock
    document = Document.objects.get(pk=document_id)
    if document.stored_at is None:  # a wrong length must not lock its file out for good
        Document.objects.filter(pk=document_id).update(**fields)
    with connection.cursor() as cursor:  # the database's clock decides when the URL expires
        cursor.execute(RENEW_UPLOAD, [settings.SIGNED_URL_SECONDS, document_id])
    document.refresh_from_db()
    return document


def _enqueue(document: Document, request: IdempotentRequest | None) -> UploadJob:
    return services.enqueue(
        pipeline=PIPELINE,
        user_id=document.user_id,
        document_id=document.pk,
        raw_path=document.raw_path,
        chunks_version="",
        idempotency_key=request and request.key,
        correlation_id=telemetry.correlation_id(),
    )


def _redeclare(document: Document, ocr: bool, take_use: Callable[[], None]) -> UploadJob:
    """Return the existing job of a document that its tenant declares again.

    A tenant whose document needs OCR declares it again with ``ocr``. A document that a connector imported becomes the
    tenant's own.
    """
    Document.objects.filter(pk=document.pk, imported=True).update(imported=False)
    job = services.get_latest_job(document.pk)
    log_event(job, "UPLOAD_DEDUP_HIT", Event.Type.STAGE_STARTED)
    if job.state != State.DEADLETTER:
        return job
    take_use()
    if ocr != document.ocr:
        Document.objects.filter(pk=document.pk).update(ocr=ocr)
        services.reset_plan(job)  # another way of parsing: the stage that chose the parser runs again
    return job


def _sign_upload(document: Document, job: UploadJob, *, by_connector: bool) -> DeclaredUpload:
    """Retry a failed job and sign the upload URL; in no transaction and under no lock, for both read the store."""
    raw, name = buckets.locate(document.raw_path)
    if job.state == State.DEADLETTER and not (by_connector and raw.exists(name)):
        try:
            job = services.retry(job, by="upload")
        except ApiError as error:
            if error.code != "JOB_ALREADY_ACTIVE":  # a concurrent declaration has retried it
                raise
            job = services.get_latest_job(document.pk)
    telemetry.bind_job(job)
    url = raw.sign_upload(name, length=document.bytes_len, mime=document.mime, sha256=document.file_sha256)
    return DeclaredUpload(job.pk, document.pk, url, cast(datetime, document.upload_expires_at))


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
    """Write a declared document's bytes to the store and wake its job. Raises ``UploadRejected`` for other bytes.

    Holds the document's lock: bytes that come while the document is being deleted are refused, not orphaned.
    """
    bucket, name = buckets.locate(document.raw_path)
    incoming = bucket.write_incoming(pieces, length=document.bytes_len, sha256=document.file_sha256)
    try:
        with transaction.atomic():
            lock_document(document.pk)
            if not Document.objects.filter(pk=document.pk).exists():
                raise not_found()
            if job := services.newest_job(UploadJob.objects.filter(document_id=document.pk)):
                telemetry.bind_job(job)
            bucket.put_file(incoming, name)
            services.wake_job(document.pk)
    finally:
        incoming.unlink(missing_ok=True)


def upload_file(user_id: UUID, path: Path) -> DeclaredUpload:
    """Declare a file of this machine and store its bytes. Raises what both do, and ``OSError``."""
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        declared = declare(
            user_id=user_id, filename=path.name, bytes_len=path.stat().st_size, mime=buckets.MIME, sha256=sha256
        )
        document = Document.objects.get(pk=declared.document_id)
        bucket, name = buckets.locate(document.raw_path)
        if not bucket.exists(name):
            content.seek(0)
            store_upload(document, iter(partial(content.read, READ_BYTES), b""))
    return declared


def delete(
    document: Document, *, unless: Callable[[], bool] | None = None, reason: str = "By its tenant.", by: str = "tenant"
) -> bool:
    """Delete a document, its rows, vectors, objects and queued work, whatever stage a running job is at.

    The audit log keeps its id, with ``by`` and ``reason``.

    A worker that holds the job loses its claim with the row. Objects are deleted after the commit, and again when any
    such worker's lease has expired; so are the copies at the parsing vendor. Deletes nothing and returns False if
    ``unless()`` is true; it is called while no one can declare the document again.
    """
    with transaction.atomic():
        lock_document(document.pk)
        if unless is not None and unless():
            return False
        delete_rows(document)
        record_action(
            by=None, unnamed=by, action="documents.delete", reason=reason, object_type="document",
            object_id=document.pk, tenant_id=document.user_id,
        )  # fmt: skip
    delete_objects(document.pk)
    return True


def delete_rows(document: Document) -> dict[str, int]:
    """Delete a document's rows, in the caller's transaction; call ``delete_objects`` after its commit.

    Return how many there were in each table.
    """
    lock_document(document.pk)
    # A worker whose job is gone learns of it at its next write, so at the end of its stage at the latest.
    longest = max(step.time_limit for step in pipeline.get_pipeline(PIPELINE).steps) + 2 * settings.JOBS_LEASE_SECONDS
    # And an upload URL works until it expires.
    seconds = max(longest, settings.SIGNED_URL_SECONDS + UPLOAD_GRACE_SECONDS)
    with connection.cursor() as cursor:
        # Waits for the one write that a worker may be making, and fences every later one.
        cursor.execute("SELECT job_id FROM upload_jobs WHERE document_id = %s FOR UPDATE", [document.pk])
        lock_document(document.pk, "vectors")  # a reindexing campaign may be settling them
        parse_store.transfer_shared_parse(document)
        copies = map(vendor_parses.vendor_path, ParseRequest.objects.filter(document=document))
        for path in [document.raw_path, parse_store.own_path(document), thumbnail_path(document), *copies]:
            object_deletion.schedule_deletion(document.user_id, document.pk, path, seconds=seconds)
        deleted = {}
        search_feed.enqueue([document.pk])
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table} WHERE document_id = %s", [document.pk])
            deleted[table] = cursor.rowcount
    return deleted


def delete_objects(document_id: UUID) -> None:
    """Delete the objects of a document whose rows are gone; the periodic task deletes those that fail now."""
    file_cache.evict_document(document_id)
    try:
        object_deletion.delete_pending_objects(document_id)
    except OSError as error:
        log.warning("The files of a deleted document are left to the periodic task: %s", safe_error_name(error))


def sign_original_url(document: Document) -> str:
    return _sign_download(document.raw_path if document.stored_at else None, document.filename)


def sign_parsed_url(document: Document) -> str:
    return _sign_download(document.parsed_path, document.filename.removesuffix(".pdf") + ".md")


def _sign_download(path: str | None, filename: str) -> str:
    if path is None:
        raise ApiError(error_codes.NOT_READY)
    bucket, name = buckets.locate(path)
    return bucket.sign_download(name, filename=filename)
