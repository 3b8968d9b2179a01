"""Concurrent calls in threads, each with its own database connection."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection, connections

T = TypeVar("T")


def run_concurrently(*work: Callable[[], T]) -> list[T]:
    """Run each of ``work`` in a thread; they start together. Returns what they return, in order."""
    gate = threading.Barrier(len(work))

    def one(run: Callable[[], T]) -> T:
        try:
            connection.ensure_connection()
            gate.wait(10)
            return run()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(one, work))
