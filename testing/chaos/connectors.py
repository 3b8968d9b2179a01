"""Kill loop of the connectors: a sync under SIGKILL must leave the same rows as an undisturbed one."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
from django.test import override_settings
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from accessa.server.supervisor import Child, Program
from integrations.models import ConnectedSource, IngestionJob
from integrations.oauth import token_vault
from integrations.sync import lifecycle
from testing.chaos.world import ROOT
from testing.cluster import MANAGE, copy_database, database_url
from testing.fakes.hubspot import HubSpotServer

# Between an answer and a write, on both sides of each commit, and before the message is deleted.
POINTS = ("page:begin", "page:fetched", "page:embedded", "items:before-commit", "items:after-commit",
          "page:before-commit", "page:after-commit", "page:committed")  # fmt: skip
BATCH = 32  # EMBEDDING_BATCH_SIZE
VT = 2  # seconds: an orphaned page is picked up again so soon
SETTINGS = {
    "EMBEDDER": "testing.embedders.CountingEmbedder",
    "WORKERS": "2",
    "INGESTION_VT_SECONDS": str(VT),
    "INGESTION_PAGE_SIZE": "50",
    "INGESTION_MAX_DELIVERIES": "1000",  # every page may be the one that is killed again and again
    "VENDOR_TIMEOUT_SECONDS": "1",
    "JOBS_LEASE_SECONDS": "3",
    "JOBS_HANG_SECONDS": "3",
    "LOG_LEVEL": "WARNING",
}
DOCUMENTS = """
    SELECT external_id, document_type, title, text, facts::text, parent_external_id, source_updated_at,
           deleted_at IS NULL, encode(sha256(vector_send(embedding)), 'hex'), embedding_model,
           encode(embedding_text_sha256, 'hex'), raw_payload::text FROM source_documents"""
CLIENTS = """
    SELECT external_id, client_name, industry, summary, key_facts::text, text,
           encode(sha256(vector_send(embedding)), 'hex'), embedding_model FROM client_intelligence"""
VAULT_KEY = "a key of the vault that only the kill loop knows"
# The last message may outlive its sync: whoever died before deleting it leaves that to the next.
ACTIVE = """
    SELECT (SELECT count(*) FROM ingestion_jobs WHERE status IN ('queued', 'running'))
        + (SELECT count(*) FROM pgmq.q_ingestion_queue)"""
Row = tuple[Any, ...]


@dataclass
class RunResult:
    """What a run left behind: its rows, how the sync ended, and what was bought on the way."""

    documents: Counter[Row]
    clients: Counter[Row]
    status: Mapping[str, int]
    messages: int
    bought: int
    seconds: float = 0.0
    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)


class SyncWorld:
    """A cluster on a copy of a database in which a sync is waiting to be done."""

    def __init__(self, params: Mapping[str, str], folder: Path, name: str, environment: Mapping[str, str]) -> None:
        self.params, self.name, self.folder = params, f"{name}_{os.getpid()}", folder / name
        self.armed = self.folder / "armed"
        self.armed.mkdir(parents=True)
        self.ledger = self.folder / "purchases"
        self.ledger.touch()
        with self._connect("postgres") as connection:
            copy_database(connection, self.name, template=params["dbname"])
        variables = {
            "DATABASE_URL": database_url({**params, "dbname": self.name}),
            "STORAGE_ROOT": str(self.folder / "storage"),
            "ACCESSA_PURCHASES": str(self.ledger),
            "ACCESSA_FAILPOINTS": str(self.armed),
        }
        self.cluster = Child(Program("cluster", [*MANAGE, "qcluster"], ROOT, {**SETTINGS, **environment, **variables}))
        self.database = self._connect(self.name)

    def _connect(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo(**{**self.params, "dbname": database}), autocommit=True)

    def value(self, sql: str) -> int:
        row = self.database.execute(sql).fetchone()
        return int(row[0]) if row else 0

    def restart_workers(self) -> None:
        if self.cluster.process is None or self.cluster.reap() is not None:
            self.cluster.start()

    def kill_a_worker(self, dice: random.Random) -> bool:
        if self.cluster.process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.cluster.process.pid).children(recursive=True)
            if len(below) > 1:
                dice.choice(below[1:]).send_signal(signal.SIGKILL)
                return True
        return False

    def result(self) -> RunResult:
        return RunResult(
            documents=Counter(self.database.execute(DOCUMENTS).fetchall()),
            clients=Counter(self.database.execute(CLIENTS).fetchall()),
            status=dict(self.database.execute("SELECT status, count(*) FROM ingestion_jobs GROUP BY 1").fetchall()),
            messages=self.value("SELECT count(*) FROM pgmq.q_ingestion_queue"),
            bought=self.ledger.read_text().count("\n"),
            points=Counter(path.name.partition(".")[0] for path in self.armed.glob("*.*.*")),
        )

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.cluster.kill()
        if self.cluster.process:
            self.cluster.process.wait()
        self.database.close()
        with self._connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


@contextmanager
def create_queued_sync(user_id: UUID, *, contacts: int, companies: int, deals: int) -> Iterator[dict[str, str]]:
    """Make a source of ``user_id`` at a HubSpot that holds these records, and a full sync that waits to be done.

    Yields the environment that a cluster needs to do it.
    """
    environment = {"INTEGRATIONS_VAULT_KEYS": VAULT_KEY}
    server = HubSpotServer(contacts=contacts, companies=companies, deals=deals)
    with server as hubspot, override_settings(INTEGRATIONS_VAULT_KEYS=[VAULT_KEY]):
        source = ConnectedSource.objects.create(user_id=user_id, provider="hubspot", account="5120")
        source.access_token_vault_id = token_vault.store_token(source, "access", "an-access-token")
        source.token_expires_at = timezone.now() + timedelta(hours=6)
        source.save()
        lifecycle.start_sync(source, IngestionJob.Kind.FULL, by="kill loop")
        yield {**environment, "HUBSPOT_API_URL": hubspot.url}


@contextmanager
def _world(params: Mapping[str, str], folder: Path, name: str, environment: Mapping[str, str]) -> Iterator[SyncWorld]:
    sync_world = SyncWorld(params, folder, name, environment)
    try:
        yield sync_world
    finally:
        sync_world.close()


def run(
    params: Mapping[str, str],
    folder: Path,
    name: str,
    environment: Mapping[str, str],
    *,
    rounds: int = 0,
    extra: int = 0,
    seed: int = 1,
    seconds: float = 300.0,
) -> RunResult:
    """Run the queued sync in a cluster on a copy of the database.

    Workers are killed ``rounds`` times at each failpoint and ``extra`` times at random.
    """
    dice = random.Random(seed)
    with _world(params, folder, name, environment) as here:
        for number in range(rounds):
            for point in POINTS:
                (here.armed / f"{point}~{number}").touch()
        began, kills, next_at = time.monotonic(), 0, time.monotonic() + 2.0
        here.restart_workers()
        while here.value(ACTIVE):
            here.restart_workers()
            if kills < extra and time.monotonic() > next_at:
                kills += here.kill_a_worker(dice)
                next_at = time.monotonic() + dice.uniform(0.2, 1.5)
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"The sync did not end in time: {here.result().status}")
            time.sleep(0.05)
        run_result = here.result()
        run_result.seconds, run_result.kills = time.monotonic() - began, kills + run_result.points.total()
        return run_result
