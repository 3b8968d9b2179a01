"""Fake side queue (``settings.JOBS_SIDE_QUEUES``) whose items only sleep."""

import time
from dataclasses import dataclass
from typing import Any

from jobs.cluster import shared_state

DUE = "SELECT 1"
SECONDS_PER_ITEM = 0.01  # seconds that one takes at least


@dataclass
class FakeSideQueue:
    due: int = 0
    hidden: bool = False  # due, but for no other worker
    worked: int = 0
    count_calls: int = 0
    error: Exception | None = None


fake_queue = FakeSideQueue()


def count_claimable(cursor: Any, *, most: int) -> int:
    fake_queue.count_calls += 1
    return 0 if fake_queue.hidden else min(fake_queue.due, most)


def drain(until: float) -> int:
    if fake_queue.error:
        raise fake_queue.error
    worked = 0
    while fake_queue.due and not shared_state.is_stopping() and time.monotonic() <= until:
        shared_state.record_claim_attempt()
        time.sleep(SECONDS_PER_ITEM)
        fake_queue.due, fake_queue.worked, worked = fake_queue.due - 1, fake_queue.worked + 1, worked + 1
    return worked


def is_idle() -> bool:
    return not fake_queue.due
