"""Ledger of a fake: every item it sold."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any


class Ledger:
    """Each sale, written down before its answer is out; with ``file``, a line for each thing sold, appended at once."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.clear()

    def clear(self) -> None:
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.calls = 0
        self._lock = Lock()

    def sell(self, things: Sequence[str], **units: int) -> None:
        """Sell ``things`` in one call for ``units``, such as tokens=12."""
        with self._lock:
            self.calls += 1
            self.counts.update(things)
            self.totals.update(units)
            if self.file:
                self._append("".join(f"{thing}\n" for thing in things))

    @property
    def sold(self) -> int:
        return self.counts.total()

    @property
    def repeated(self) -> int:
        """Return how many things were sold again: the money that was wasted."""
        return self.sold - len(self.counts)

    def summary(self, *, items: bool = False) -> dict[str, Any]:
        with self._lock:
            totals = {"calls": self.calls, "sold": self.sold, "distinct": len(self.counts), "repeated": self.repeated}
            return {**totals, **self.totals, **({"items": dict(self.counts)} if items else {})}

    def _append(self, lines: str) -> None:
        assert self.file
        ledger = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(ledger, lines.encode())
        finally:
            os.close(ledger)
