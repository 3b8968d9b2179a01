"""From a message to a job: once for each version of a law, however often the message comes (spec 004 §4.1)."""

from __future__ import annotations

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
from jobs.models import UploadJob
from jobs.states import ACTIVE, Stage, State
from statutes import ids, reprocessing, versions
from statutes.models import Law, LawVersion
from statutes.sqs.messages import Message

PIPELINE = "statute"
Noted = Callable[[UploadJob, UploadJob], None]  # the job before and after
# What failed here has failed by its file: a better one may lie in its place by now.
BEFORE_TEXT = (Stage.QUEUED, Stage.JOB_VALIDATED, Stage.PARSING, Stage.PARSED)
WITHDRAWN, OVERTAKEN = "LAW_WITHDRAWN", "LAW_OUTDATED"  # why the document and the job of a version were taken out


class Kind(StrEnum):
    ACCEPTED = "accepted"  # there is work, and the job has it
    IN_PROGRESS = "in_progress"  # a job has it already
    DUPLICATE = "duplicate"  # it was done before
    OUTDATED = "outdated"  # a newer version of the law is found today
    WITHDRAWN = "withdrawn"  # the law was taken out since we sent the message


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a message; ``job_id`` is the version's job, None where it has none."""

    kind: Kind
    job_id: UUID | None = None


def accept(message: Message, *, by: str = "sqs", noted: Noted | None = None) -> Accepted:
    """Take a message in: a job for what is new, forced or had failed; none for what is there. Safe to repeat.

    ``noted`` is told of the job that is begun or tried again, in the transaction that does it. Raises ``OSError`` of
    the store, when what a dead job has done so far cannot be looked at.
    """
    with transaction.atomic():
        reprocessing.lock_both(message.law_id, message.version)
        if is_outdated(message.law_id, message.version, message):
            return Accepted(Kind.OUTDATED)
        if message.rest and not _is_known(message):
            return Accepted(Kind.WITHDRAWN)
        if (under_way := _under_way(message)) is not None:
            return Accepted(Kind.IN_PROGRESS, under_way.pk)
        found = reprocessing.found(message.law_id, message.version)
        if (done := _done(found or ids.document_id(message.law_id, message.version), message)) is not None:
            return Accepted(Kind.DUPLICATE, done.pk)
        version = _locked(_where(found, message), message)
        job = _newest(version.pk)
        _note(version, message)
        if job is None:  # whatever an earlier one has made of the version's document is gone with it
            LawVersion.objects.filter(pk=version.pk).update(**reprocessing.UNREAD, created_at=Now())
        if job is None or job.state == State.DONE:
            return Accepted(Kind.ACCEPTED, _enqueued(version, noted))
    # In no transaction: its proofs look into the store.
    retried = _retried(job, forced=message.force_reprocess, by=by, noted=noted)
    # Its document was erased meanwhile: what a message asks for has no work then.
    return retried or accept(message, by=by, noted=noted)


def is_outdated(law_id: str, version: str, came: Message | LawVersion) -> bool:
    """Tell whether a newer version of the law is found today."""
    law = Law.objects.filter(pk=law_id).first()
    if law is None or law.document_id is None:
        return False
    found = LawVersion.objects.filter(document_id=law.document_id).values_list("ingest_timestamp", flat=True).first()
    return versions.is_older(version, came.ingest_timestamp, than=law.version, than_ingested=found)


def is_taken_out(message: Message) -> bool:
    """Tell whether a version was to lose its job: a newer one took its place, or the law was taken out."""
    overtaken = _rows(message).filter(error_code=OVERTAKEN).exists()
    return overtaken or not _is_known(message) or is_outdated(message.law_id, message.version, message)


def _is_known(message: Message) -> bool:
    """Tell whether there is such a version, which is not just being taken out with its law."""
    return _rows(message).exclude(error_code=WITHDRAWN).exists()


def _rows(message: Message) -> QuerySet[LawVersion]:
    return LawVersion.objects.filter(pk__in=ids.document_ids(message.law_id, message.version))


def _under_way(message: Message) -> UploadJob | None:
    both = ids.document_ids(message.law_id, message.version)
    return services.newest_job(services.tenant_jobs().filter(document_id__in=both, state__in=ACTIVE))


def _newest(document_id: UUID) -> UploadJob | None:
    return services.newest_job(services.tenant_jobs().filter(document_id=document_id))


def _done(document_id: UUID, message: Message) -> UploadJob | None:
    """Return the document's job, if it has done what a message asks for; None where that asks for more.

    For what a law is there in part, whoever asks again asks for the rest.
    """
    job = _newest(document_id)
    if message.force_reprocess or job is None or job.state != State.DONE:
        return None
    is_whole = LawVersion.objects.filter(pk=document_id).exclude(status=Law.Status.PARTIAL_FAILED).exists()
    return job if is_whole else None


def _where(found: UUID | None, message: Message) -> UUID:
    """Return the document in which a version is to be done: beside the one that is found, if it is.

    Where that is being done again without having changed, and has failed, it goes on (``anew.go_home``).
    """
    if found is None:
        return ids.document_id(message.law_id, message.version)
    job = _newest(found)
    has_failed = job is not None and job.state == State.DEADLETTER
    # Else what is found would be said to be of a file that it was not made of.
    is_its_file = LawVersion.objects.filter(pk=found, bucket=message.bucket, raw_key=message.raw_key).exists()
    return found if has_failed and is_its_file else ids.beside(message.law_id, message.version, found)


def _locked(document_id: UUID, message: Message) -> LawVersion:
    """Return the version's row, made if need be, locked until the transaction ends: it is the processing lock."""
    row = LawVersion(
        document_id=document_id,
        law_id=message.law_id,
        version=message.version,
        bucket=message.bucket,
        raw_key=message.raw_key,
    )
    LawVersion.objects.bulk_create([row], ignore_conflicts=True)
    return LawVersion.objects.select_for_update().defer("canonical").get(pk=document_id)


def _note(version: LawVersion, message: Message) -> None:
    """Write down what the message says: of a law that has no version yet, this is the one that is on its way."""
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
    law = _law(message)
    if law.document_id is None and versions.key(law.version) <= versions.key(message.version):
        law.version, law.status, law.uploader_id = message.version, Law.Status.PROCESSING, message.uploader_id
        law.save(update_fields=["version", "status", "uploader_id"])


def _law(message: Message) -> Law:
    """Return the law's row, made if need be, locked until the transaction ends."""
    mine = Law.objects.select_for_update().filter(pk=message.law_id)
    while True:  # who takes the law out may remove a row that was there
        Law.objects.bulk_create([Law(law_id=message.law_id, version=message.version)], ignore_conflicts=True)
        if (law := mine.first()) is not None:
            return law


def _enqueued(version: LawVersion, noted: Noted | None) -> UUID:
    document = reprocessing.declared(version)
    job = services.enqueue(
        pipeline=PIPELINE,
        user_id=SYSTEM_TENANT_ID,
        document_id=document.pk,
        raw_path=document.raw_path,
        chunks_version="",
    )
    LawVersion.objects.filter(pk=version.pk).update(job_id=job.pk)
    if noted is not None:
        noted(job, job)
    return job.pk


def _retried(job: UploadJob, *, forced: bool, by: str, noted: Noted | None) -> Accepted | None:
    """Try a dead job again; return None if it was erased meanwhile."""
    stage = Stage.QUEUED.value if forced or job.stage in BEFORE_TEXT else None
    try:
        return Accepted(Kind.ACCEPTED, services.retry(job, by=by, stage=stage, noted=noted).pk)
    except ApiError as refused:  # another consumer, or support, was faster
        if refused.code == "NOT_FOUND":
            return None
        if refused.code not in ("JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED", "JOB_DONE"):
            raise
        return Accepted(Kind.IN_PROGRESS, job.pk)
