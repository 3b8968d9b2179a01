"""Settlement of a message whose job has ended: delete it, or let it reappear (spec 004 §5.1)."""

from typing import Literal

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from jobs.choices import CANCELLED_CODES, State
from jobs.models import UploadJob
from statutes.models import Law, LawVersion
from statutes.s3 import artifacts
from statutes.sqs import client
from statutes.sqs.messages import Message

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
Outcome = Literal["delete", "reappear"]
MIN_DELAY, MAX_DELAY = 60, 900  # seconds until missing passages are requested: the model may be repaired by then
REST_REQUESTED = "rest_asked"  # in a job's payload: its missing passages were requested


def settle_message(message: Message, job: UploadJob) -> Outcome:
    """Record the end of a job and return what to do with its message. Safe to repeat.

    A partially embedded version requests its missing passages by a message of its own. A fatal failure is archived
    beside its raw file. A transient one that has exhausted the job's retries is left to the queue's redrive policy.
    Raises ``OSError`` of the bucket, and as ``vendors.calls``.
    """
    version = LawVersion.objects.filter(pk=job.document_id).defer("canonical").first()
    if version is None:
        return "delete"
    if job.state == State.DONE:
        if version.status == Law.Status.PARTIAL_FAILED:
            _request_missing_passages(message, version, job)
        return "delete"
    if job.state != State.DEADLETTER:
        return "reappear"
    details = failure_details(job)
    if details["code"] in CANCELLED_CODES:  # support has ended it
        return "delete"
    LawVersion.objects.filter(pk=version.pk).update(
        status=Law.Status.FAILED, error_code=details["code"], updated_at=Now()
    )
    # Of a law with a live version, only the failed version's row says so.
    Law.objects.filter(pk=version.law_id, document_id=None, version=version.version).update(
        status=Law.Status.FAILED, updated_at=Now()
    )
    if not is_fatal(job):
        return "reappear"
    artifacts.archive_failure(version, details)
    return "delete"


def failure_details(job: UploadJob) -> dict[str, str]:
    """Return the code, detail and stage of a dead job, as its archived record has them."""
    error = job.last_error or {}
    return {"code": str(error.get("code", "internal")), "detail": str(error.get("detail", "")), "stage": str(job.stage)}


def is_fatal(job: UploadJob) -> bool:
    """Tell a permanent failure from one that has exhausted its retries."""
    return (job.last_error or {}).get("permanent") is True


def _request_missing_passages(message: Message, version: LawVersion, job: UploadJob) -> None:
    """Send a message for the missing passages, once per job, STATUTES_REPROCESS_MOST times: a text may always fail."""
    row = LawVersion.objects.filter(pk=version.pk)
    with transaction.atomic():
        if _is_requested(job):
            return
        is_due = row.filter(reprocessed__lt=settings.STATUTES_REPROCESS_MOST).update(reprocessed=F("reprocessed") + 1)
        if is_due:
            UploadJob.objects.filter(pk=job.pk).update(payload={**job.payload, REST_REQUESTED: True})
    if not is_due:
        log.warning("A law stays incomplete.", code="LAW_INCOMPLETE", law=version.law_id, refused=len(version.refused))
        return
    delay = min(MAX_DELAY, MIN_DELAY * 2**version.reprocessed)
    try:
        client.send_message({**message.as_json(), "force_reprocess": True, "rest": True}, delay=delay)
    except BaseException:
        with transaction.atomic():
            _is_requested(job)
            row.update(reprocessed=F("reprocessed") - 1)  # counted before: a crash must not send without end
            UploadJob.objects.filter(pk=job.pk).update(payload={**job.payload, REST_REQUESTED: False})
        raise


def _is_requested(job: UploadJob) -> bool:
    """Tell whether another message of the job has sent the request, or the job is gone; locks the job's row."""
    row = UploadJob.objects.select_for_update(no_key=True).filter(pk=job.pk).values_list("payload", flat=True).first()
    return row is None or bool(row.get(REST_REQUESTED))
