"""What a callback does: once, in one transaction with the row that remembers it."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from accounts.errors import ApiError
from documents.error_codes import CALLBACK_CONTRADICTS
from documents.models import ParseRequest
from documents.parsing import parse_callbacks
from jobs import log_context
from jobs.models import UploadJob
from webhooks.error_codes import CALLBACK_UNKNOWN_JOB
from webhooks.models import Delivery
from webhooks.payloads import LlamaCloudEvent, ParseCallback, parse_payload
from webhooks.verifiers import VerifiedCallback

REMEMBERED = timedelta(hours=24)
ENDINGS = frozenset({"parse.success", "parse.error", "parse.partial_success", "parse.cancelled"})


def accept_callback(verified: VerifiedCallback, body: bytes) -> str:
    """Return the code of what the callback did, or of what it did when it first came.

    Whatever is raised undoes both effect and memory: the same callback may come again and go well.
    """
    said = parse_payload(verified.payload)
    with transaction.atomic():
        delivery, is_first = _remembered(verified, hashlib.sha256(body).hexdigest())
        if is_first:
            delivery.code = _announced(said) if isinstance(said, LlamaCloudEvent) else _delivered(said)
            delivery.save(update_fields=["code"])
    return delivery.code


def _remembered(verified: VerifiedCallback, body_sha256: str) -> tuple[Delivery, bool]:
    """Write the delivery, or return the one that is there; of several at once one writes, and the others wait."""
    key = hashlib.sha256(f"{verified.scheme}:{verified.message_id}".encode()).hexdigest()
    kept = {"body_sha256": body_sha256, "expires_at": Now() + REMEMBERED}
    delivery, is_first = Delivery.objects.get_or_create(key=key, defaults=kept)
    if not is_first and delivery.body_sha256 != body_sha256:
        detail = "A callback of this id has come with another content."
        raise ApiError(CALLBACK_CONTRADICTS, detail)
    return delivery, is_first


def _announced(said: LlamaCloudEvent) -> str:
    """Wake the job whose parse has ended; its worker fetches the result."""
    if said.event_type not in ENDINGS:
        return "EVENT_IGNORED"
    return _woken(ParseRequest.objects.filter(vendor_job_id=said.vendor_job_id).first())


def _delivered(said: ParseCallback) -> str:
    """Store the content that came along, or wake the job to see what became of its parse."""
    job = UploadJob.objects.filter(pk=said.job_id, document_id=said.document_id).first()
    if job is None:
        raise _unknown()
    log_context.bind_job(job)
    if said.content is None:
        return _woken(ParseRequest.objects.filter(pk=job.payload.get("parse_id")).first())
    return parse_callbacks.store_callback(
        job=job, content=said.content, parser_name=said.parser_name, parser_version=said.parser_version
    )


def _woken(asked: ParseRequest | None) -> str:
    if asked is None:
        raise _unknown()
    log_context.bind_document(asked.document_id)
    return "JOB_WOKEN" if parse_callbacks.wake_poller(asked) else "ALREADY_ENDED"


def _unknown() -> ApiError:
    """Say the same of a job that does not exist and of one that is another document's."""
    return ApiError(CALLBACK_UNKNOWN_JOB)
