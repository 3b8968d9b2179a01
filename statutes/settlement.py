"""What becomes of a message whose job has ended (spec 004 §5.1)."""

from __future__ import annotations

from typing import Literal

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from jobs.models import UploadJob
from jobs.states import CANCELLED_CODES, State
from statutes.models import Law, LawVersion
from statutes.s3 import artifacts
from statutes.sqs import client
from statutes.sqs.messages import Message

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
Outcome = Literal["delete", "reappear"]
AGAIN_SECONDS, LATEST_SECONDS = 60, 900  # after which the rest of a law is asked for: the model may be mended by then
REST_REQUESTED = "rest_asked"  # in a job's payload: what it has left out was asked for


def settle_message(message: Message, job: UploadJob) -> Outcome:
    """Return what is to be done with the message, once everything else that its job's end asks for is done.

    A law that is there in part asks for the rest by a message of its own. A fatal failure is archived beside its raw
    file. A transient one that outlasted the job's retries is left to the queue, whose redrive policy counts. Raises
    ``OSError`` of the bucket, and as ``vendors.guard``: settled again, the same is done.
    """
    version = LawVersion.objects.filter(pk=job.document_id).defer("canonical").first()
    if version is None:
        return "delete"
    if job.state == State.DONE:
        if version.status == Law.Status.PARTIAL_FAILED:
            _ask_for_the_rest(message, version, job)
        return "delete"
    code = failure_details(job)["code"]
    if job.state != State.DEADLETTER:
        return "reappear"
    if code in CANCELLED_CODES:  # support has ended it
        return "delete"
    _note(version, code)
    if not is_fatal(job):
        return "reappear"
    artifacts.archive_failure(version, failure_details(job))
    return "delete"


def failure_details(job: UploadJob) -> dict[str, str]:
    """Return what the archive's record says of a dead job."""
    error = job.last_error or {}
    return {
        "code": str(error.get("code", "internal")),
        "detail": str(error.get("detail", "")),
        "stage": str(job.stage),
    }


def is_fatal(job: UploadJob) -> bool:
    """Tell a dead letter that no later try makes any better from one that has used up its tries, or its workers."""
    return (job.last_error or {}).get("permanent") is True


def _note(version: LawVersion, code: str) -> None:
    """Write the failure down; of a law that is found, only its version fails."""
    LawVersion.objects.filter(pk=version.pk).update(status=Law.Status.FAILED, error_code=code, updated_at=Now())
    Law.objects.filter(pk=version.law_id, document_id=None, version=version.version).update(
        status=Law.Status.FAILED, updated_at=Now()
    )


def _ask_for_the_rest(message: Message, version: LawVersion, job: UploadJob) -> None:
    """Send a message for what is missing, a few times at most: a text may be refused for ever. Once for each job."""
    row = LawVersion.objects.filter(pk=version.pk)
    with transaction.atomic():
        if _is_asked(job):
            return
        is_due = row.filter(reprocessed__lt=settings.STATUTES_REPROCESS_MOST).update(reprocessed=F("reprocessed") + 1)
        if is_due:
            _note_asked(job, asked=True)
    if not is_due:
        log.warning("A law stays incomplete.", code="LAW_INCOMPLETE", law=version.law_id, refused=len(version.refused))
        return
    pause = min(LATEST_SECONDS, AGAIN_SECONDS * 2**version.reprocessed)
    try:
        client.send_message({**message.as_json(), "force_reprocess": True, "rest": True}, delay=pause)
    except BaseException:
        with transaction.atomic():
            _is_asked(job)
            row.update(reprocessed=F("reprocessed") - 1)  # counted before: a crash must not send without end
            _note_asked(job, asked=False)
        raise


def _is_asked(job: UploadJob) -> bool:
    """Tell whether another message of the job has asked, or it is gone; locks the job until the transaction ends."""
    row = UploadJob.objects.select_for_update(no_key=True).filter(pk=job.pk).values_list("payload", flat=True).first()
    return row is None or bool(row.get(REST_REQUESTED))


def _note_asked(job: UploadJob, *, asked: bool) -> None:
    UploadJob.objects.filter(pk=job.pk).update(payload={**job.payload, REST_REQUESTED: asked})
