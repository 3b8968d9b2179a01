"""Outcomes of a stage handler: a closed set. Any other exception is a bug and is retried as ``internal``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from accounts.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Advance:
    """The stage is done and wrote nothing of its own; ``fields`` go to the job row with the move."""

    code: str | None = None  # of the event, instead of the move's
    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moved:
    """The handler has moved the job itself, in the transaction of its one write; ``ended`` with it is its claim."""

    ended: bool = False


Outcome = Advance | Moved


class Wait(Exception):
    """Nothing to do for ``seconds``; costs no attempt. ``reason`` is stored and shown to the tenant."""

    def __init__(self, seconds: float, reason: ErrorCode) -> None:
        super().__init__(reason)
        self.seconds = seconds
        self.reason = reason


class StageFailure(Exception):
    """A failure that the stage names. ``detail`` is safe to show: no tenant text, no paths, no secrets."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        self.code = code
        self.detail = detail or code.sentence
        super().__init__(f"{code}: {self.detail}")


class Retryable(StageFailure):
    """The next attempt may succeed; costs an attempt. ``retry_after`` is the shortest pause in seconds."""

    def __init__(self, code: ErrorCode, detail: str = "", retry_after: float = 0.0) -> None:
        super().__init__(code, detail)
        self.retry_after = retry_after


class Permanent(StageFailure):
    """No later attempt can succeed: the job becomes a dead letter at once."""


RunOutcome = Outcome | Wait | Permanent | Retryable


def undeclared(code: str) -> ErrorCode:
    """Return a code by its name, for sandboxed children, which cannot import Django and the declarations."""
    return cast("ErrorCode", code)
