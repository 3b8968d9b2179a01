"""Failed versions of statutes: their archive in S3; periodic tasks that record them and delete the expired ones."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import services
from documents.deterministic_ids import canonical_json
from documents.locks import lock_document
from documents.models import Document
from documents.storage.s3 import OperationNotAllowed
from jobs.choices import ACTIVE, CANCELLED_CODES
from jobs.models import UploadJob
from statutes.models import LawVersion
from statutes.s3 import client, keys

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
BATCH_SIZE = 20
ERROR = "error.json"
# A minute late: a redelivered message is recorded just before its dead job is retried.
_DEAD = """
    FROM law_versions v JOIN upload_jobs j ON j.job_id = v.job_id
    WHERE v.status IN ('processing', 'normalized') AND v.updated_at < clock_timestamp() - interval '1 minute'
      AND j.state = 'deadletter' AND j.finished_at < clock_timestamp() - interval '1 minute'"""
_IS_FATAL = """(coalesce(j.last_error -> 'permanent' = 'true', false)
                AND coalesce(j.last_error ->> 'code', '') <> ALL(%(cancelled)s))"""
FATAL_FAILURES = f"SELECT v.document_id {_DEAD} AND {_IS_FATAL} ORDER BY v.updated_at LIMIT %(most)s"
MARK_FAILED = f"""
WITH dead AS (
    SELECT v.document_id, coalesce(j.last_error ->> 'code', 'internal') AS code {_DEAD}
      AND (v.document_id = ANY(%(archived)s) OR NOT {_IS_FATAL})
    ORDER BY v.document_id LIMIT 1000
), failed AS (
    UPDATE law_versions v SET status = 'failed', error_code = dead.code, updated_at = clock_timestamp()
    FROM dead WHERE v.document_id = dead.document_id AND v.status IN ('processing', 'normalized')
    RETURNING v.law_id, v.version
)
UPDATE laws l SET status = 'failed', updated_at = clock_timestamp() FROM failed
WHERE l.law_id = failed.law_id AND l.version = failed.version AND l.document_id IS NULL"""
_EXPIRED = """v.status = 'failed' AND v.updated_at < clock_timestamp() - make_interval(days => %(days)s)
              AND NOT EXISTS (SELECT FROM laws w WHERE w.document_id = v.document_id)"""
# Selected before any lock is taken, so that an expired version that cannot be deleted does not block the others.
EXPIRED_FAILURES = f"""
    SELECT v.document_id FROM law_versions v JOIN documents d USING (document_id)
    WHERE {_EXPIRED} ORDER BY v.updated_at LIMIT %(most)s"""
IS_EXPIRED = f"SELECT EXISTS (SELECT FROM law_versions v WHERE v.document_id = %(document_id)s AND {_EXPIRED})"


def record_failures() -> None:
    """Mark versions whose job ended while no consumer held its message; archive fatal failures first."""
    params: dict[str, Any] = {"cancelled": list(CANCELLED_CODES), "most": BATCH_SIZE}
    with connection.cursor() as cursor:
        cursor.execute(FATAL_FAILURES, params)
        document_ids = [document_id for (document_id,) in cursor.fetchall()]
    archived = document_ids
    if settings.STATUTES_BUCKET:
        archived = []
        for document_id in document_ids:
            row = LawVersion.objects.filter(pk=document_id)
            version = row.defer("canonical").first()
            job = UploadJob.objects.filter(pk__in=row.values("job_id")).first()
            if version is None or job is None or not is_fatal(job):  # withdrawn or retried meanwhile
                continue
            try:
                archive_failure(version, failure_details(job))
            except OSError:
                log.warning("A failed statute could not be archived; retrying later.", code="STORAGE_UNAVAILABLE")
                row.update(updated_at=Now())  # behind the others, in case the bucket never accepts this one
                break
            archived.append(document_id)
    with connection.cursor() as cursor:
        cursor.execute(MARK_FAILED, params | {"archived": archived})


def delete_expired_failures() -> None:
    """Delete files and jobs of versions that failed STATUTES_FAILED_DAYS ago (0: none), but no row of them."""
    if not settings.STATUTES_FAILED_DAYS:
        return
    with connection.cursor() as cursor:
        cursor.execute(EXPIRED_FAILURES, {"days": settings.STATUTES_FAILED_DAYS, "most": BATCH_SIZE})
        document_ids = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in document_ids:
        if _erase_if_expired(document_id):
            services.delete_objects(document_id)
            log.info("A failed version of a statute was deleted.", document=str(document_id))


def _erase_if_expired(document_id: UUID) -> bool:
    with transaction.atomic():
        lock_document(document_id)  # before any row, as intake and deletions do
        document = Document.objects.filter(pk=document_id).first()
        if document is None or UploadJob.objects.filter(document_id=document_id, state__in=ACTIVE).exists():
            return False
        with connection.cursor() as cursor:
            cursor.execute(IS_EXPIRED, {"document_id": document_id, "days": settings.STATUTES_FAILED_DAYS})
            (is_expired,) = cursor.fetchone()
        if is_expired:
            services.delete_rows(document)
            LawVersion.objects.filter(pk=document_id).update(canonical=None, job_id=None, refused=[], updated_at=Now())
    return bool(is_expired)


def archive_failure(version: LawVersion, error: Mapping[str, Any]) -> None:
    """Copy the raw file of a fatal failure to failed/, with a record of its ``error`` (spec 004 §5.1); safe to repeat.

    Replaces the archive of an earlier failure of the version. A raw file that is missing, or that cannot be read (an
    infected one), leaves the record alone. Raises ``OSError`` of the store.
    """
    bucket, folder = client.statutes_bucket(), keys.failed(version.law_id, version.version)
    error_key = f"{folder}{ERROR}"
    raw_key = None
    if version.bucket in client.raw_buckets() and (version.bucket == bucket or client.is_accessible(version.bucket)):
        name = keys.quote_name(PurePosixPath(version.raw_key).name or "raw")
        raw_key = f"{folder}{f'raw.{name}' if name == ERROR else name}"
        try:
            client.copy_object(version.bucket, version.raw_key, to=raw_key, to_bucket=bucket)
        except (FileNotFoundError, OperationNotAllowed):  # if our own bucket refuses, the record is refused as well
            raw_key = None
    record = {
        "law_id": version.law_id,
        "version": version.version,
        "document_id": str(version.pk),
        "source": {"bucket": version.bucket, "key": version.raw_key, "sha256": version.raw_sha256},
        "raw": raw_key,
        **error,
    }
    client.put_object(bucket, error_key, canonical_json(record).encode())
    for key in set(client.list_keys(bucket, folder)) - {raw_key, error_key}:  # of an earlier failure
        client.delete_object(bucket, key)


def failure_details(job: UploadJob) -> dict[str, str]:
    """Return the code, detail and stage of a dead job, as its archived record has them."""
    error = job.last_error or {}
    return {"code": str(error.get("code", "internal")), "detail": str(error.get("detail", "")), "stage": str(job.stage)}


def is_fatal(job: UploadJob) -> bool:
    """Tell a permanent failure from one that has exhausted its retries."""
    return (job.last_error or {}).get("permanent") is True
