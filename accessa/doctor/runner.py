"""How a check is run: in its time, whatever it hangs on, and with no secret in what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db import connection

from accessa.observability.redaction import redact_secrets
from jobs.errors import safe_error_name, safe_traceback


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, and what to do about it. A check without findings, or with notes alone, is well."""

    level: Level
    says: str
    remedy: str = ""


def wrong(says: str, remedy: str) -> Finding:
    return Finding(Level.ERROR, says, remedy)


def doubtful(says: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, says, remedy)


def note(says: str) -> Finding:
    """What a healthy check has to tell beside that it is well."""
    return Finding(Level.OK, says)


def not_needed(because: str) -> Finding:
    return Finding(Level.SKIPPED, because)


@dataclass(frozen=True, slots=True)
class Check:
    """``works`` is said when nothing is found; ``slow`` is the remedy when it does not end in ``seconds``."""

    name: str
    works: str
    run: Callable[[], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    seconds: float = 10.0
    slow: str = "Look whether a firewall or a proxy swallows what is sent, and whether this machine is overloaded."


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    level: Level
    findings: tuple[Finding, ...]
    seconds: float


def examine(checks: Sequence[Check], *, only: Collection[str] = (), skip: Collection[str] = ()) -> Iterator[Verdict]:
    """Run the checks one after the other; what needs one that has failed, or was left out by ``skip``, is skipped."""
    failed: set[str] = set()
    for check in checks:
        if (only and check.name not in only) or check.name in skip:
            continue
        missing = [name for name in check.needs if name in failed]
        if missing:
            findings: tuple[Finding, ...] = (not_needed(f"needs {missing[0]}"),)
            verdict = Verdict(check.name, Level.SKIPPED, findings, 0.0)
        else:
            verdict = _examined(check)
        if verdict.level in (Level.ERROR, Level.SKIPPED) and (missing or verdict.level is Level.ERROR):
            failed.add(check.name)
        yield verdict


def _examined(check: Check) -> Verdict:
    """Run one in a thread of its own: a call that hangs is left behind, not waited for."""
    found: list[Finding] = []
    began = time.monotonic()
    thread = threading.Thread(target=_run, args=(check, found), name=f"doctor-{check.name}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    if thread.is_alive():
        found = [*found, wrong(f"It did not end within {check.seconds:g} s.", check.slow)]
    return _verdict(check, found, time.monotonic() - began)


def _run(check: Check, found: list[Finding]) -> None:
    try:
        for finding in check.run():
            found.append(finding)
    except Exception as error:  # a check that breaks says so, and the others go on
        last = safe_traceback(error).strip().splitlines()[-2:]
        found.append(
            wrong(f"It broke: {safe_error_name(error)}.", f"Report this: {' / '.join(line.strip() for line in last)}")
        )
    finally:
        connection.close()


def _verdict(check: Check, found: Sequence[Finding], seconds: float) -> Verdict:
    told = tuple(Finding(each.level, redact_secrets(each.says), redact_secrets(each.remedy)) for each in found)
    levels = {finding.level for finding in told}
    worst = next((level for level in (Level.ERROR, Level.WARNING, Level.SKIPPED) if level in levels), Level.OK)
    notes = [finding.says for finding in told if finding.level is Level.OK]
    if worst is Level.OK:
        told = (note(" ".join([check.works, *notes])),)
    return Verdict(check.name, worst, tuple(f for f in told if f.level is not Level.OK or worst is Level.OK), seconds)
