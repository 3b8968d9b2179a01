"""Staff actions on statutes: reprocess a version, send a message for a file. Each is audited."""

from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from accounts.audit import log as audit_log
from accounts.common_error_codes import not_found, unavailable
from accounts.errors import ApiError
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from jobs.error_codes import JOB_ALREADY_ACTIVE
from jobs.models import UploadJob
from statutes import intake
from statutes.error_codes import LAW_FILE_UNKNOWN, LAW_OUTDATED, MESSAGE_BUCKET_REFUSED, RAW_FILE_MISSING
from statutes.intake import IntakeStatus
from statutes.models import LawVersion
from statutes.s3 import client
from statutes.sqs import client as sqs
from statutes.sqs import message_schema
from statutes.sqs.message_schema import Message, MessageRefused

STAFF_UPLOADER = "staff"


def reprocess(law_id: str, version: str, *, by: User | None, reason: str, document_id: UUID | None = None) -> UploadJob:
    """Process a version again from its raw file and return its job; the live version stays until that has succeeded.

    Where the version has two documents, the file is that of ``document_id`` or else of the newer one. Raises
    ``ApiError``: ``NOT_FOUND``, ``LAW_FILE_UNKNOWN``, ``LAW_OUTDATED``, ``JOB_ALREADY_ACTIVE``, ``REASON_REQUIRED``,
    ``UNAVAILABLE``.
    """
    audit_log.clean_reason(reason)
    rows = LawVersion.objects.filter(law_id=law_id, version=version).defer("canonical").order_by("-created_at", "pk")
    row = rows.filter(**({"pk": document_id} if document_id else {})).first()
    if row is None:
        raise not_found()
    if not row.bucket or not row.raw_key:  # its passages were imported as artifacts of another deployment
        raise ApiError(LAW_FILE_UNKNOWN, "The raw file of this version is unknown; send a message that names it.")
    message = Message(
        law_id=row.law_id,
        version=row.version,
        raw_key=row.raw_key,
        bucket=row.bucket,
        uploader_id=row.uploader_id,
        ingest_timestamp=row.ingest_timestamp or row.created_at,
        priority=row.priority,
        force_reprocess=True,
    )
    pk = row.pk

    def record(before: UploadJob, after: UploadJob) -> None:
        audit_log.record_action(
            by=by, action="laws.reprocess", reason=reason, object_type="law_version", object_id=str(pk),
            tenant_id=SYSTEM_TENANT_ID, law_id=law_id, version=version, job_id=str(after.pk),
        )  # fmt: skip

    try:
        accepted = intake.accept_message(message, by=str(by.pk) if by else audit_log.COMMAND_LINE_ACTOR, on_job=record)
    except OSError as error:
        raise unavailable("The store cannot be reached; try again shortly.") from error
    if accepted.status == IntakeStatus.OUTDATED:
        raise ApiError(LAW_OUTDATED, "A newer version of this statute is searched.")
    if accepted.status != IntakeStatus.ACCEPTED or accepted.job_id is None:
        raise ApiError(JOB_ALREADY_ACTIVE, "This version is being processed; wait until its job has ended.")
    return UploadJob.objects.get(pk=accepted.job_id)


def send_file_message(
    *,
    key: str,
    law: str,
    version: str,
    by: User | None,
    reason: str,
    priority: str = "normal",
    bucket: str = "",
    force: bool = False,
    urgent: bool = False,
) -> str:
    """Send a message of spec 004 §3.4 for a file; return the message's id.

    Raises ``ApiError``: ``MESSAGE_INVALID`` with the field, ``MESSAGE_BUCKET_REFUSED``, ``RAW_FILE_MISSING``,
    ``REASON_REQUIRED``; ``OSError`` of the store, and as ``vendors.calls``.
    """
    setting = "SQS_PRIORITY_QUEUE_URL" if urgent else "SQS_QUEUE_URL"
    queue_url: str = getattr(settings, setting)
    if not queue_url:
        raise ImproperlyConfigured(f"Set {setting}.")
    body = {
        "document_id": law,
        "s3_raw_key": key,
        "uploader_id": STAFF_UPLOADER,
        "ingest_timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "priority": priority,
        "version": version,
        "force_reprocess": force,
        **({"bucket": bucket} if bucket else {}),
    }
    try:
        message = message_schema.parse_statute_message(body)
    except MessageRefused as refused:
        cause = "STATUTES_RAW_BUCKETS" if refused.code == MESSAGE_BUCKET_REFUSED else "the ids' letters and lengths"
        detail = f"The message would be refused: look at {cause}."
        raise ApiError(refused.code, detail, field=refused.field or None) from refused
    try:
        client.head_object(message.bucket or client.statutes_bucket(), key)
    except FileNotFoundError:
        detail = "There is no file under this key; look at the key and the bucket."
        raise ApiError(RAW_FILE_MISSING, detail, field="s3_raw_key") from None
    audit_log.record_action(
        by=by, action="laws.send", reason=reason, object_type="law", object_id=law, tenant_id=SYSTEM_TENANT_ID,
        version=version, priority=priority, force=force,
    )  # fmt: skip
    return sqs.send_message(body, queue_url=queue_url)
