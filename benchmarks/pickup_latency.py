"""Pickup latency: milliseconds from a new job's commit to an idle worker's claim."""

import random
import time
from uuid import UUID, uuid4

from django.db import transaction

from benchmarks import noop_jobs
from jobs import services
from jobs.models import UploadJob

GAP = (0.03, 0.15)  # seconds between two jobs: the workers are idle again, and not in step with the enqueuer


def measure_latencies(samples: int) -> list[float]:
    """Enqueue jobs one by one at random moments, each a new user's; return what each waited, in milliseconds."""
    committed: dict[UUID, float] = {}
    for _ in range(samples):
        time.sleep(random.uniform(*GAP))
        job_id, at = _enqueued(uuid4())
        committed[job_id] = at
    return [1000 * (claimed - committed[job_id]) for job_id, claimed in _claimed(committed).items()]


def _enqueued(user_id: UUID) -> tuple[UUID, float]:
    """Enqueue a job; return it with the moment between its commit and its notification."""
    at: list[float] = []
    document = noop_jobs.create_document(user_id)
    with transaction.atomic():
        transaction.on_commit(lambda: at.append(time.time()))
        job = services.enqueue(
            pipeline="noop", user_id=user_id, document_id=document.pk, raw_path="x", chunks_version="x"
        )
    return job.pk, at[0]


def _claimed(committed: dict[UUID, float]) -> dict[UUID, float]:
    claims: dict[UUID, float] = {}
    while len(claims) < len(committed):
        rows = UploadJob.objects.filter(pk__in=committed, state="done").values_list("job_id", "claimed_at")
        claims = {job_id: claimed_at.timestamp() for job_id, claimed_at in rows if claimed_at}
        time.sleep(0.1)
    return claims
