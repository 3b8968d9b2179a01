"""Who sells: a name, the key that is charged, and what the key allows a minute."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vendor:
    """``tokens_per_minute`` 0 means that the vendor counts no tokens."""

    name: str
    api_key: str
    requests_per_minute: int
    tokens_per_minute: int = 0

    @property
    def key(self) -> str:
        """Return what its budget and its breaker are filed under: two keys of one vendor are two budgets."""
        return f"{self.name}:{hashlib.sha256(self.api_key.encode()).hexdigest()[:12]}"
