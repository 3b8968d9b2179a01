"""What a stage handler may answer: a closed set. Anything else raised is a bug and is retried as ``internal``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from accounts.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Advance:
    """The stage is done and wrote nothing of its own; ``fields`` go to the job row with the move."""

    code: str | None = None  # of the event, where another than the move's own says more
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
    """A failure that the stage itself has named. ``detail`` is safe to show: no tenant text, no paths, no secrets."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        self.code = code
        self.detail = detail or code.sentence
        super().__init__(f"{code}: {self.detail}")


class Retryable(StageFailure):
    """May go better next time: costs an attempt. ``retry_after`` is a floor, in seconds, for the pause."""

    def __init__(self, code: ErrorCode, detail: str = "", retry_after: float = 0.0) -> None:
        super().__init__(code, detail)
        self.retry_after = retry_after


class Permanent(StageFailure):
    """No later try can go better: the job goes to the dead letters at once."""


def undeclared(code: str) -> ErrorCode:
    """Take a code by its name where Django, and with it the declarations, cannot be imported: in sandboxed children."""
    return cast("ErrorCode", code)
