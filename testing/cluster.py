"""Worker cluster for tests: `manage.py qcluster` in its own process group, on the test database."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psutil
import psycopg
from django.conf import settings
from django.db import connection

from jobs.claim_batches import ClaimBatch
from jobs.claims import Claim

MANAGE = [sys.executable, "manage.py"]
SERVERS = ("host", "port", "target_session_attrs")
TIMEOUT_FACTOR = 4.0  # 1 where the seconds are the promise
SECRET = "a-secret-that-only-tests-know-of-32-bytes"
# Jobs past the services and without a ring: only the row says that they are due.
INSERT_JOBS = """
    WITH made AS (
        INSERT INTO documents (document_id, user_id, filename, mime, bytes_len, file_sha256, raw_path)
        SELECT gen_random_uuid(), md5('user' || i %% %(users)s)::uuid, 'x.pdf', 'application/pdf', 1,
               gen_random_uuid()::text, 'x'
        FROM generate_series(1, %(count)s) i RETURNING document_id, user_id)
    INSERT INTO upload_jobs
        (job_id, user_id, document_id, stage, pipeline, payload, raw_path, chunks_version, correlation_id)
    SELECT gen_random_uuid(), user_id, document_id, %(stage)s, %(pipeline)s, %(payload)s::jsonb, 'x', '',
           gen_random_uuid() FROM made"""


def create_jobs(
    cursor: Any, count: int, pipeline: str, *, users: int = 5, stage: str = "embedded", **payload: Any
) -> None:
    """Queue jobs of ``pipeline``, dealt out to ``users``."""
    values = {"count": count, "users": users, "stage": stage, "pipeline": pipeline, "payload": json.dumps(payload)}
    cursor.execute(INSERT_JOBS, values)


def finish_and_claim(claim: Claim) -> Claim | None:
    """End the last stage of a claim, as a worker does; return its next claim."""
    batch = ClaimBatch()
    batch.finish_later(claim, {})
    return batch.claim_next("w", claim.job.user_id)


def database_params() -> dict[str, str]:
    """Return libpq's parameters of the database that this test uses."""
    settings_dict = connection.settings_dict
    setting_names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "NAME"}
    return {name: str(settings_dict[key]) for name, key in setting_names.items() if settings_dict.get(key)}


def database_url(params: Mapping[str, str]) -> str:
    """Return libpq's parameters as the URL that the settings read, a socket's folder included."""
    login = ":".join(quote(params[name], safe="") for name in ("user", "password") if params.get(name))
    host, port, name = params["host"], params.get("port", "5432"), params["dbname"]
    if "," in host:  # several servers
        return f"postgres://{login}@/{name}?" + urlencode({key: params[key] for key in SERVERS})
    return f"postgres://{login}@{'/' + host if host.startswith('/') else f'{host}:{port}'}/{name}"


def copy_database(connection: psycopg.Connection[Any], name: str, *, template: str) -> None:
    """Make a database like ``template``. What this process still has open there, a heartbeat's say, is closed first."""
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
    connection.execute(others, [template])
    wait_until(lambda: not connection.execute(f"{others} LIMIT 1", [template]).fetchall(), seconds=10)
    connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")


class Cluster:
    """One started `qcluster`. ``main`` is the process that a supervisor would signal."""

    def __init__(self, workers: int, environment: dict[str, str]) -> None:
        self.workers = workers
        self.environment = environment
        self.log = Path(tempfile.mkstemp(prefix="accessa-cluster-", suffix=".log")[1])
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*MANAGE, "qcluster"],
                cwd=settings.BASE_DIR,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.main = psutil.Process(self.process.pid)

    def wait_until_up(self) -> None:
        wait_until(lambda: len(self.tree()) >= self.workers + 4, seconds=30)  # main, sentinel, monitor, pusher

    def tree(self) -> list[psutil.Process]:
        """Every living process: the main one, django-q2's guard, the workers, the pusher, the monitor."""
        with suppress(psutil.NoSuchProcess):
            return [self.main, *self.main.children(recursive=True)]
        return []

    def stop(self, *, group: bool = False, seconds: float = 40) -> int:
        """SIGTERM to the main process, or to all of its group; return the exit code."""
        send = os.killpg if group else os.kill
        send(self.process.pid, signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Leave nothing of it behind, stopped processes included."""
        left = self.tree()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(left, timeout=10)
        self.log.unlink(missing_ok=True)

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running_cluster(*, workers: int = 2, **environment: object) -> Iterator[Cluster]:
    """Run a cluster, ready to work, until the end of the block."""
    defaults = {
        "DATABASE_URL": database_url(database_params()),
        "JOBS_PIPELINES": "testing.stub_pipelines.PIPELINES",
        "WORKERS": workers,
    }
    started = Cluster(workers, os.environ | {name: str(value) for name, value in (defaults | environment).items()})
    try:
        started.wait_until_up()
        yield started
    finally:
        started.kill()


def wait_until(
    holds: Callable[[], object], *, seconds: float, pause: float = 0.05, patience: float = TIMEOUT_FACTOR
) -> None:
    """Wait until something is so, or fail: ``seconds`` on a quiet machine, which may be ``patience`` times as slow."""
    seconds *= patience
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"It did not happen within {seconds:g} s.")
        time.sleep(pause)


def worker_pid(claimed_by: str | None) -> int:
    """Return the process id in the ``claimed_by`` of a row: ``host:cluster:worker``."""
    host, _, rest = str(claimed_by).partition(":")
    assert host == socket.gethostname()
    return int(rest.rpartition(":")[2])
