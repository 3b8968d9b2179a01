"""Services of the import: users and documents of the old system."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import log
from accounts.errors import ApiError
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import deterministic_ids
from documents import services as document_services
from documents.locks import lock_document
from documents.models import Document
from documents.storage import buckets
from jobs import services as job_services
from jobs import telemetry
from jobs.advisory_locks import session_lock
from jobs.models import UploadJob
from legacy import adoption, error_codes, old_bucket, plan
from legacy.adoption import NotAdoptable
from legacy.column_mapping import OldMapping
from legacy.models import ImportRun, LegacyDocument, LegacyTenant
from legacy.old_database import OldCatalog
from legacy.plan import Action, Verdict
from legacy.report import Report
from legacy.rollback import delete_untouched

LOCK = "legacy import"
RunState, DocumentState = ImportRun.State, LegacyDocument.State


def import_users(catalog: OldCatalog, mapping: OldMapping) -> tuple[ImportRun, Counter[str]]:
    """Create the old users that are unknown here, by id and e-mail. Counts: created, known, and codes.

    Raises ``ApiError``: "LEGACY_NOT_CONFIRMED", "LEGACY_RUN_ACTIVE".
    """
    counts: Counter[str] = Counter()

    def import_all(run: ImportRun) -> None:
        section = mapping.sections.get("users")
        for user_id, email in catalog.users(section) if section else ():
            counts[_import_user(run, user_id, email.strip().lower())] += 1

    run = _run(mapping, ImportRun.Mode.USERS, import_all, counts)
    return run, counts


def _import_user(run: ImportRun, user_id: UUID | None, email: str) -> str:
    if user_id is None:
        return str(error_codes.UNKNOWN_USER)
    with transaction.atomic():
        if created := not User.objects.filter(pk=user_id).exists():
            try:
                validate_email(email)
            except ValidationError:
                return str(error_codes.EMAIL_TAKEN)
            if user_id == SYSTEM_TENANT_ID or User.objects.filter(email=email).exists():
                return str(error_codes.EMAIL_TAKEN)
            User.objects.create_user(email, email, id=user_id)
        LegacyTenant.objects.get_or_create(user_id=user_id, defaults={"run": run, "created": created})
    return "created" if created else "known"


def import_documents(catalog: OldCatalog, mapping: OldMapping, *, mode: ImportRun.Mode) -> tuple[ImportRun, Report]:
    """Import what is new or has changed, user by user; continue a run of the same mode that was killed.

    Raises ``ApiError``: "LEGACY_NOT_CONFIRMED", "LEGACY_RUN_ACTIVE".
    """
    report = Report()
    verdicts = plan.Plan(catalog, mapping, old_bucket.open_bucket(), mode=mode, sample_vendors=True).verdicts()

    def import_all(run: ImportRun) -> None:
        for verdict in verdicts:
            if verdict.action == Action.REFUSE:
                _record_refusal(run, verdict)
            elif verdict.action != Action.UNCHANGED:
                _import_document(run, verdict, mapping)
            report.add(verdict)

    run = _run(mapping, mode, import_all, report.total.actions)
    return run, report


def _run(
    mapping: OldMapping, mode: ImportRun.Mode, work: Callable[[ImportRun], None], counts: Counter[str]
) -> ImportRun:
    mapping.require_confirmed()
    with session_lock(LOCK) as is_locked:
        if not is_locked:
            raise ApiError(error_codes.LEGACY_RUN_ACTIVE)
        killed = ImportRun.objects.filter(mode=mode, state=RunState.RUNNING).order_by("started_at").first()
        run = killed or ImportRun.objects.create(mode=mode, backup=mapping.backup)
        work(run)
        with transaction.atomic():
            ImportRun.objects.filter(pk=run.pk).update(state=RunState.FINISHED, counts=dict(counts), finished_at=Now())
            log.record_action(
                by=None, action="legacy.import", reason=f"Backup: {run.backup}", object_type="legacy_run",
                object_id=run.pk, mode=run.mode, counts=dict(counts),
            )  # fmt: skip
    return run


def _import_document(run: ImportRun, verdict: Verdict, mapping: OldMapping) -> None:
    """Store one document and queue its job, or adopt it. All in one transaction: a kill leaves at most a spare file."""
    document_id = deterministic_ids.document_id(verdict.user_id, verdict.file_sha256)
    former = LegacyDocument.objects.filter(pk=verdict.old.old_id).first()
    with transaction.atomic():
        lock_document(document_id)
        document = Document.objects.filter(pk=document_id).first()
        if document is not None:
            verdict.action = Action.MERGE
            _store_missing_bytes(document, verdict)
            _record(run, verdict, DocumentState.MERGED)
        else:
            document = _create_document(verdict, document_id)
            job = _adopt(document, verdict, mapping) or _enqueue(document)
            _record(run, verdict, DocumentState.IMPORTED, job_id=job.pk)
    if former and former.state == DocumentState.IMPORTED and former.document_id != document_id:
        delete_untouched(former)  # its file was replaced in the old system


def _create_document(verdict: Verdict, document_id: UUID) -> Document:
    user_id = verdict.user_id
    document = Document.objects.create(
        document_id=document_id,
        user_id=user_id,
        filename=verdict.filename,
        bytes_len=verdict.bytes_len,
        mime=buckets.MIME,
        file_sha256=verdict.file_sha256,
        raw_path=buckets.object_uri("raw", user_id, document_id, "pdf"),
        pages=verdict.pages,
        stored_at=Now(),
    )
    _put_file(document, verdict)
    return document


def _put_file(document: Document, verdict: Verdict) -> None:
    raw, name = buckets.locate(document.raw_path)
    if verdict.file is not None:
        raw.put_file(verdict.file, name)


def _store_missing_bytes(document: Document, verdict: Verdict) -> None:
    """Give its bytes to a document that its tenant has declared and never uploaded."""
    raw, name = buckets.locate(document.raw_path)
    if document.stored_at is None and document.bytes_len == verdict.bytes_len and not raw.exists(name):
        _put_file(document, verdict)
        job_services.wake_job(document.pk)


def _adopt(document: Document, verdict: Verdict, mapping: OldMapping) -> UploadJob | None:
    if verdict.mode != plan.ADOPT:
        return None
    try:
        with transaction.atomic():
            return adoption.adopt_document(document, verdict, plan.model_of(mapping))
    except NotAdoptable as error:
        verdict.reingest(error.code)
        return None


def _enqueue(document: Document) -> UploadJob:
    """Queue the job, after all that tenants upload themselves; their daily limits do not apply."""
    return job_services.enqueue(
        pipeline=document_services.PIPELINE,
        user_id=document.user_id,
        document_id=document.pk,
        raw_path=document.raw_path,
        chunks_version="",
        low_priority=True,
        correlation_id=telemetry.correlation_id(),
    )


def _record_refusal(run: ImportRun, verdict: Verdict) -> None:
    """Record why a document is refused, unless an earlier run imported it: what is here stays."""
    if not LegacyDocument.objects.filter(pk=verdict.old.old_id).exclude(state=DocumentState.REFUSED).exists():
        _record(run, verdict, DocumentState.REFUSED)


def _record(run: ImportRun, verdict: Verdict, state: str, *, job_id: UUID | None = None) -> None:
    columns: dict[str, Any] = {
        "user_id": verdict.old.user_id,
        "run": run,
        "mode": verdict.mode,
        "state": state,
        "code": verdict.code,
        "file_sha256": verdict.file_sha256 or None,
        "document_id": None if state == DocumentState.REFUSED else verdict.document_id,
        "job_id": job_id,
        "fingerprint": verdict.fingerprint,
    }
    # One statement, where update_or_create has five.
    LegacyDocument.objects.bulk_create(
        [LegacyDocument(old_id=verdict.old.old_id, **columns, updated_at=Now())],
        update_conflicts=True,
        unique_fields=["old_id"],
        update_fields=[*columns, "updated_at"],
    )
