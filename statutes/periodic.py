"""Periodic tasks of statutes: record and archive failed versions, delete expired failures."""

from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import services
from documents.files import lock_document
from documents.models import Document
from jobs.choices import ACTIVE, CANCELLED_CODES
from jobs.models import UploadJob
from statutes import queries, settlement
from statutes.models import LawVersion
from statutes.s3 import artifacts

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
BATCH_SIZE = 20


def record_failures() -> None:
    """Mark versions as failed whose job was cancelled, or ended while no consumer held its message.

    Fatal failures are archived first, as when a message is settled; while the bucket is away they are tried again.
    """
    params: dict[str, Any] = {"let_go": list(CANCELLED_CODES), "most": BATCH_SIZE}
    with connection.cursor() as cursor:
        cursor.execute(queries.FATAL_FAILURES, params)
        document_ids = [document_id for (document_id,) in cursor.fetchall()]
    archived = document_ids
    if settings.STATUTES_BUCKET:
        archived = []
        for document_id in document_ids:
            row = LawVersion.objects.filter(pk=document_id)
            version = row.defer("canonical").first()
            job = UploadJob.objects.filter(pk__in=row.values("job_id")).first()
            if version is None or job is None or not settlement.is_fatal(job):  # withdrawn or retried meanwhile
                continue
            try:
                artifacts.archive_failure(version, settlement.failure_details(job))
            except OSError:
                log.warning("A failed statute could not be archived; retrying later.", code="STORAGE_UNAVAILABLE")
                row.update(updated_at=Now())  # behind the others, in case the bucket never accepts this one
                break
            archived.append(document_id)
    with connection.cursor() as cursor:
        cursor.execute(queries.MARK_FAILED, params | {"archived": archived})


def delete_expired_failures() -> None:
    """Delete files, rows, jobs and canonical text of versions that failed STATUTES_FAILED_DAYS ago; 0 keeps them.

    The live version of a law is never touched, even where reprocessing it has failed. The version's row stays as
    history, and a message brings the version back.
    """
    if not settings.STATUTES_FAILED_DAYS:
        return
    with connection.cursor() as cursor:
        cursor.execute(queries.EXPIRED_FAILURES, {"days": settings.STATUTES_FAILED_DAYS, "most": BATCH_SIZE})
        document_ids = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in document_ids:
        if _erase_if_expired(document_id):
            services.delete_objects(document_id)
            log.info("A failed version of a statute was deleted.", document=str(document_id))


def _erase_if_expired(document_id: UUID) -> bool:
    """Erase a version's document, unless a message has come for it meanwhile or a job is active."""
    with transaction.atomic():
        lock_document(document_id)  # before any row, as intake and deletions do
        document = Document.objects.filter(pk=document_id).first()
        if document is None or UploadJob.objects.filter(document_id=document_id, state__in=ACTIVE).exists():
            return False
        with connection.cursor() as cursor:
            cursor.execute(queries.IS_EXPIRED, {"document_id": document_id, "days": settings.STATUTES_FAILED_DAYS})
            (is_expired,) = cursor.fetchone()
        if is_expired:
            services.delete_rows(document)
            LawVersion.objects.filter(pk=document_id).update(canonical=None, job_id=None, refused=[], updated_at=Now())
    return bool(is_expired)
