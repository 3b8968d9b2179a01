"""A queue beside the jobs (``settings.JOBS_SIDE_QUEUES``) whose work is to wait a moment."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from jobs.cluster import shared_memory

PIECE = 0.01  # seconds that one takes at least


@dataclass
class Fake:
    due: int = 0
    hidden: bool = False  # due, but for no other worker
    worked: int = 0
    asked: int = 0
    breaks: Exception | None = None


fake = Fake()


def count_claimable(cursor: Any, *, most: int) -> int:
    fake.asked += 1
    return 0 if fake.hidden else min(fake.due, most)


def drain(until: float) -> int:
    if fake.breaks:
        raise fake.breaks
    worked = 0
    while fake.due and not shared_memory.is_stopping() and time.monotonic() <= until:
        shared_memory.record_claim_attempt()
        time.sleep(PIECE)
        fake.due, fake.worked, worked = fake.due - 1, fake.worked + 1, worked + 1
    return worked


def is_idle() -> bool:
    return not fake.due
