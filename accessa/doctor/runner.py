"""Runner of the checks: each in a thread with a timeout, after what it needs, its output redacted."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db import OperationalError, connection

from accessa.doctor.findings import Finding, Level, error, note, skipped
from accessa.observability.redaction import redact_secrets
from jobs.safe_errors import safe_error_name, safe_traceback


@dataclass(frozen=True, slots=True)
class Check:
    """``passed`` is printed when there is no finding; ``timeout_remedy`` when ``run`` exceeds ``timeout`` seconds."""

    name: str
    passed: str
    run: Callable[[], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    timeout: float = 10.0
    timeout_remedy: str = "Look whether a firewall or a proxy drops packets, and whether this machine is overloaded."


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    level: Level
    findings: tuple[Finding, ...]
    seconds: float


def run_checks(
    checks: Sequence[Check], *, only: Collection[str] = (), skip: Collection[str] = ()
) -> Iterator[CheckResult]:
    """Run the checks in order. A check is skipped when one that it needs has failed or was itself skipped for that."""
    failed: set[str] = set()
    for check in checks:
        if (only and check.name not in only) or check.name in skip:
            continue
        missing = next((name for name in check.needs if name in failed), None)
        outcome = (
            CheckResult(check.name, Level.SKIPPED, (skipped(f"needs {missing}"),), 0.0) if missing else _run(check)
        )
        if missing or outcome.level is Level.ERROR:
            failed.add(check.name)
        yield outcome


def _run(check: Check) -> CheckResult:
    """Run one check in a thread of its own: a call that hangs is abandoned."""
    findings: list[Finding] = []

    def run() -> None:
        try:
            for finding in check.run():
                findings.append(finding)
        except OperationalError as failure:
            message = f"The database did not serve this check: {safe_error_name(failure)}."
            findings.append(error(message, "See the checks database and limits, and the end of the database's log."))
        except Exception as failure:  # reported as a finding, and the other checks run
            frames = " / ".join(line.strip() for line in safe_traceback(failure).strip().splitlines()[-2:])
            findings.append(error(f"It broke: {safe_error_name(failure)}.", f"Report this: {frames}"))
        finally:
            connection.close()

    began = time.monotonic()
    thread = threading.Thread(target=run, name=f"doctor-{check.name}", daemon=True)
    thread.start()
    thread.join(check.timeout)
    redacted = [Finding(each.level, redact_secrets(each.message), redact_secrets(each.remedy)) for each in findings]
    if thread.is_alive():
        redacted.append(error(f"It did not end within {check.timeout:g} s.", check.timeout_remedy))
    problems = tuple(finding for finding in redacted if finding.level is not Level.OK)
    levels = {finding.level for finding in problems}
    worst = next((level for level in (Level.ERROR, Level.WARNING, Level.SKIPPED) if level in levels), Level.OK)
    notes = [finding.message for finding in redacted if finding.level is Level.OK]
    passed = (note(" ".join([check.passed, *notes])),)
    return CheckResult(check.name, worst, problems or passed, time.monotonic() - began)
