"""Temporary PostgreSQL server of a benchmark run."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
import psycopg

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks.report import print_progress

# What every process of a benchmark has in common; the rest is as in production.
ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "accessa.settings",
    "JOBS_PIPELINES": "testing.stub_pipelines.PIPELINES",
    "WORKERS": "2",
    "SENTENCE_MODEL": "none",
}
# Of a developer's deployment. The broker may be another one: BROKER_REDIS_URL, BROKER_SQS_REGION.
FOREIGN = ("DATABASE_URL", "STORAGE_ROOT", "EMBEDDER", "MAX_PAGES")


class ScratchServer:
    """A folder that holds the server's data, the objects and the logs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = EmbeddedServer(root / "var" / "postgres")

    def start(self) -> None:
        """Start the server with migrated tables, or with a copy of the data directory BENCHMARKS_TEMPLATE."""
        if template := os.environ.get("BENCHMARKS_TEMPLATE"):
            self.server.data.parent.mkdir(exist_ok=True)
            self._copy(template, self.server.data)
            self.server.ensure_running()
        else:
            from django.core.management import call_command  # noqa: PLC0415  needs the settings

            call_command("migrate", verbosity=0)
        print_progress("PostgreSQL is up in", self.root)

    def write_template(self, path: Path) -> None:
        """Stop the server and copy its data directory, with its owner."""
        self.server.stop()
        self._copy(self.server.data, path)

    def _copy(self, source: Path | str, target: Path) -> None:
        subprocess.run(["cp", "-a", source, target], check=True)


@contextmanager
def running_server() -> Iterator[ScratchServer]:
    """Set the environment and Django up; nothing is started before ``start``. All is gone at the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # /tmp, not $TMPDIR: a socket's path is limited to 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp"))
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(ENVIRONMENT, ACCESSA_VAR=str(root / "var"))
    here = ScratchServer(root)
    try:
        django.setup()
        logging.disable(logging.INFO)
        yield here
    finally:
        here.server.stop("immediate")
        shutil.rmtree(root, ignore_errors=True)


def connect(database: str = "accessa", *, user: str = "") -> psycopg.Connection[Any]:
    """Return an autocommitting connection to the benchmark's server; ``user="postgres"`` is the superuser."""
    params: dict[str, Any] = dict(EmbeddedServer().params(database))
    return psycopg.connect(**params | ({"user": user} if user else {}), autocommit=True)


def analyze_tables(*tables: str, database: str = "accessa") -> None:
    """Write out what seeding has left, so that the next round does not pay for it, and take fresh statistics."""
    with connect(database, user="postgres") as connection:
        for table in tables:
            connection.execute(f"VACUUM ANALYZE {table}")
        connection.execute("CHECKPOINT")
