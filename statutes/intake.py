"""Intake of statute messages: at most one job per version of a law, however often the message comes (spec 004 §4.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from jobs import services
from jobs.choices import ACTIVE, Stage, State
from jobs.models import UploadJob
from statutes import document_ids, standby_document, version_order
from statutes.models import Law, LawVersion
from statutes.sqs.message_schema import Message

PIPELINE = "statute"
JobCallback = Callable[[UploadJob, UploadJob], None]  # the job before and after
# A job that failed at these stages failed because of its file, which may have been replaced by now.
BEFORE_TEXT = (Stage.QUEUED, Stage.JOB_VALIDATED, Stage.PARSING, Stage.PARSED)
WITHDRAWN, OUTDATED = "LAW_WITHDRAWN", "LAW_OUTDATED"  # why a version's document and job were erased


class IntakeStatus(StrEnum):
    ACCEPTED = "accepted"  # a job has the work
    IN_PROGRESS = "in_progress"  # a job had it already
    DUPLICATE = "duplicate"  # the version is processed
    OUTDATED = "outdated"  # a newer version of the law is live
    WITHDRAWN = "withdrawn"  # the law was withdrawn after we sent the message


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """``job_id`` is the version's job, None where it has none."""

    status: IntakeStatus
    job_id: UUID | None = None


def accept_message(message: Message, *, by: str = "sqs", on_job: JobCallback | None = None) -> IntakeResult:
    """Create or retry the version's job if it is new, forced or has failed. Safe to repeat.

    ``on_job`` is called with the job that is created or retried, in the same transaction. Raises ``OSError`` of the
    store, when the progress of a dead job cannot be checked.
    """
    with transaction.atomic():
        standby_document.lock_documents(message.law_id, message.version)
        if version_order.is_outdated(message.law_id, message.version, message.ingest_timestamp):
            return IntakeResult(IntakeStatus.OUTDATED)
        if message.rest and not _is_known(message):
            return IntakeResult(IntakeStatus.WITHDRAWN)
        both = document_ids.document_ids(message.law_id, message.version)
        active = services.newest_job(services.tenant_jobs().filter(document_id__in=both, state__in=ACTIVE))
        if active is not None:
            return IntakeResult(IntakeStatus.IN_PROGRESS, active.pk)
        live_id = standby_document.live_document_id(message.law_id, message.version)
        document_id = live_id or document_ids.document_id(message.law_id, message.version)
        job = _newest_job(document_id)
        # A partially embedded version is not done: a repeated message requests its missing passages.
        is_whole = LawVersion.objects.filter(pk=document_id).exclude(status=Law.Status.PARTIAL_FAILED).exists()
        if job is not None and job.state == State.DONE and is_whole and not message.force_reprocess:
            return IntakeResult(IntakeStatus.DUPLICATE, job.pk)
        version = _lock_version(_target_document(live_id, message), message)
        job = _newest_job(version.pk)
        _record_message(version, message)
        if job is None:  # whatever an earlier job has made of the version's document is gone with it
            LawVersion.objects.filter(pk=version.pk).update(**standby_document.RESET_FIELDS, created_at=Now())
        if job is None or job.state == State.DONE:
            document = standby_document.get_or_create_document(version)
            job = services.enqueue(
                pipeline=PIPELINE, user_id=SYSTEM_TENANT_ID, document_id=document.pk, raw_path=document.raw_path,
                chunks_version="",
            )  # fmt: skip
            LawVersion.objects.filter(pk=version.pk).update(job_id=job.pk)
            if on_job is not None:
                on_job(job, job)
            return IntakeResult(IntakeStatus.ACCEPTED, job.pk)
    # Outside the transaction: its invariants read the store.
    stage = Stage.QUEUED.value if message.force_reprocess or job.stage in BEFORE_TEXT else None
    try:
        return IntakeResult(IntakeStatus.ACCEPTED, services.retry(job, by=by, stage=stage, noted=on_job).pk)
    except ApiError as refused:
        if refused.code == "NOT_FOUND":  # its document was erased meanwhile: the version has no job then
            return accept_message(message, by=by, on_job=on_job)
        if refused.code not in ("JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED", "JOB_DONE"):
            raise
        return IntakeResult(IntakeStatus.IN_PROGRESS, job.pk)  # another consumer, or support, was faster


def is_superseded_or_withdrawn(message: Message) -> bool:
    """Tell whether a version has lost its job on purpose: a newer one replaced it, or the law was withdrawn."""
    outdated = _versions(message).filter(error_code=OUTDATED).exists()
    return (
        outdated
        or not _is_known(message)
        or version_order.is_outdated(message.law_id, message.version, message.ingest_timestamp)
    )


def _is_known(message: Message) -> bool:
    return _versions(message).exclude(error_code=WITHDRAWN).exists()


def _versions(message: Message) -> QuerySet[LawVersion]:
    return LawVersion.objects.filter(pk__in=document_ids.document_ids(message.law_id, message.version))


def _newest_job(document_id: UUID) -> UploadJob | None:
    return services.newest_job(services.tenant_jobs().filter(document_id=document_id))


def _target_document(live_id: UUID | None, message: Message) -> UUID:
    """Return the second document while the first is live, unless its reprocessing without a change has failed."""
    if live_id is None:
        return document_ids.document_id(message.law_id, message.version)
    job = _newest_job(live_id)
    has_failed = job is not None and job.state == State.DEADLETTER
    # Otherwise the live version would name a file that it was not made of.
    is_same_file = LawVersion.objects.filter(pk=live_id, bucket=message.bucket, raw_key=message.raw_key).exists()
    if has_failed and is_same_file:
        return live_id
    return document_ids.other_document_id(message.law_id, message.version, live_id)


def _lock_version(document_id: UUID, message: Message) -> LawVersion:
    """Get or create the version's row, locked until the transaction ends: it is the processing lock."""
    row = LawVersion(
        document_id=document_id,
        law_id=message.law_id,
        version=message.version,
        bucket=message.bucket,
        raw_key=message.raw_key,
    )
    LawVersion.objects.bulk_create([row], ignore_conflicts=True)
    return LawVersion.objects.select_for_update().defer("canonical").get(pk=document_id)


def _record_message(version: LawVersion, message: Message) -> None:
    """Store the message's fields; a law without a live version shows the newest version that is on its way."""
    LawVersion.objects.filter(pk=version.pk).update(
        status=Law.Status.PROCESSING,
        bucket=message.bucket,
        raw_key=message.raw_key,
        uploader_id=message.uploader_id,
        priority=message.priority,
        ingest_timestamp=message.ingest_timestamp,
        error_code=None,
        updated_at=Now(),
    )
    law = None
    while law is None:  # a concurrent withdrawal may delete the row after it was inserted
        Law.objects.bulk_create([Law(law_id=message.law_id, version=message.version)], ignore_conflicts=True)
        law = Law.objects.select_for_update().filter(pk=message.law_id).first()
    if law.document_id is None and version_order.sort_key(law.version) <= version_order.sort_key(message.version):
        law.version, law.status, law.uploader_id = message.version, Law.Status.PROCESSING, message.uploader_id
        law.save(update_fields=["version", "status", "uploader_id"])
