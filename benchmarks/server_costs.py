"""Costs of a program and of its PostgreSQL server: CPU time, statements, connections, resident memory."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks import database

COUNT_STATEMENTS = "SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements WHERE query !~ 'pg_stat_statements'"


def count_all_statements() -> None:
    """Let pg_stat_statements count BEGIN, COMMIT, SET and NOTIFY too."""
    with database.connect(user="postgres") as superuser:
        superuser.execute("ALTER SYSTEM SET pg_stat_statements.track_utility = on")
        superuser.execute("SELECT pg_reload_conf()")


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and its descendants; those that have ended count once they are reaped."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        times = each.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def measured_costs(process: psutil.Process) -> Iterator[dict[str, float]]:
    """Fill the dict at the end of the block: seconds, CPU seconds of the process and of PostgreSQL, statements."""
    postgres = psutil.Process(int((EmbeddedServer().data / "postmaster.pid").read_text().splitlines()[0]))
    costs: dict[str, float] = {}
    with database.connect(user="postgres") as superuser:
        superuser.execute("SELECT pg_stat_statements_reset()")
        began, python, server = time.monotonic(), cpu_seconds(process), cpu_seconds(postgres)
        yield costs
        costs |= {
            "seconds": time.monotonic() - began,
            "python": cpu_seconds(process) - python,
            "postgres": cpu_seconds(postgres) - server,
            "statements": _count(superuser, COUNT_STATEMENTS),
        }


def per_call(costs: Mapping[str, float], calls: int) -> dict[str, float]:
    return {
        "python_ms": costs["python"] * 1000 / calls,
        "postgres_ms": costs["postgres"] * 1000 / calls,
        "statements": costs["statements"] / calls,
        "calls_per_second": calls / costs["seconds"],
    }


def _count(connection: Any, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])
