"""Which request and which job a line of the log is about: bound once, carried by every line until it is let go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars, get_contextvars

from jobs.models import UploadJob


def job_fields(job: UploadJob) -> dict[str, str]:
    """Return what every line about ``job`` says. Ids and words of ours only."""
    return {
        "correlation": str(job.correlation_id),
        "job": str(job.job_id),
        "document": str(job.document_id),
        "user": str(job.user_id),
        "pipeline": job.pipeline,
    }


@contextmanager
def job_log_context(job: UploadJob, **more: str) -> Iterator[None]:
    """Say in every line of the block, and of this thread only, which job it is about and where it stands."""
    with bound_contextvars(**job_fields(job), stage=str(job.stage), attempt=job.attempts, **more):
        yield


@contextmanager
def isolated_log_context(**said: str) -> Iterator[None]:
    """Begin with nothing but ``said``, and keep what the block turns to from what follows it in this thread."""
    before = get_contextvars()
    clear_contextvars()
    bind_contextvars(**said)
    try:
        yield
    finally:
        clear_contextvars()
        bind_contextvars(**before)


def update_stage(job: UploadJob) -> None:
    """Say where the job stands by now, inside ``about``'s block."""
    bind_contextvars(stage=str(job.stage), attempt=job.attempts)


def bind_job(job: UploadJob) -> None:
    """Say that the rest of the present request is about ``job``. The request's own id stays beside the job's."""
    bind_contextvars(**job_fields(job))


def bind_document(document_id: UUID) -> None:
    """Say that the rest of the present request is about the newest job of a document, if it has one."""
    job = UploadJob.objects.filter(document_id=document_id).order_by("-created_at", "-job_id").first()
    if job is not None:
        bind_job(job)


def correlation_id() -> UUID:
    """Return the id of the present request or job, or a new one where there is neither."""
    found = get_contextvars().get("correlation")
    return UUID(found) if found else uuid4()


def new_call_id() -> str:
    """Return a name for one call of a vendor: unique, as vendors ask, and beginning with the present correlation."""
    return f"{correlation_id()}/{uuid4().hex[:12]}"
