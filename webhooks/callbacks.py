"""Callback service: the effect of a callback, once, in one transaction with the row that remembers the delivery."""

import hashlib
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from accounts.errors import ApiError
from documents import vendor_parses
from documents.error_codes import CALLBACK_CONTRADICTS
from documents.models import ParseRequest
from documents.replacement_parses import REPARSE
from jobs import services, telemetry
from jobs.models import UploadJob
from webhooks.error_codes import CALLBACK_UNKNOWN_JOB
from webhooks.models import Delivery
from webhooks.payloads import LlamaCloudEvent, ParseCallback, parse_payload
from webhooks.verifiers import VerifiedCallback

# A replayed signature is valid for minutes only, see ``verifiers.WINDOW_SECONDS``.
DELIVERY_LIFETIME = timedelta(hours=24)
FINAL_EVENTS = frozenset({"parse.success", "parse.error", "parse.partial_success", "parse.cancelled"})


def accept_callback(verified: VerifiedCallback, body: bytes) -> str:
    """Return the code of the callback's effect, or of the effect that it had when it first came.

    Any error rolls back both effect and delivery: the same callback may come again and succeed.
    """
    callback = parse_payload(verified.payload)
    body_sha256 = hashlib.sha256(body).hexdigest()
    key = hashlib.sha256(f"{verified.scheme}:{verified.message_id}".encode()).hexdigest()
    with transaction.atomic():
        # Of several at once one inserts the delivery, and the others wait.
        delivery, is_first = Delivery.objects.get_or_create(
            key=key, defaults={"body_sha256": body_sha256, "expires_at": Now() + DELIVERY_LIFETIME}
        )
        if is_first:
            delivery.code = _apply(callback)
            delivery.save(update_fields=["code"])
        elif delivery.body_sha256 != body_sha256:
            raise ApiError(CALLBACK_CONTRADICTS, "A callback of this id has come with another content.")
    return delivery.code


def _apply(callback: LlamaCloudEvent | ParseCallback) -> str:
    """Store the content that came along, or wake the job, whose worker asks the vendor about its parse."""
    if isinstance(callback, LlamaCloudEvent):
        if callback.event_type not in FINAL_EVENTS:
            return "EVENT_IGNORED"
        return _wake(ParseRequest.objects.filter(vendor_job_id=callback.vendor_job_id).first())
    job = UploadJob.objects.filter(pk=callback.job_id, document_id=callback.document_id).first()
    if job is None:
        # The same error for a job that does not exist and for one of another document.
        raise ApiError(CALLBACK_UNKNOWN_JOB)
    telemetry.bind_job(job)
    if callback.content is None or job.pipeline == REPARSE:  # whose worker fetches the text, and keeps it apart
        return _wake(ParseRequest.objects.filter(pk=job.payload.get("parse_id")).first())
    return vendor_parses.store_callback(
        job=job,
        content=callback.content,
        parser_name=callback.parser_name,
        parser_version=callback.parser_version,
    )


def _wake(parse_request: ParseRequest | None) -> str:
    if parse_request is None:
        raise ApiError(CALLBACK_UNKNOWN_JOB)
    if job := services.newest_job(UploadJob.objects.filter(document_id=parse_request.document_id)):
        telemetry.bind_job(job)
    return "JOB_WOKEN" if vendor_parses.wake_poller(parse_request) else "ALREADY_ENDED"


def delete_expired_deliveries() -> None:
    """Delete the deliveries that no replay can match any more."""
    Delivery.objects.filter(expires_at__lt=Now()).delete()
