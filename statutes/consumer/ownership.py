"""Ownership of jobs by messages: whether another consumer has a message's job, and how long that may take."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from jobs import pipeline as plan
from jobs import worker
from jobs.models import UploadJob
from jobs.states import Stage, State
from statutes.models import LawVersion
from statutes.sqs.messages import Message

BEGUN_BY = "message"  # in a job's payload: the id of the message that started it


def record_message(job: UploadJob, message_id: str) -> None:
    """Record which message starts a job, in the transaction that starts it."""
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
    pipeline = plan.get_pipeline(job.pipeline)
    steps = pipeline.steps[len(pipeline.steps_through(job.stage)) - 1 :]
    wait = (job.run_after - timezone.now()).total_seconds() if job.run_after else 0.0
    return max(0.0, wait) + sum(step.time_limit for step in steps)
