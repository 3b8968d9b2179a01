"""No-op jobs per second of Accessa and its baselines, with two worker processes on the same PostgreSQL."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks import database, noop_jobs, subprocesses
from benchmarks.baselines import dbos_workflows, procrastinate, skip_locked

WORKERS = 2
TIMEOUT_SECONDS = 60.0  # seconds to the first job that is finished
SECONDS = 4.0  # that a round is watched from then on
# The middle four fifths of a round: neither the start of the second worker nor the last one's end.
SPAN = """
    SELECT count(*) * 0.8 / nullif(extract(epoch FROM percentile_disc(0.9) WITHIN GROUP (ORDER BY at)
        - percentile_disc(0.1) WITHIN GROUP (ORDER BY at)), 0)::float8
    FROM ({finished}) f (at)"""


@dataclass(frozen=True)
class Contestant:
    """Who runs a round of ``count`` jobs, and how many such jobs last for a round's seconds."""

    name: str
    round: Callable[[int], float]
    count: int


def run_accessa(pipeline: str, *, users: int) -> Callable[[int], float]:
    """Return a round of our machine: jobs per second of a pipeline that ``users`` share."""

    def round_(count: int) -> float:
        noop_jobs.truncate_tables()
        noop_jobs.create_jobs(count, users=users, pipeline=pipeline)
        database.analyze_tables("upload_jobs", "documents", "events")
        with database.connect() as connection, subprocesses.running_cluster():
            return _rate(connection, "upload_jobs WHERE state IN ('queued', 'working')",
                         "SELECT finished_at FROM upload_jobs WHERE state = 'done'")  # fmt: skip

    return round_


def run_skip_locked(count: int) -> float:
    with database.connect() as connection:
        connection.execute(skip_locked.TABLE)
        connection.execute("TRUNCATE bare_jobs")
        connection.execute(
            "INSERT INTO bare_jobs (user_id) SELECT gen_random_uuid() FROM generate_series(1, %s)", [count]
        )
        database.analyze_tables("bare_jobs")
        with _workers("benchmarks.baselines.skip_locked", conninfo("accessa")):
            return _rate(
                connection, "bare_jobs WHERE state <> 'done'", "SELECT finished_at FROM bare_jobs WHERE state = 'done'"
            )


def run_procrastinate(count: int) -> float:
    _create_database("procrastinate")
    asyncio.run(_defer(count))
    database.analyze_tables("procrastinate_jobs", "procrastinate_events", database="procrastinate")
    with (
        database.connect("procrastinate") as connection,
        _workers("benchmarks.baselines.procrastinate", conninfo("procrastinate")),
    ):
        return _rate(connection, "procrastinate_jobs WHERE status IN ('todo', 'doing')",
                     "SELECT at FROM procrastinate_events WHERE type = 'succeeded'")  # fmt: skip


def run_dbos(count: int) -> float:
    _create_database("dbos")
    params = EmbeddedServer().params("dbos")
    url = f"postgresql+psycopg://{params['user']}@/dbos?host={params['host']}&port={params['port']}"
    dbos_workflows.enqueue(url, count)
    with database.connect("dbos") as connection, _workers("benchmarks.baselines.dbos_workflows", url):
        return _rate(connection, dbos_workflows.UNFINISHED, dbos_workflows.FINISHED)


def _create_database(name: str) -> None:
    """Create an empty database for each round, as our own tables are truncated each round."""
    with database.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name}")


async def _defer(count: int) -> None:
    app = procrastinate.app(conninfo("procrastinate"))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.tasks["noop"].batch_defer_async(*[{} for _ in range(count)])


def _workers(module: str, address: str) -> ExitStack:
    with ExitStack() as stack:
        for _ in range(WORKERS):
            stack.enter_context(subprocesses.running_program([sys.executable, "-m", module, address]))
        return stack.pop_all()


def conninfo(name: str) -> str:
    return make_conninfo(**EmbeddedServer().params(name))


def _rate(connection: psycopg.Connection[Any], unfinished: str, finished: str) -> float:
    """Let them work for some seconds, or until no row is unfinished; return their steady rate, by the database's clock.

    By time, not by count: on a busy machine a round would never end.
    """
    subprocesses.wait_until(
        lambda: connection.execute(f"{finished} LIMIT 1").fetchone() is not None, seconds=TIMEOUT_SECONDS
    )
    with contextlib.suppress(TimeoutError):
        subprocesses.wait_until(
            lambda: connection.execute(f"SELECT FROM {unfinished} LIMIT 1").fetchone() is None, seconds=SECONDS
        )
    row = connection.execute(SPAN.format(finished=finished)).fetchone()
    return float(row[0]) if row and row[0] else 0.0
