"""PostgreSQL restarts and cut connections while a cluster works."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from accessa.embedded_postgres.server import EmbeddedServer
from testing.cluster import MANAGE, create_jobs, database_url, running_cluster, wait_until
from testing.pytest_postgres import SCRATCH
from testing.sizes import size

pytestmark = pytest.mark.slow

ACTIVE = "SELECT count(*) FROM upload_jobs WHERE state NOT IN ('done', 'deadletter')"
RESTARTS, CUTS = size(2, full=20), size(20, full=200)
JOBS = size(300, full=6000)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    folder = Path(tempfile.mkdtemp(prefix="away-", dir=SCRATCH))
    postgres = EmbeddedServer(folder / "postgres")
    postgres.ensure_running()
    url = database_url(postgres.params())
    subprocess.run([*MANAGE, "migrate", "-v0"], env=os.environ | {"DATABASE_URL": url}, check=True, timeout=60)
    yield postgres
    postgres.stop("immediate")
    shutil.rmtree(folder)


def ask(server: EmbeddedServer, sql: str) -> Any:
    with psycopg.connect(make_conninfo(**server.params()), autocommit=True) as connection:
        row = connection.execute(sql).fetchone()
        return row and row[0]


def enqueue_jobs(server: EmbeddedServer, count: int) -> None:
    with psycopg.connect(make_conninfo(**server.params()), autocommit=True) as connection:
        create_jobs(connection.cursor(), count, "sleep", users=20, seconds=0.02)


def count_done(server: EmbeddedServer) -> int:
    return int(ask(server, "SELECT count(*) FROM upload_jobs WHERE state = 'done'"))


def test_work_resumes_within_15_seconds_of_each_restart(server: EmbeddedServer) -> None:
    enqueue_jobs(server, JOBS)
    url = database_url(server.params())
    with running_cluster(DATABASE_URL=url, JOBS_LEASE_SECONDS=2) as machine:
        for _ in range(RESTARTS):
            wait_until(lambda: ask(server, "SELECT count(*) FROM upload_jobs WHERE state = 'working'"), seconds=15)
            server.stop("immediate")
            time.sleep(0.5)
            server.ensure_running()
            before = count_done(server)
            wait_until(lambda: count_done(server) > before, seconds=15, patience=1)  # noqa: B023

        cut = 0
        while cut < CUTS:
            cut += ask(
                server,
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = 'accessa' AND pid <> pg_backend_pid()",
            )
            before = count_done(server)
            wait_until(lambda: count_done(server) > before or not ask(server, ACTIVE), seconds=15, patience=1)  # noqa: B023

        wait_until(lambda: not ask(server, ACTIVE), seconds=300)
        assert machine.process.poll() is None

    assert ask(server, "SELECT count(*) FROM events WHERE code = 'FINALIZED'") == JOBS
    assert ask(server, "SELECT count(DISTINCT job_id) FROM events WHERE code = 'FINALIZED'") == JOBS
