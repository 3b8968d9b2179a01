"""Where a tracer and a collector of errors listen in, when the project has any. Without them this costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class SetAttributes(Protocol):
    """Takes what is known only when the work is done: codes and numbers, never text."""

    def __call__(self, **attributes: str | int | float) -> None: ...


class Tracer(Protocol):
    def span(
        self, name: str, attributes: dict[str, str | int | float], parent: str
    ) -> AbstractContextManager[SetAttributes] | None: ...

    def report_error(self, error: BaseException) -> None: ...

    def start(self) -> None: ...


def _silent(**attributes: str | int | float) -> None:
    return None


_NOTHING: AbstractContextManager[SetAttributes] = nullcontext(_silent)
_listening: list[Tracer] = []


def add_tracer(tracer: Tracer) -> Callable[[], None]:
    """Let ``tracer`` hear all that follows in this process and its forks; return what ends that."""
    _listening.append(tracer)
    return lambda: _listening.remove(tracer)


def is_enabled() -> bool:
    """Tell whether anybody listens: what is only for them need not be put together."""
    return bool(_listening)


def start_tracers() -> None:
    """Start what has threads or connections of its own. Call in each process, after its fork."""
    for tracer in _listening:
        tracer.start()


def span(name: str, *, parent: str = "", **attributes: str | int | float) -> AbstractContextManager[SetAttributes]:
    """Time a piece of work as part of what this thread is doing, or of the W3C ``traceparent`` given."""
    for tracer in _listening:
        opened = tracer.span(name, attributes, parent)
        if opened is not None:
            return opened
    return _NOTHING


def report_error(error: BaseException) -> None:
    """Tell of a bug that was caught, and is going to be retried or answered."""
    for tracer in _listening:
        tracer.report_error(error)
