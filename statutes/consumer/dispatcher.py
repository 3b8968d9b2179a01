"""The work that messages ask for: begun in the order of its urgency, and settled when its job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import structlog
from django.conf import settings

from documents import services
from jobs import errors, failpoints, log_context, tracing
from jobs.error_codes import STORAGE_UNAVAILABLE
from jobs.models import UploadJob
from jobs.outcomes import Retryable, Wait
from jobs.states import ACTIVE
from jobs.states import State as JobState
from statutes import intake, settlement
from statutes.consumer import ownership
from statutes.consumer.in_flight import InFlightMessage, InFlightMessages
from statutes.consumer.status import FINALIZE, Status
from statutes.intake import IntakeStatus
from statutes.models import Consumer
from statutes.sqs import client
from statutes.sqs.client import ReceivedMessage
from statutes.sqs.envelope import Item
from statutes.sqs.messages import Message, UploadNotification

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
State = Consumer.State
ENDED = (JobState.DONE, JobState.DEADLETTER)
NOTHING_NEW = (IntakeStatus.DUPLICATE, IntakeStatus.OUTDATED, IntakeStatus.WITHDRAWN)


class Dispatcher:
    """What of the held messages is under way. ``most_receives``: see ``redrive``, by queue."""

    def __init__(self, in_flight: InFlightMessages, status: Status, most_receives: Mapping[str, int | None]) -> None:
        self._in_flight = in_flight
        self._status = status
        self._most_receives = most_receives

    def dispatch(self, *, one: bool) -> bool:
        """Begin what is held and not begun, the most urgent first; with ``one``, only while no job is under way.

        Tells whether there is work now. Raises what the database raises when it is away, and ``Wait``.
        """
        begun = False
        while waiting := sorted((held for held in self._in_flight if held.items), key=lambda held: held.urgency):
            if one and self._is_busy():
                break
            begun |= self._begin(waiting[0])
        return begun

    def _begin(self, held: InFlightMessage) -> bool:
        """Begin the first thing that a message asks for; what needs no work is done with."""
        item = held.items[0]
        with log_context.isolated_log_context(**_said(held, item)):
            try:
                is_begun = self._asked(held, item)
            except Exception as error:
                self._reappear(held, error)
                return False
            held.items.remove(item)
            self._finish(held)
        return is_begun

    def _asked(self, held: InFlightMessage, item: Item) -> bool:
        if isinstance(item, UploadNotification):
            is_awaited = services.upload_arrived(user_id=item.user_id, document_id=item.document_id)
            log.info("An upload has arrived." if is_awaited else "Nobody waits for what has arrived.")
            return is_awaited
        by = held.received.message_id
        accepted = intake.accept_message(item, on_job=lambda _, begun: ownership.record_message(begun, by))
        job_id = accepted.job_id
        if accepted.status in NOTHING_NEW or job_id is None:
            log.info("A message asks for nothing new.", outcome=accepted.status.value)
            return False
        if accepted.status == IntakeStatus.IN_PROGRESS and (
            self._is_ours(job_id) or ownership.belongs_to_another(job_id, item, by)
        ):
            self._skip(held, job_id)
            return False
        log.info("A message is worked on.", outcome=accepted.status.value, job=str(job_id))
        held.jobs[job_id] = item
        return True

    def _is_busy(self) -> bool:
        """Tell whether a job of ours is worked on or due. One that waits for its time keeps nobody."""
        ours = UploadJob.objects.filter(pk__in=self._jobs(), state__in=ACTIVE, run_after=None)
        return ours.exists()

    def _jobs(self) -> list[UUID]:
        return [job_id for held in self._in_flight for job_id in held.jobs]

    def _is_ours(self, job_id: UUID) -> bool:
        return job_id in self._jobs()

    def _skip(self, held: InFlightMessage, job_id: UUID) -> None:
        """Leave a message for later: another has its work, and may not bring it to an end (spec 004 §4.1)."""
        log.info("A message's work is in progress elsewhere.", outcome=IntakeStatus.IN_PROGRESS.value)
        held.reappears = True
        held.pause = max(held.pause, self._pause(held.received, job_id))

    def _pause(self, received: ReceivedMessage, job_id: UUID) -> float:
        """Return for how long to leave a message.

        The receipt after the next may be its last: by then the job is to have ended, or the message that waits for
        it becomes a dead letter.
        """
        most = self._most_receives.get(received.queue_url)
        soon = float(settings.SQS_VISIBILITY_SECONDS)
        return soon if most is None or received.receives < most - 1 else max(soon, ownership.time_left(job_id))

    def settle_ended(self) -> None:
        """End what has ended: delete the message, or let it reappear. Raises as ``begin``, and as ``vendors.guard``."""
        for held in self._in_flight:
            found = UploadJob.objects.in_bulk(list(held.jobs))
            for job_id, message in list(held.jobs.items()):
                job = found.get(job_id)
                if job is None:  # deleted with its document, and the message with it if that was meant
                    held.reappears |= not intake.is_superseded_or_withdrawn(message)
                    del held.jobs[job_id]
                elif job.state in ENDED:
                    self._settle(held, message, job)
            self._finish(held)

    def _settle(self, held: InFlightMessage, message: Message, job: UploadJob) -> None:
        self._status.transition(State.PROCESSING, job_id=job.pk, stage=FINALIZE)
        with log_context.isolated_log_context(**_said(held, message), job=str(job.pk)):
            failpoints.failpoint("statute:ended")
            try:
                outcome = settlement.settle_message(message, job)
            except Exception as error:
                self._reappear(held, error)
                return
            failpoints.failpoint("statute:settled")
            log.info("A message's work has ended.", outcome=outcome, state=str(job.state), stage=str(job.stage))
            held.reappears |= outcome == "reappear"
            held.has_failed |= job.state != JobState.DONE
            held.jobs.pop(job.pk, None)

    def _finish(self, held: InFlightMessage) -> None:
        """Let go of a message when all that it asks for is done."""
        if not held.is_over:
            return
        if not held.reappears:
            try:
                client.delete_message(held.received)
            except client.MessageLost:  # another has it, and will find it done
                log.info("A message could not be deleted: it is held by another.", code="SQS_MESSAGE_LOST")
            failpoints.failpoint("statute:deleted")
        self._status.failed += held.has_failed
        self._status.ended += not (held.has_failed or held.reappears)
        if held.reappears and held.pause:
            self._in_flight.release(held, after=held.pause)
        else:
            self._in_flight.drop(held)

    def _reappear(self, held: InFlightMessage, error: Exception) -> None:
        """Let go of a message for a later delivery; raise what is to be waited for, since all would fail alike."""
        if isinstance(error, (Wait, Retryable)) or errors.is_database_unavailable(error):
            raise error
        if isinstance(error, OSError) or errors.infrastructure_wait(error):
            raise _postponed(error) from error
        log.error("A message's work broke off.", exception=errors.safe_traceback(error), reported=True)
        tracing.report_error(error)
        self._status.failed += 1
        self._in_flight.drop(held)

    def report(self) -> None:
        """Say what is worked on, and how far that is."""
        jobs = self._jobs()
        if not jobs:
            self._status.transition(State.IDLE)
            return
        stage = UploadJob.objects.filter(pk=jobs[0]).values_list("stage", flat=True).first()
        self._status.transition(State.PROCESSING, job_id=jobs[0], stage=str(stage or ""))


def _postponed(error: Exception) -> Wait:
    """Return the wait for what is no message's fault, no longer than the consumer's own backoff."""
    wait = errors.infrastructure_wait(error)
    return Wait(0.0, wait.reason if wait else STORAGE_UNAVAILABLE)


def _said(held: InFlightMessage, item: Item) -> dict[str, str]:
    """Return what every line about a message says. Ids and words of ours only."""
    said = {"message": held.received.message_id, "receives": str(held.received.receives)}
    if isinstance(item, UploadNotification):
        return said | {"document": str(item.document_id)}
    return said | {"law": item.law_id, "version": item.version, "priority": item.priority}
