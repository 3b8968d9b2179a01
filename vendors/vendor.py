"""Who sells: a name, the key that is charged, and what the key allows a minute."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vendor:
    """``tokens_per_minute`` 0 means that the vendor counts no tokens.

    ``part`` has a breaker of its own, and the budget of all: reading may go well while buying does not, and must not
    say that all is well. ``circuits``: how many breakers share a job's tries, so each opens the sooner.
    """

    name: str
    api_key: str
    requests_per_minute: int
    tokens_per_minute: int = 0
    part: str = ""
    circuits: int = 1

    @property
    def key(self) -> str:
        """Return what its budget is filed under: two keys of one vendor are two budgets."""
        return f"{self.name}:{hashlib.sha256(self.api_key.encode()).hexdigest()[:12]}"

    @property
    def circuit(self) -> str:
        """Return what its breaker is filed under."""
        return f"{self.key}/{self.part}" if self.part else self.key
