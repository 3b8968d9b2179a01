"""Findings of doctor's checks, and the description of a check."""

from collections.abc import Callable, Iterable, Iterator
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


@dataclass(frozen=True, slots=True)
class Check:
    """``passed`` is printed when there is no finding; ``timeout_remedy`` when ``run`` exceeds ``timeout`` seconds."""

    name: str
    passed: str
    run: Callable[[], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    timeout: float = 10.0
    timeout_remedy: str = "Look whether a firewall or a proxy drops packets, and whether this machine is overloaded."
