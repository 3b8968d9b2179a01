"""Reprocessing of a live version: in its second document, or back in the live one where file and text are the same."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Expression
from django.db.models.functions import Now

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import parse_store, services
from documents.locks import lock_document
from documents.models import Document
from documents.parse_store import ParseResult
from documents.storage import buckets
from jobs.choices import ACTIVE, Stage, State
from jobs.claims import Claim
from jobs.models import Event, UploadJob
from jobs.outcomes import Moved, Outcome, Wait
from statutes import document_ids
from statutes.error_codes import LAW_BUSY
from statutes.models import Law, LawVersion

BUSY_SECONDS = 2.0
SEPARATE = "apart"  # in a job's payload: the job must not move back to the live document
MESSAGE_FIELDS = ("bucket", "raw_key", "uploader_id", "priority", "ingest_timestamp")
NULLED = ("raw_sha256", "format", "canonical", "manifest_sha256", "error_code")
RESET_FIELDS: dict[str, Any] = {**dict.fromkeys(NULLED), "refused": [], "reprocessed": 0}


def live_document_id(law_id: str, version: str) -> UUID | None:
    law = Law.objects.filter(pk=law_id, document_id__in=document_ids.document_ids(law_id, version))
    return law.values_list("document_id", flat=True).first()


def is_live(version: LawVersion) -> bool:
    return Law.objects.filter(pk=version.law_id, document_id=version.pk).exists()


def lock_documents(law_id: str, version: str) -> None:
    """Lock both documents of a version until the transaction ends: before any row, as deletions do."""
    for document_id in sorted(document_ids.document_ids(law_id, version)):
        lock_document(document_id)


def get_or_create_document(version: LawVersion) -> Document:
    document, _ = Document.objects.get_or_create(
        pk=version.pk,
        defaults={
            "user_id": SYSTEM_TENANT_ID,
            "filename": version.law_id,
            "mime": "application/octet-stream",
            "bytes_len": 0,
            "file_sha256": document_ids.file_sha256(version.pk),
            # One suffix for all formats, which the integrity check expects: the format is known after the download.
            "raw_path": buckets.object_uri("raw", SYSTEM_TENANT_ID, version.pk, "pdf"),
        },
    )
    return document


def move_to_second_document(claim: Claim, *, for_good: bool = False) -> Outcome:
    """Rewind a job of the live document into the version's other document: the live one stays as it is.

    With ``for_good`` the job does not move back later. Raises ``Wait`` while the other document has an active job.
    """
    with transaction.atomic():
        version = LawVersion.objects.defer("canonical").get(pk=claim.job.document_id)
        lock_documents(version.law_id, version.version)
        other_id = document_ids.other_document_id(version.law_id, version.version, version.pk)
        if _has_active_job(other_id):
            raise Wait(BUSY_SECONDS, LAW_BUSY)
        with claim.transaction():
            copied = {name: getattr(version, name) for name in ("law_id", "version", *MESSAGE_FIELDS)}
            state = {"status": Law.Status.PROCESSING, "job_id": claim.job.pk, "created_at": Now(), "updated_at": Now()}
            LawVersion.objects.update_or_create(pk=other_id, defaults={**copied, **RESET_FIELDS, **state})
            other = LawVersion.objects.defer("canonical").get(pk=other_id)
            _move_job(claim, get_or_create_document(other))
            _restore_live_version(version)
            fields = {**parse_store.job_fields(None, None), "progress": parse_store.NO_CHUNKS}
            fields["payload"] |= {SEPARATE: for_good}
            claim.move("rewind", stage=Stage.QUEUED.value, event={"reason": "LAW_FOUND"}, fields=fields)
    return Moved(ended=True)


def _move_job(claim: Claim, document: Document) -> None:
    job = UploadJob.objects.filter(pk=claim.job.pk)
    job.update(document_id=document.pk, raw_path=document.raw_path)
    Event.objects.filter(job_id=claim.job.pk).update(document_id=document.pk)
    # A trigger copies a status that changes, and this one may not change.
    Document.objects.filter(pk=document.pk).update(processing_status=job.values("status"))
    claim.job.document, claim.job.raw_path = document, document.raw_path


def _restore_live_version(version: LawVersion) -> None:
    law = Law.objects.get(pk=version.law_id)
    done = UploadJob.objects.filter(document_id=version.pk, campaign_id=None, state=State.DONE)
    last = done.order_by("-created_at", "-job_id").first()
    LawVersion.objects.filter(pk=version.pk).update(
        status=law.status, job_id=last.pk if last else None, error_code=None, updated_at=Now()
    )
    Document.objects.filter(pk=version.pk).update(processing_status=last.status if last else None)


def move_to_live_document(claim: Claim, version: LawVersion, parse: ParseResult, canonical: Expression) -> Moved | None:
    """Move a job back to the live document if file and text are the same, so that ids of passages stay; else None."""
    live = None if claim.job.payload.get(SEPARATE) else _identical_live_document(version, parse)
    if live is None:
        return None
    with transaction.atomic():
        lock_documents(version.law_id, version.version)
        is_still_live = Law.objects.filter(pk=version.law_id, document_id=live.pk).exists()
        if not is_still_live or _has_active_job(live.pk):
            return None
        with claim.transaction():
            fields = {name: getattr(version, name) for name in MESSAGE_FIELDS}
            LawVersion.objects.filter(pk=live.pk).update(
                **fields, status=Law.Status.NORMALIZED, canonical=canonical, job_id=claim.job.pk, error_code=None,
                updated_at=Now(),
            )  # fmt: skip
            second = Document.objects.get(pk=version.pk)
            _move_job(claim, live)
            services.delete_rows(second)
            LawVersion.objects.filter(pk=version.pk).delete()
            moved = claim.advance(
                code="PARSE_STORED", event={"reason": "LAW_UNCHANGED"}, progress=parse_store.NO_CHUNKS,
                **parse_store.job_fields(live.parsed_path, live.parsed_sha256),
            )  # fmt: skip
    services.delete_objects(version.pk)
    return moved


def _identical_live_document(version: LawVersion, parse: ParseResult) -> Document | None:
    live_id = live_document_id(version.law_id, version.version)
    if live_id is None or not LawVersion.objects.filter(pk=live_id, raw_sha256=version.raw_sha256).exists():
        return None
    starts = list(parse.page_starts)
    live = Document.objects.filter(pk=live_id, parsed_sha256=parse.sha256, page_starts=starts).first()
    if live is None or not parse_store.is_intact(live):
        return None
    bucket, name = buckets.locate(live.raw_path)
    return live if bucket.exists(name) else None


def _has_active_job(document_id: UUID) -> bool:
    return UploadJob.objects.filter(document_id=document_id, state__in=ACTIVE).exists()
