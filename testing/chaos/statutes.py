"""Kill loop of statutes: messages processed under SIGKILL must leave the same artifacts and rows as undisturbed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from jobs.choices import Stage
from testing.chaos.statute_samples import Statute
from testing.chaos.world import ACTIVE, REPEATED
from testing.cluster import copy_database, database_url
from testing.fakes.bedrock import BedrockServer
from testing.fork_server import ForkServer
from testing.sqs import REGION, Queue, SqsServer

BUCKET = "chaos"
CONSUMERS = 2
CUT_EVERY = 4
LEASE, VISIBILITY = 3.0, 3
WRITES = ("queued", "parsing", "chunking", "chunks_buffered", "chunked", "embedding", "embeddings_buffered", "embedded")
UPLOADING = tuple(f"uploading:{part}" for part in ("law", "chunk", "vectors", "manifest", "tidying"))
POINTS = (
    *(f"{stage}:{edge}" for stage in Stage.values for edge in ("begin", "end")),
    *(f"{stage}:{edge}" for stage in WRITES for edge in ("before-commit", "after-commit")),
    *("queued:stored", "parsing:stored", "embedding:answered", "embedded:uploaded"),
    *UPLOADING,
    *("statute:ended", "statute:settled", "statute:deleted"),
    "uploading:former",  # where there is one: of second versions
)
# A death after an answer and before its commit; so may one at a random moment be. It costs what is in the air, the
# answer that is being read and the one that is being kept.
COSTLY, LOST_EACH = ("embedding:answered", "embedding:before-commit"), 3 + 1 + 1
CUT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = current_user"""
SETTINGS = {
    "STATUTES_EMBEDDER": "titan",
    "STATUTES_BUCKET": BUCKET,
    "EMBEDDER": "testing.embedders.InstantEmbedder",
    "TITAN_REQUESTS_PER_MINUTE": "100000",
    "SQS_REGION": REGION,
    "SQS_VISIBILITY_SECONDS": str(VISIBILITY),
    "SQS_WAIT_SECONDS": "1",
    "JOBS_LEASE_SECONDS": str(LEASE),
    "JOBS_MAX_RETRIES": "1000",  # every law may be the one that is killed again and again
    "JOBS_RETRY_BASE_SECONDS": "0.1",
    "VENDOR_TIMEOUT_SECONDS": "5",
    "LOG_LEVEL": "WARNING",
}
ROWS = """
    SELECT d.user_id::text, v.law_id, v.version, c.chunk_ord, c.chunk_id::text, c.chunk_sha, c.embed_model,
           encode(sha256(vector_send(c.embedding)), 'hex')
    FROM document_chunks c JOIN documents d USING (document_id) JOIN law_versions v USING (document_id)"""
LAWS = """
    SELECT l.law_id, l.version, l.status, l.title, l.language, l.chunk_count, l.document_id::text, l.uploader_id,
           v.status, v.raw_sha256, v.format, v.refused::text, v.manifest_sha256, v.error_code,
           encode(sha256(convert_to(v.canonical::text, 'UTF8')), 'hex')
    FROM laws l LEFT JOIN law_versions v USING (document_id)"""
STATES = (
    "SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (SELECT state, count(*) n FROM upload_jobs GROUP BY 1) s"
)
EMPTIED = "TRUNCATE documents, laws, law_versions CASCADE"
Row = tuple[Any, ...]


@dataclass
class RunResult:
    """What a run left behind."""

    artifacts: dict[str, bytes]
    rows: Counter[Row]
    laws: Counter[Row]
    jobs: Mapping[str, int]
    repeated: int
    messages: tuple[int, int]
    dead: int
    bought: int
    bought_again: int
    seconds: float = 0.0
    at_random: int = 0
    cuts: int = 0
    points: Counter[str] = field(default_factory=Counter)

    @property
    def kills(self) -> int:
        return self.at_random + self.points.total()

    @property
    def bound(self) -> int:
        """How often a text may have been bought again, for what the deaths cut off."""
        gaps = self.at_random + CONSUMERS * self.cuts + sum(self.points[point] for point in COSTLY)
        return LOST_EACH * gaps

    @property
    def failed(self) -> list[str]:
        return [key for key in self.artifacts if key.startswith("failed/")]

    def differences(self, calm: RunResult) -> list[str]:
        """Name what is not as the undisturbed run left it, or not as it has to be; nothing when all is well."""
        keys = self.artifacts.keys() | calm.artifacts.keys()
        differences = [key for key in sorted(keys) if self.artifacts.get(key) != calm.artifacts.get(key)]
        differences += [f"row {row}" for row in ((self.rows - calm.rows) + (calm.rows - self.rows))]
        differences += [f"law {row}" for row in ((self.laws - calm.laws) + (calm.laws - self.laws))]
        ends = {"messages": self.messages, "dead letters": self.dead, "effects repeated": self.repeated}
        differences += [f"{what}: {left}" for what, left in ends.items() if left not in (0, (0, 0))]
        differences += [f"{state}: {left}" for state, left in self.jobs.items() if state != "done"]
        if self.bought_again > self.bound:
            differences.append(f"bought again: {self.bought_again} > {self.bound}")
        return differences + self.failed


class StatuteWorld:
    """A queue, a bucket, a model, and consumers on a copy of an empty database."""

    def __init__(self, params: Mapping[str, str], folder: Path) -> None:
        self.params, self.name = params, f"statutes_{os.getpid()}"
        self.armed, self._storage = folder / "armed", folder / "storage"
        self.armed.mkdir()
        self.log = folder / "log"
        self.consumers: list[psutil.Process] = []
        self.killed = self.cuts = 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with self._connect("postgres") as connection:
            copy_database(connection, self.name, template=self.params["dbname"])
        self._opened.callback(self._drop)
        self.database = self._opened.enter_context(self._connect(self.name))
        self.sqs = self._opened.enter_context(SqsServer())
        self.bedrock = self._opened.enter_context(BedrockServer(exact_tokens=False))
        self.queue: Queue = self.sqs.create_queue(most=1000)
        self.fork_server = self._opened.enter_context(ForkServer(self._environment, self.log))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def _environment(self) -> dict[str, str]:
        return {
            **SETTINGS,
            **self.bedrock.environment,
            "DATABASE_URL": database_url({**self.params, "dbname": self.name}),
            "STORAGE_ROOT": str(self._storage),
            "SQS_QUEUE_URL": self.queue.url,
            "SQS_ENDPOINT_URL": self.sqs.endpoint,
            "STATUTES_S3_ENDPOINT_URL": self.sqs.endpoint,
            "ACCESSA_FAILPOINTS": str(self.armed),
        }

    def reset(self) -> None:
        """Leave nothing of what was worked on: no row, no object but the raw files, nothing bought."""
        for consumer in self.consumers:
            consumer.kill()
        self.database.execute(EMPTIED)
        shutil.rmtree(self._storage)
        self.sqs.delete_objects(BUCKET, [key for key in self.sqs.read_objects(BUCKET) if not key.startswith("raw/")])
        self.bedrock.ledger.clear()

    def _connect(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo(**{**self.params, "dbname": database}), autocommit=True)

    def _drop(self) -> None:
        with self._connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def value(self, sql: str) -> Any:
        row = self.database.execute(sql).fetchone()
        return row and row[0]

    def send(self, laws: Sequence[Statute]) -> None:
        """Send the messages, every third one twice."""
        for number, law in enumerate(laws):
            for _ in range(2 if number % 3 == 0 else 1):
                self.queue.send(law.message)

    def restart_consumers(self) -> None:
        self.consumers = [consumer for consumer in self.consumers if consumer.is_running()]
        while len(self.consumers) < CONSUMERS:
            self.consumers.append(self.fork_server.fork("consume_sqs"))

    def kill_a_consumer(self, dice: random.Random) -> None:
        with suppress(psutil.NoSuchProcess):
            dice.choice(self.consumers).send_signal(signal.SIGKILL)
            self.killed += 1

    def cut_connections(self) -> None:
        """End all sessions of the database but our own, as a restart does."""
        self.database.execute(CUT)
        self.cuts += 1

    @property
    def is_over(self) -> bool:
        return self.queue.is_empty and not self.value(ACTIVE)

    def result(self) -> RunResult:
        points = Counter(path.name.partition(".")[0] for path in self.armed.glob("*.*.*"))
        return RunResult(
            artifacts=self.sqs.read_objects(BUCKET),
            rows=Counter(self.database.execute(ROWS).fetchall()),
            laws=Counter(self.database.execute(LAWS).fetchall()),
            jobs=self.value(STATES),
            repeated=int(self.value(REPEATED)),
            messages=self.queue.message_counts(),
            dead=self.queue.dead_letter_count(),
            bought=self.bedrock.ledger.sold,
            bought_again=self.bedrock.ledger.repeated,
            at_random=self.killed,
            cuts=self.cuts,
            points=points,
        )


class Killer:
    """``rounds`` of them at each of ``points``, one at a time, and ``extra`` at random moments.

    After every fourth of these the database's connections are cut too.
    """

    def __init__(self, here: StatuteWorld, points: Sequence[str] = (), *, rounds: int, extra: int, seed: int) -> None:
        self._here, self._extra, self._dice = here, extra, random.Random(seed)
        self._ahead = dict.fromkeys(points, rounds)
        self._next_at = time.monotonic() + 1.0

    def tick(self) -> None:
        armed = {path.name.partition("~")[0] for path in self._here.armed.glob("*~*")}
        for point in [point for point, left in self._ahead.items() if left and point not in armed]:
            (self._here.armed / f"{point}~{self._ahead[point]}").touch()
            self._ahead[point] -= 1
        if self._extra and time.monotonic() > self._next_at and self._here.value(ACTIVE):
            self._here.kill_a_consumer(self._dice)
            if self._extra % CUT_EVERY == 1:
                self._here.cut_connections()
            self._extra -= 1
            self._next_at = time.monotonic() + self._dice.uniform(0.3, 2.0)


def trial(
    params: Mapping[str, str],
    folder: Path,
    laws: Sequence[Statute],
    *,
    points: Sequence[str] = POINTS,
    rounds: int,
    extra: int,
    seed: int = 1,
    seconds: float = 300.0,
) -> tuple[RunResult, RunResult]:
    """Return what two consumers leave of the messages of ``laws`` undisturbed, and what those that are killed leave."""
    with StatuteWorld(params, folder) as here:
        here.sqs.create_bucket(BUCKET, {law.key: law.content for law in laws})
        calm = _run(here, laws, Killer(here, rounds=0, extra=0, seed=seed), seconds)
        here.reset()
        return calm, _run(here, laws, Killer(here, points, rounds=rounds, extra=extra, seed=seed), seconds)


def _run(here: StatuteWorld, laws: Sequence[Statute], deaths: Killer, seconds: float) -> RunResult:
    """Send the messages, those that come late when the others are done."""
    began = time.monotonic()
    for wave in ([law for law in laws if not law.late], [law for law in laws if law.late]):
        here.send(wave)
        while not here.is_over:
            here.restart_consumers()
            deaths.tick()
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"The work did not end in time: {here.value(STATES)} {here.queue.message_counts()}")
            time.sleep(0.05)
    ended = time.monotonic() - began
    run_result = here.result()
    run_result.seconds = ended
    return run_result
