"""Jobs of messages: started in order of urgency, they settle their messages when they have ended."""

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from documents import services
from jobs import failpoints, infrastructure_errors, safe_errors, telemetry, worker
from jobs.choices import ACTIVE, CANCELLED_CODES, Stage, State
from jobs.error_codes import STORAGE_UNAVAILABLE
from jobs.models import UploadJob
from jobs.outcomes import Retryable, Wait
from jobs.pipeline import get_pipeline
from statutes import intake
from statutes.consumer.in_flight_messages import InFlightMessage, InFlightMessages
from statutes.consumer.status_reporter import FINALIZE, Status
from statutes.failed_versions import archive_failure, failure_details, is_fatal
from statutes.intake import IntakeStatus
from statutes.models import Consumer, Law, LawVersion
from statutes.sqs import client
from statutes.sqs.message_bodies import Item
from statutes.sqs.message_schema import Message
from statutes.sqs.s3_events import UploadNotification

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
Outcome = Literal["delete", "reappear"]
MIN_DELAY, MAX_DELAY = 60, 900  # seconds until missing passages are requested: the model may be repaired by then
# In a job's payload: the id of the message that started it; its missing passages were requested.
BEGUN_BY, REST_REQUESTED = "message", "rest_asked"


class MessageJobs:
    """The jobs of the messages in flight. ``most_receives``: by queue, see ``dead_letters.max_receive_count``."""

    def __init__(self, in_flight: InFlightMessages, status: Status, most_receives: Mapping[str, int | None]) -> None:
        self._in_flight = in_flight
        self._status = status
        self._most_receives = most_receives

    def dispatch(self, *, one: bool) -> bool:
        """Start waiting messages' jobs by urgency (``one``: while no job is active); return whether one was started."""
        is_started = False
        while waiting := sorted((held for held in self._in_flight if held.items), key=lambda held: held.urgency):
            # A job that waits for its time does not block others.
            active = UploadJob.objects.filter(pk__in=self._job_ids(), state__in=ACTIVE, run_after=None)
            if one and active.exists():
                break
            held = waiting[0]
            item = held.items[0]
            with telemetry.isolated_log_context(**_log_fields(held, item)):
                try:
                    is_started |= self._start(held, item)
                except Exception as error:
                    self._reappear(held, error)
                    continue
                held.items.remove(item)
                self._finish(held)
        return is_started

    def _start(self, held: InFlightMessage, item: Item) -> bool:
        if isinstance(item, UploadNotification):
            is_expected = services.upload_arrived(user_id=item.user_id, document_id=item.document_id)
            log.info("An upload has arrived." if is_expected else "No document waits for this upload.")
            return is_expected
        message_id = held.received.message_id
        accepted = intake.accept_message(item, on_job=lambda _, job: record_message(job, message_id))
        job_id, outcome = accepted.job_id, accepted.status.value
        if job_id is None or accepted.status not in (IntakeStatus.ACCEPTED, IntakeStatus.IN_PROGRESS):
            log.info("A message asks for nothing new.", outcome=outcome)
            return False
        if accepted.status == IntakeStatus.IN_PROGRESS and (
            job_id in self._job_ids() or belongs_to_another(job_id, item, message_id)
        ):  # left for later: the other consumer may not finish it (spec 004 §4.1)
            log.info("A message's job is in progress elsewhere.", outcome=outcome)
            held.reappears = True
            held.pause = max(held.pause, self._pause(held, job_id))
            return False
        log.info("A message's job was started.", outcome=outcome, job=str(job_id))
        held.jobs[job_id] = item
        return True

    def _job_ids(self) -> list[UUID]:
        return [job_id for held in self._in_flight for job_id in held.jobs]

    def _pause(self, held: InFlightMessage, job_id: UUID) -> float:
        """Return how long to hide a message whose job another consumer has: to its end, before the last receive."""
        most = self._most_receives.get(held.received.queue_url)
        soon = float(settings.SQS_VISIBILITY_SECONDS)
        return soon if most is None or held.received.receives < most - 1 else max(soon, time_left(job_id))

    def settle_ended(self) -> None:
        """Delete or release messages whose jobs have ended. Raises as ``dispatch``, and as ``vendors.calls``."""
        for held in self._in_flight:
            jobs = UploadJob.objects.in_bulk(list(held.jobs))
            for job_id, message in list(held.jobs.items()):
                job = jobs.get(job_id)
                if job is None:  # deleted with its document; the message goes too if that was on purpose
                    held.reappears |= not intake.is_superseded_or_withdrawn(message)
                    del held.jobs[job_id]
                elif job.state in (State.DONE, State.DEADLETTER):
                    self._settle(held, message, job)
            self._finish(held)

    def _settle(self, held: InFlightMessage, message: Message, job: UploadJob) -> None:
        self._status.transition(Consumer.State.PROCESSING, job_id=job.pk, stage=FINALIZE)
        with telemetry.isolated_log_context(**_log_fields(held, message), job=str(job.pk)):
            failpoints.failpoint("statute:ended")
            try:
                outcome = settle_message(message, job)
            except Exception as error:
                self._reappear(held, error)
                return
            failpoints.failpoint("statute:settled")
            log.info("A message's job has ended.", outcome=outcome, state=str(job.state), stage=str(job.stage))
            held.reappears |= outcome == "reappear"
            held.has_failed |= job.state != State.DONE
            held.jobs.pop(job.pk, None)

    def _finish(self, held: InFlightMessage) -> None:
        if held.items or held.jobs:
            return
        if not held.reappears:
            try:
                client.delete_message(held.received)
            except client.MessageLost:  # another consumer has it, and will find it done
                log.info("A message could not be deleted: another consumer holds it.", code="SQS_MESSAGE_LOST")
            failpoints.failpoint("statute:deleted")
        self._status.failed += held.has_failed
        self._status.ended += not (held.has_failed or held.reappears)
        if held.reappears and held.pause:
            self._in_flight.release(held, after=held.pause)
        else:
            self._in_flight.drop(held)

    def _reappear(self, held: InFlightMessage, error: Exception) -> None:
        """Leave a message for a later delivery; raise errors that concern all messages, and have to be waited for."""
        if isinstance(error, (Wait, Retryable)) or infrastructure_errors.is_database_unavailable(error):
            raise error
        wait = infrastructure_errors.infrastructure_wait(error)
        if isinstance(error, OSError) or wait:  # no longer than the consumer's own backoff
            raise Wait(0.0, wait.reason if wait else STORAGE_UNAVAILABLE) from error
        log.error("A message's processing failed.", exception=safe_errors.safe_traceback(error), reported=True)
        telemetry.report_error(error)
        self._status.failed += 1
        self._in_flight.drop(held)

    def report(self) -> None:
        job_ids = self._job_ids()
        if not job_ids:
            self._status.transition(Consumer.State.IDLE)
            return
        stage = UploadJob.objects.filter(pk=job_ids[0]).values_list("stage", flat=True).first()
        self._status.transition(Consumer.State.PROCESSING, job_id=job_ids[0], stage=str(stage or ""))


def _log_fields(held: InFlightMessage, item: Item) -> dict[str, str]:
    """Return the fields of each log line about a message: ids and our own words only."""
    fields = {"message": held.received.message_id, "receives": str(held.received.receives)}
    if isinstance(item, UploadNotification):
        return fields | {"document": str(item.document_id)}
    return fields | {"law": item.law_id, "version": item.version, "priority": item.priority}


def record_message(job: UploadJob, message_id: str) -> None:
    UploadJob.objects.filter(pk=job.pk).update(payload={**job.payload, BEGUN_BY: message_id})


def belongs_to_another(job_id: UUID, message: Message, message_id: str) -> bool:
    """Tell whether a message should not wait for the end of an active job.

    The message that has started a job waits for it, whichever worker has it. Any other waits for a job that no worker
    holds; one that forces reprocessing only where the job has still to fetch the file that it names.
    """
    job = UploadJob.objects.filter(pk=job_id).first()
    if job is not None and job.payload.get(BEGUN_BY) == message_id:
        return False
    held = UploadJob.objects.filter(pk=job_id, state=State.WORKING).exclude(claimed_by=worker.worker_name())
    # An expired lease does not count: a job whose worker is gone may be claimed.
    if job is None or held.extra(where=["lease_until > clock_timestamp()"]).exists():
        return True
    if not message.force_reprocess:
        return False
    same_file = LawVersion.objects.filter(pk=job.document_id, bucket=message.bucket, raw_key=message.raw_key)
    return job.stage != Stage.QUEUED or job.state == State.WORKING or not same_file.exists()


def time_left(job_id: UUID) -> float:
    """Return how many seconds a job may take until its end: its wait, and the time limits of its stages."""
    job = UploadJob.objects.filter(pk=job_id).first()
    if job is None:
        return 0.0
    pipeline = get_pipeline(job.pipeline)
    steps = pipeline.steps[len(pipeline.steps_through(job.stage)) - 1 :]
    wait = (job.run_after - timezone.now()).total_seconds() if job.run_after else 0.0
    return max(0.0, wait) + sum(step.time_limit for step in steps)


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
    archive_failure(version, details)
    return "delete"


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
        log.warning("A statute is incomplete.", code="LAW_INCOMPLETE", law=version.law_id, refused=len(version.refused))
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
    # Another message of the job has sent the request, or the job is gone.
    row = UploadJob.objects.select_for_update(no_key=True).filter(pk=job.pk).values_list("payload", flat=True).first()
    return row is None or bool(row.get(REST_REQUESTED))
