"""Context of log lines: the request and the job that a line is about, and the ids of vendor calls."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID, uuid4

from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars, get_contextvars

from jobs.models import UploadJob


def job_fields(job: UploadJob) -> dict[str, str]:
    """Return the fields of every line about ``job``: ids and names, no tenant text."""
    return {
        "correlation": str(job.correlation_id),
        "job": str(job.job_id),
        "document": str(job.document_id),
        "user": str(job.user_id),
        "pipeline": job.pipeline,
    }


def job_log_context(job: UploadJob, **fields: str) -> AbstractContextManager[object]:
    """Add the job, its stage and its attempt to every line of the block, in this thread only."""
    return bound_contextvars(**job_fields(job), stage=str(job.stage), attempt=job.attempts, **fields)


@contextmanager
def isolated_log_context(**fields: str) -> Iterator[None]:
    """Replace the context by ``fields`` for the block, and restore it afterwards."""
    before = get_contextvars()
    clear_contextvars()
    bind_contextvars(**fields)
    try:
        yield
    finally:
        clear_contextvars()
        bind_contextvars(**before)


def update_stage(job: UploadJob) -> None:
    """Update stage and attempt, inside the block of ``job_log_context``."""
    bind_contextvars(stage=str(job.stage), attempt=job.attempts)


def bind_job(job: UploadJob) -> None:
    """Add ``job`` to the rest of the current request. The request's own id stays."""
    bind_contextvars(**job_fields(job))


def bind_document(document_id: UUID) -> None:
    """Add the newest job of a document, if it has one, to the rest of the current request."""
    job = UploadJob.objects.filter(document_id=document_id).order_by("-created_at", "-job_id").first()
    if job is not None:
        bind_job(job)


def correlation_id() -> UUID:
    """Return the id of the current request or job, or a new one where there is neither."""
    current = get_contextvars().get("correlation")
    return UUID(current) if current else uuid4()


def new_call_id() -> str:
    """Return an id for one vendor call: unique, as vendors require, and beginning with the current correlation id."""
    return f"{correlation_id()}/{uuid4().hex[:12]}"
