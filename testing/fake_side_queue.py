"""A queue beside the jobs (``settings.JOBS_SIDE_QUEUES``) whose work is to wait a moment."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from jobs.cluster import state

PIECE = 0.01  # seconds that one takes at least


@dataclass
class Fake:
    due: int = 0
    hidden: bool = False  # due, but for no other worker
    worked: int = 0
    asked: int = 0
    breaks: Exception | None = None


fake = Fake()


def claimable(cursor: Any, *, most: int) -> int:
    fake.asked += 1
    return 0 if fake.hidden else min(fake.due, most)


def turn(until: float) -> int:
    if fake.breaks:
        raise fake.breaks
    worked = 0
    while fake.due and not state.stopping() and time.monotonic() <= until:
        state.claimed_now()
        time.sleep(PIECE)
        fake.due, fake.worked, worked = fake.due - 1, fake.worked + 1, worked + 1
    return worked


def idle() -> bool:
    return not fake.due
