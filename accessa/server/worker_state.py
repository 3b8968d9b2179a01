"""What the server that runs this process says of it. Knows no settings: gunicorn's main process has none."""

from __future__ import annotations

from typing import Any

_workers: list[Any] = []


def register_worker(worker: Any) -> None:
    """Remember gunicorn's worker, in its own process."""
    _workers[:] = [worker]


def is_stopping() -> bool:
    """Tell whether the server has told this process to end: it answers what it has, and should get no more."""
    return any(not worker.alive for worker in _workers)
