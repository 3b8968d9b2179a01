"""Tracing and error reporting: the registry of tracers, spans, and reports of bugs. Costs nothing without a tracer."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


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


def is_enabled() -> bool:
    return bool(_tracers)


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
