"""Vendor accounts: name, API key, limits a minute."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor account: name, API key, rate limits. ``tokens_per_minute`` 0 means that the vendor counts no tokens.

    ``part`` has its own breaker and shares the rate limit: downloads may work while paid calls fail, and must not
    report that all is well. ``circuits``: how many breakers share a job's tries, so each opens the sooner.
    """

    name: str
    api_key: str
    requests_per_minute: int
    tokens_per_minute: int = 0
    part: str = ""
    circuits: int = 1

    @property
    def key(self) -> str:
        """Return the key of its rate limit: two API keys of one vendor are two budgets."""
        return f"{self.name}:{hashlib.sha256(self.api_key.encode()).hexdigest()[:12]}"

    @property
    def circuit(self) -> str:
        return f"{self.key}/{self.part}" if self.part else self.key
