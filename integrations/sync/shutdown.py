"""What a page asks between two of its steps: whether its worker has to stop."""

from __future__ import annotations

from jobs.cluster import shared_memory
from jobs.outcomes import Postponed

STOPPING = "STOPPING"


def raise_if_stopping() -> None:
    """Raise ``Postponed`` when this worker has to stop: its message is given back, and no delivery is used up."""
    if shared_memory.is_stopping():
        raise Postponed(0.0, STOPPING)
