"""Telemetry: the context of log lines (request, job, vendor call), spans, and reports of bugs to the tracers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars, get_contextvars

if TYPE_CHECKING:  # this module is loaded before the models
    from jobs.models import UploadJob


def job_fields(job: UploadJob) -> dict[str, str]:
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


def bind_job(job: UploadJob) -> None:
    """Add ``job`` to the rest of the current request. The request's own id stays."""
    bind_contextvars(**job_fields(job))


def correlation_id() -> UUID:
    """Return the id of the current request or job, or a new one where there is neither."""
    current = get_contextvars().get("correlation")
    return UUID(current) if current else uuid4()


def new_call_id() -> str:
    """Return an id for one vendor call: unique, as vendors require, and beginning with the current correlation id."""
    return f"{correlation_id()}/{uuid4().hex[:12]}"


class SetAttributes(Protocol):
    """Sets attributes that are known only at the end of a span: codes and numbers, never text."""

    def __call__(self, **attributes: str | int | float) -> None: ...


class Tracer(Protocol):
    def span(
        self, name: str, attributes: dict[str, str | int | float], parent: str
    ) -> AbstractContextManager[SetAttributes] | None: ...

    def report_error(self, error: BaseException) -> None: ...

    def start(self) -> None: ...


_NO_SPAN: AbstractContextManager[SetAttributes] = nullcontext(lambda **attributes: None)
_tracers: list[Tracer] = []


def add_tracer(tracer: Tracer) -> Callable[[], None]:
    """Register a tracer for this process and its forks; return the function that removes it."""
    _tracers.append(tracer)
    return lambda: _tracers.remove(tracer)


def start_tracers() -> None:
    """Start the tracers' threads and connections. Call in each process, after its fork."""
    for tracer in _tracers:
        tracer.start()


def span(name: str, *, parent: str = "", **attributes: str | int | float) -> AbstractContextManager[SetAttributes]:
    """Open a span within this thread's current span, or within the W3C ``traceparent`` in ``parent``."""
    for tracer in _tracers:
        opened = tracer.span(name, attributes, parent)
        if opened is not None:
            return opened
    return _NO_SPAN


def report_error(error: BaseException) -> None:
    """Report a bug that was caught and is retried or answered."""
    for tracer in _tracers:
        tracer.report_error(error)
