"""A message that staff put into the queue for a file that is there."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from accounts.audit import log
from accounts.errors import ApiError
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from statutes.s3 import client as objects
from statutes.sqs import client as sqs
from statutes.sqs import messages
from statutes.sqs.messages import MessageRefused

UPLOADER = "staff"


def send(
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
    """Put a message of spec 004 §3.4 for a file into the queue; return the message's id.

    Raises ``Refused``: ``MESSAGE_INVALID`` with the field, ``MESSAGE_BUCKET_REFUSED``, ``RAW_FILE_MISSING``,
    ``REASON_REQUIRED``; ``OSError`` of the store, and as ``vendors.guard``.
    """
    queue_url = _queue(urgent)
    told = {
        "document_id": law,
        "s3_raw_key": key,
        "uploader_id": UPLOADER,
        "ingest_timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "priority": priority,
        "version": version,
        "force_reprocess": force,
        **({"bucket": bucket} if bucket else {}),
    }
    try:
        message = messages.statute(told)
    except MessageRefused as refused:
        look = "STATUTES_RAW_BUCKETS" if refused.code == messages.BUCKET else "the ids' letters and lengths"
        detail = f"The message would be refused: look at {look}."
        raise ApiError(refused.code, detail, field=refused.field or None) from refused
    try:
        objects.head(message.bucket or objects.bucket(), key)
    except FileNotFoundError:
        detail = "There is no file under this key; look at the key and the bucket."
        raise ApiError("RAW_FILE_MISSING", detail, status=HTTPStatus.NOT_FOUND, field="s3_raw_key") from None
    log.record_action(
        by=by, action="laws.send", reason=reason, object_type="law", object_id=law, tenant_id=SYSTEM_TENANT_ID,
        version=version, priority=priority, force=force,
    )  # fmt: skip
    return sqs.send(told, queue_url=queue_url)


def _queue(urgent: bool) -> str:
    url: str = settings.SQS_PRIORITY_QUEUE_URL if urgent else settings.SQS_QUEUE_URL
    if not url:
        raise ImproperlyConfigured(f"Set {'SQS_PRIORITY_QUEUE_URL' if urgent else 'SQS_QUEUE_URL'}.")
    return url
