"""The maintenance loop: how often its periodic tasks run."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cluster import maintenance, shared_state

CLOCK = SimpleNamespace(now=0.0)
RUNS: list[float] = []


def task() -> None:
    RUNS.append(CLOCK.now)


@pytest.mark.parametrize(("idle_seconds", "runs"), [(0.0, [100.0, 130.0, 160.0]), (31.0, [100.0, 160.0])])
def test_periodic_tasks_are_half_as_frequent_while_workers_are_idle(
    idle_seconds: float, runs: list[float], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBS_PERIODIC_TASKS, settings.JOBS_PERIODIC_SECONDS = [f"{__name__}.task"], 30.0
    monkeypatch.setattr(shared_state, "seconds_since_claim_attempt", lambda: idle_seconds)
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: CLOCK.now))
    loop = maintenance.MaintenanceLoop()
    RUNS.clear()

    for CLOCK.now in range(100, 161, 10):
        loop._run_periodic_tasks()

    assert runs == RUNS
