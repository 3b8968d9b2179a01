"""A version that is found, done anew: in the other of its two documents, or at home where its file says the same."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services, storage
from documents.locks import lock
from documents.models import Document
from documents.parsing import parse_store
from documents.parsing.parse_store import ParseResult
from jobs.claims import Claim
from jobs.models import Event, UploadJob
from jobs.outcomes import Moved, Outcome, Wait
from jobs.states import ACTIVE, Stage, State
from statutes import ids
from statutes.error_codes import LAW_BUSY
from statutes.models import Law, LawVersion

BUSY_SECONDS = 2.0
SEPARATE = "apart"  # in a job's payload: it has left what is found for good
# What a message says of a version, and what was made of its file.
MESSAGE_FIELDS = ("bucket", "raw_key", "uploader_id", "priority", "ingest_timestamp")
RESET_FIELDS: dict[str, Any] = {
    "raw_sha256": None,
    "format": None,
    "canonical": None,
    "refused": [],
    "reprocessed": 0,
    "manifest_sha256": None,
    "error_code": None,
}


def live_document_id(law_id: str, version: str) -> UUID | None:
    """Return which of a version's documents is found, if the version is."""
    mine = Law.objects.filter(pk=law_id, document_id__in=ids.document_ids(law_id, version))
    return mine.values_list("document_id", flat=True).first()


def is_live(version: LawVersion) -> bool:
    return Law.objects.filter(pk=version.law_id, document_id=version.pk).exists()


def lock_documents(law_id: str, version: str) -> None:
    """Hold both documents of a version until the transaction ends: before any row, as deletions do."""
    for document_id in sorted(ids.document_ids(law_id, version)):
        lock(document_id)


def get_or_create_document(version: LawVersion) -> Document:
    """Return the document of a version that is begun, made if need be."""
    document, _ = Document.objects.get_or_create(
        pk=version.pk,
        defaults={
            "user_id": SYSTEM_TENANT_ID,
            "filename": version.law_id,
            "mime": "application/octet-stream",
            "bytes_len": 0,
            "file_sha256": ids.file_sha256(version.pk),
            # One name for all formats, as the audit looks for it: a law's format is known when its bytes are.
            "raw_path": storage.object_uri("raw", SYSTEM_TENANT_ID, version.pk, "pdf"),
        },
    )
    return document


def move_to_second_document(claim: Claim, *, for_good: bool = False) -> Outcome:
    """Send a job from the document that is found to the other one, where it begins anew: what is found stays as it is.

    ``for_good`` it is not to come back to it. Waits while another job is at the other one.
    """
    with transaction.atomic():
        version = LawVersion.objects.defer("canonical").get(pk=claim.job.document_id)
        lock_documents(version.law_id, version.version)
        other = ids.other_document_id(version.law_id, version.version, version.pk)
        if _is_worked_on(other):
            raise Wait(BUSY_SECONDS, LAW_BUSY)
        with claim.transaction():
            _turn(claim, get_or_create_document(_begun(other, version, claim)))
            _leave_as_it_was(version)
            forgotten = {**parse_store.job_fields(None, None), "progress": parse_store.NO_CHUNKS}
            forgotten["payload"] |= {SEPARATE: for_good}
            claim.move("rewind", stage=Stage.QUEUED.value, event={"reason": "LAW_FOUND"}, fields=forgotten)
    return Moved(ended=True)


def _begun(document_id: UUID, like: LawVersion, claim: Claim) -> LawVersion:
    """Return the row of a version's other document, begun by what its message has said."""
    said = {name: getattr(like, name) for name in MESSAGE_FIELDS}
    now = {**said, **RESET_FIELDS, "status": Law.Status.PROCESSING, "job_id": claim.job.pk}
    LawVersion.objects.update_or_create(
        pk=document_id,
        defaults={"law_id": like.law_id, "version": like.version, **now, "created_at": Now(), "updated_at": Now()},
    )
    return LawVersion.objects.defer("canonical").get(pk=document_id)


def _turn(claim: Claim, document: Document) -> None:
    """Let a job, and what was told of it, be of another document."""
    job = UploadJob.objects.filter(pk=claim.job.pk)
    job.update(document_id=document.pk, raw_path=document.raw_path)
    Event.objects.filter(job_id=claim.job.pk).update(document_id=document.pk)
    # The database follows a status that changes, and this one may not.
    Document.objects.filter(pk=document.pk).update(processing_status=job.values("status"))
    claim.job.document, claim.job.raw_path = document, document.raw_path


def _leave_as_it_was(version: LawVersion) -> None:
    """Let a version that is found say again what it said before its job was begun."""
    law = Law.objects.get(pk=version.law_id)
    ended = UploadJob.objects.filter(document_id=version.pk, campaign_id=None, state=State.DONE)
    last = ended.order_by("-created_at", "-job_id").first()
    LawVersion.objects.filter(pk=version.pk).update(
        status=law.status, job_id=last.pk if last else None, error_code=None, updated_at=Now()
    )
    Document.objects.filter(pk=version.pk).update(processing_status=last.status if last else None)


def move_to_live_document(
    claim: Claim, version: LawVersion, parse: ParseResult, told: dict[str, object]
) -> Moved | None:
    """Bring a job back to the document that is found, if its file and text are that one's; None where it stays beside.

    Its passages keep their ids then, and what is begun beside it goes.
    """
    home = None if claim.job.payload.get(SEPARATE) else _home(version, parse)
    if home is None:
        return None
    with transaction.atomic():
        lock_documents(version.law_id, version.version)
        mine = Law.objects.filter(pk=version.law_id, document_id=home.pk)
        if not mine.exists() or _is_worked_on(home.pk):
            return None
        with claim.transaction():
            moved = _moved_home(claim, version, home, told)
    services.delete_objects(version.pk)
    return moved


def _home(version: LawVersion, parse: ParseResult) -> Document | None:
    """Return the document that is found, where it was made of this file, has this very text, and all of it is there."""
    at = live_document_id(version.law_id, version.version)
    if at is None or not LawVersion.objects.filter(pk=at, raw_sha256=version.raw_sha256).exists():
        return None
    home = Document.objects.filter(pk=at, parsed_sha256=parse.sha256, page_starts=list(parse.page_starts)).first()
    if home is None or not parse_store.is_intact(home):
        return None
    bucket, name = storage.locate(home.raw_path)
    return home if bucket.exists(name) else None


def _moved_home(claim: Claim, version: LawVersion, home: Document, told: dict[str, object]) -> Moved:
    said = {name: getattr(version, name) for name in MESSAGE_FIELDS}
    LawVersion.objects.filter(pk=home.pk).update(
        **said, status=Law.Status.NORMALIZED, canonical=told, job_id=claim.job.pk, error_code=None, updated_at=Now()
    )
    beside = Document.objects.get(pk=version.pk)
    _turn(claim, home)
    services.delete_rows(beside)
    LawVersion.objects.filter(pk=version.pk).delete()
    fields = parse_store.job_fields(home.parsed_path, home.parsed_sha256)
    return claim.advance(
        code="PARSE_STORED", event={"reason": "LAW_UNCHANGED"}, progress=parse_store.NO_CHUNKS, **fields
    )


def _is_worked_on(document_id: UUID) -> bool:
    return UploadJob.objects.filter(document_id=document_id, state__in=ACTIVE).exists()
