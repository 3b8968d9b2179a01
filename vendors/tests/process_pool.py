"""Process pool: the same function in several processes, each with its own database connection."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def in_processes(count: int, work: Callable[..., T], *args: object) -> list[T]:
    """Return what ``work`` (a function of a module) returned in each of ``count`` processes."""
    connections.close_all()  # a fork must not share this one's socket
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) as pool:
        return [future.result(60) for future in [pool.submit(work, *args) for _ in range(count)]]
