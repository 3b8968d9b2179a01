"""What each code means to support, and what to do about it: of dead letters, of waits, of syncs."""

from __future__ import annotations

from console.runbook import statutes
from console.runbook.entry import Remedy
from console.runbook.jobs import FAILED, WAITING
from console.runbook.syncs import PAGE_WAITS, RECORD_FAILED, SYNC_FAILED

__all__ = ["FAILED", "PAGE_WAITS", "RECORD_FAILED", "SYNC_FAILED", "WAITING", "Remedy", "of", "of_wait", "statutes"]

LAWS = "statute"  # the pipeline whose jobs are laws
UNKNOWN = Remedy("A code without an entry here.", "Look at the last error's detail, and tell a developer.")


def of(code: str | None, pipeline: str = "") -> Remedy:
    """Return what is known of a dead letter's code; of a code that laws have alone, whatever the pipeline."""
    tables = (statutes.FAILED, FAILED) if pipeline == LAWS else (FAILED, statutes.FAILED)
    return next((table[code] for table in tables if code and code in table), UNKNOWN)


def of_wait(reason: str | None) -> Remedy | None:
    return WAITING.get(reason or "") or statutes.WAITING.get(reason or "")
