"""State of the gunicorn worker that runs this process. Imported by gunicorn's main process, which has no settings."""

from typing import Any

_workers: list[Any] = []


def register_worker(worker: Any) -> None:
    _workers[:] = [worker]


def is_stopping() -> bool:
    """Tell whether the worker is shutting down: it finishes its requests, and should get no more."""
    return any(not worker.alive for worker in _workers)
