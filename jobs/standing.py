"""How far a job is, and why it is not moving."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings

from jobs.models import UploadJob
from jobs.states import Stage, State

STANDINGS = ("queued", "waiting", "starved", "working", "retrying", "dead", "done")


def stage_pct(job: UploadJob) -> float:
    """Return the share of the present stage that is done, in percent; only embedding is counted within its stage."""
    if job.state == State.DONE:
        return 100.0
    total = job.progress.get("embeds_total") or 0
    if job.stage == Stage.EMBEDDING and total:
        return round(100.0 * int(job.progress.get("embeds_done", 0)) / int(total), 1)
    return 0.0


def total_pct(job: UploadJob) -> float:
    """Return the share of the whole that is done, in percent. Kept in the row as a high-water mark: it never falls."""
    return round(job.total_pct, 1)


def standing(job: UploadJob, *, running: int) -> str:
    """Tell the kinds of not moving apart: queued, waiting, starved, working, retrying, dead, done.

    ``running`` is how many of the user's own jobs are being worked on.
    """
    match job.state:
        case State.DEADLETTER:
            return "dead"
        case State.RETRYABLE:
            return "retrying"
        case State.QUEUED if job.run_after is not None:
            return "waiting"
        case State.QUEUED:
            return "starved" if running >= settings.JOBS_ACTIVE_PER_USER else "queued"
    return str(job.state)


def running(user_id: UUID) -> int:
    """Return how many of the user's own jobs are being worked on: a campaign's gives its slot back."""
    return UploadJob.objects.filter(user_id=user_id, state=State.WORKING, campaign_id=None).count()
