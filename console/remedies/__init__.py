"""What each code means to support, and what to do about it: of dead letters, of waits, of syncs."""

from __future__ import annotations

from console.remedies import laws
from console.remedies.jobs import FAILED, WAITING
from console.remedies.remedy import Remedy
from console.remedies.syncs import PAGE_WAITS, RECORD_FAILED, SYNC_FAILED

__all__ = ["FAILED", "PAGE_WAITS", "RECORD_FAILED", "SYNC_FAILED", "WAITING", "Remedy", "laws", "of", "of_wait"]

LAWS = "statute"  # the pipeline whose jobs are laws
UNKNOWN = Remedy("A code without an entry here.", "Look at the last error's detail, and tell a developer.")


def of(code: str | None, pipeline: str = "") -> Remedy:
    """Return what is known of a dead letter's code; of a code that laws have alone, whatever the pipeline."""
    tables = (laws.FAILED, FAILED) if pipeline == LAWS else (FAILED, laws.FAILED)
    return next((table[code] for table in tables if code and code in table), UNKNOWN)


def of_wait(reason: str | None) -> Remedy | None:
    return WAITING.get(reason or "") or laws.WAITING.get(reason or "")
