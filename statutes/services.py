"""What staff may ask of a law: to be done again, or to be taken out of the corpus. Each with its audit entry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import log as auditing
from accounts.errors import ApiError, not_found, unavailable
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services
from documents.locks import lock
from documents.models import Document
from jobs.models import UploadJob
from statutes import ids, intake, publish_lock
from statutes.intake import WITHDRAWN, Kind
from statutes.models import Law, LawVersion
from statutes.s3 import client, keys
from statutes.sqs.messages import Message

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")


def reprocess(law_id: str, version: str, *, by: User | None, reason: str, document_id: UUID | None = None) -> UploadJob:
    """Do a version again from its raw file, and return its job; what is found of it stays until that is whole.

    Of a version that was begun anew beside what is found, the file is the one that was named last, or that of
    ``document_id``. Raises ``Refused``: ``NOT_FOUND``, ``LAW_FILE_UNKNOWN``, ``LAW_OUTDATED``, ``JOB_ALREADY_ACTIVE``,
    ``REASON_REQUIRED``, ``UNAVAILABLE``.
    """
    auditing.clean_reason(reason)
    rows = LawVersion.objects.filter(law_id=law_id, version=version).defer("canonical").order_by("-created_at", "pk")
    row = rows.filter(**({"pk": document_id} if document_id else {})).first()
    if row is None:
        raise not_found()
    asked = row.pk

    def noted(seen: UploadJob, moved: UploadJob) -> None:
        details = {"law_id": law_id, "version": version, "job_id": str(moved.pk)}
        _record("laws.reprocess", "law_version", asked, by=by, reason=reason, **details)

    try:
        accepted = intake.accept(_message(row), by=_name(by), noted=noted)
    except OSError as error:
        raise unavailable("The store cannot be reached, so nothing can be proven; try again shortly.") from error
    if accepted.kind == Kind.OUTDATED:
        raise _conflict("LAW_OUTDATED", "A newer version of this law is found today.")
    if accepted.kind != Kind.ACCEPTED or accepted.job_id is None:
        raise _conflict("JOB_ALREADY_ACTIVE", "This version is being worked on; wait until its job has ended.")
    return UploadJob.objects.get(pk=accepted.job_id)


def _message(version: LawVersion) -> Message:
    if not version.bucket or not version.raw_key:  # its passages came as artifacts, from elsewhere
        raise _conflict(
            "LAW_FILE_UNKNOWN", "Nothing is noted of this version's raw file; send a message that names it."
        )
    return Message(
        law_id=version.law_id,
        version=version.version,
        raw_key=version.raw_key,
        bucket=version.bucket,
        uploader_id=version.uploader_id,
        ingest_timestamp=version.ingest_timestamp or version.created_at,
        priority=version.priority,
        force_reprocess=True,
    )


def withdraw(law_id: str, *, by: User | None, reason: str) -> None:
    """Take a law out, all versions of it: rows, passages, vectors, work, and what we put into the bucket.

    The raw files are their uploaders' and stay. Safe to repeat: what a crash has left goes then. Raises
    ``Refused``: ``NOT_FOUND``, ``LAW_BUSY`` (it is just being published), ``REASON_REQUIRED``, and ``UNAVAILABLE`` of
    the bucket: then it is found no more, and repeating removes the rest.
    """
    auditing.clean_reason(reason)
    with publish_lock.alone(law_id) as is_ours:  # who publishes meanwhile would upload what is removed here
        if not is_ours:
            raise _conflict("LAW_BUSY", "This law is just being published; try again in a minute.")
        known = Law.objects.filter(pk=law_id).exists() or LawVersion.objects.filter(law_id=law_id).exists()
        if not known:
            raise not_found()
        for document in _hide(law_id, by=by, reason=reason):
            services.delete_objects(document.pk)
        try:
            _remove_objects(law_id)
        except OSError as error:
            raise unavailable("The bucket cannot be reached; take the law out once more to remove the rest.") from error
        _forget(law_id)
    log.info("A law was taken out.", law=law_id)


def _hide(law_id: str, *, by: User | None, reason: str) -> list[Document]:
    """Let nothing of the law be found or worked on; return the documents whose files are to be removed."""
    with transaction.atomic():
        versions = LawVersion.objects.filter(law_id=law_id)
        # Both of each: a job may just be on its way from one to the other.
        known = versions.values_list("version", flat=True)
        document_ids = sorted({each for version in known for each in ids.document_ids(law_id, version)})
        for document_id in document_ids:
            lock(document_id)  # before any row, as intake and deletions do
        found = list(Document.objects.filter(pk__in=document_ids, user_id=SYSTEM_TENANT_ID).order_by("pk"))
        for document in found:
            services.delete_rows(document)
        gone = {"status": Law.Status.FAILED, "error_code": WITHDRAWN, "job_id": None, "canonical": None}
        count = versions.filter(pk__in=document_ids).update(**gone, updated_at=Now())
        Law.objects.filter(pk=law_id).update(
            document_id=None, status=Law.Status.FAILED, chunk_count=0, updated_at=Now()
        )
        _record("laws.withdraw", "law", law_id, by=by, reason=reason, versions=count, documents=len(found))
    return found


def _remove_objects(law_id: str) -> None:
    if not settings.STATUTES_BUCKET:  # its artifacts were read from a folder
        return
    bucket = client.bucket()
    client.delete(bucket, keys.manifest(law_id))  # first: readers trust nothing but what it names
    client.delete(bucket, keys.vectors(law_id))
    found = [key for folder in keys.folders(law_id) for key in client.names(bucket, folder)]
    with ThreadPoolExecutor(client.AT_ONCE, thread_name_prefix="withdraw") as pool:
        list(pool.map(lambda key: client.delete(bucket, key), found))


def _forget(law_id: str) -> None:
    """Remove the rows of what was taken out; a version that a message has brought meanwhile stays."""
    with transaction.atomic():
        gone = LawVersion.objects.filter(law_id=law_id, error_code=WITHDRAWN)
        for document_id in sorted(gone.values_list("pk", flat=True)):
            lock(document_id)  # before any row, as intake does, which looks for a row that it has just seen
        gone.delete()
        law = Law.objects.select_for_update().filter(pk=law_id, document_id=None).first()
        # Asked once the law is locked: until then a message may be bringing a version of it.
        if law is not None and not LawVersion.objects.filter(law_id=law_id).exists():
            law.delete()


def _record(
    action: str, object_type: str, object_id: object, *, by: User | None, reason: str, **details: object
) -> None:
    auditing.record_action(
        by=by, action=action, reason=reason, object_type=object_type, object_id=str(object_id),
        tenant_id=SYSTEM_TENANT_ID, **details,
    )  # fmt: skip


def _name(by: User | None) -> str:
    return str(by.pk) if by else auditing.COMMAND_LINE_ACTOR


def _conflict(code: str, detail: str) -> ApiError:
    return ApiError(code, detail, status=HTTPStatus.CONFLICT)
