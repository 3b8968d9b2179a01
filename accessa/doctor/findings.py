"""Findings of doctor's checks: their levels, messages and remedies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from django.core.checks import CheckMessage, Error


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence and its remedy. A check passes without findings, or with OK ones alone."""

    level: Level
    message: str
    remedy: str = ""


def error(message: str, remedy: str) -> Finding:
    return Finding(Level.ERROR, message, remedy)


def warning(message: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, message, remedy)


def note(message: str) -> Finding:
    return Finding(Level.OK, message)


def skipped(reason: str) -> Finding:
    return Finding(Level.SKIPPED, reason)


def system_check_findings(messages: Iterable[CheckMessage]) -> Iterator[Finding]:
    for message in messages:
        if not message.is_silenced():
            make = error if isinstance(message, Error) or message.is_serious() else warning
            yield make(f"{message.msg} ({message.id})", str(message.hint or ""))
