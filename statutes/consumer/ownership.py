"""Whether the work that a message asks for is another's, and for how long that may take."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from jobs import pipeline as plan
from jobs import worker
from jobs.models import UploadJob
from jobs.states import Stage, State
from statutes.models import LawVersion
from statutes.sqs.messages import Message

BEGUN_BY = "message"  # in a job's payload: the id of the message that has begun it


def record_message(job: UploadJob, message_id: str) -> None:
    """Note which message begins a job, in the transaction that does it."""
    UploadJob.objects.filter(pk=job.pk).update(payload={**job.payload, BEGUN_BY: message_id})


def belongs_to_another(job_id: UUID, message: Message, message_id: str) -> bool:
    """Tell whether the end of a job that is under way is not the one that a message waits for.

    The message that has begun a job waits for it, whoever works on it. Any other waits for what nobody works on; one
    that asks for the work anew only where the file that it names is still to be fetched.
    """
    job = UploadJob.objects.filter(pk=job_id).first()
    if job is not None and job.payload.get(BEGUN_BY) == message_id:
        return False
    if job is None or is_worked_on(job_id):
        return True
    return message.force_reprocess and not _will_fetch(job, message)


def _will_fetch(job: UploadJob, message: Message) -> bool:
    if job.stage != Stage.QUEUED or job.state == State.WORKING:
        return False
    return LawVersion.objects.filter(pk=job.document_id, bucket=message.bucket, raw_key=message.raw_key).exists()


def is_worked_on(job_id: UUID) -> bool:
    """Tell whether another worker holds the job by a lease in force: one whose worker is gone may be taken over."""
    held = UploadJob.objects.filter(pk=job_id, state=State.WORKING).exclude(claimed_by=worker.worker_name())
    return held.extra(where=["lease_until > clock_timestamp()"]).exists()


def time_left(job_id: UUID) -> float:
    """Return for how many seconds a job's plan lets it take until its end, after what it waits for now."""
    job = UploadJob.objects.filter(pk=job_id).first()
    if job is None:
        return 0.0
    pipeline = plan.get_pipeline(job.pipeline)
    left = pipeline.steps[len(pipeline.steps_through(job.stage)) - 1 :]
    waits = (job.run_after - timezone.now()).total_seconds() if job.run_after else 0.0
    return max(0.0, waits) + sum(step.time_limit for step in left)
