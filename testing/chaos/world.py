"""Environment of the kill loop: supervised processes on their own database, sample documents, result snapshots."""

import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
import psycopg
import requests
from psycopg.conninfo import make_conninfo

from accessa.server.supervisor import Child, Program
from jobs.choices import Stage
from testing.chaos import queues
from testing.cluster import MANAGE, SECRET, copy_database, database_url
from testing.pdfs import text_pdf
from testing.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
WRITES = ("queued", "parsing", "chunking", "chunks_buffered", "embedding", "embeddings_buffered")
POINTS = (
    *(f"{stage}:{edge}" for stage in Stage.values for edge in ("begin", "end")),
    *(f"{stage}:{edge}" for stage in WRITES for edge in ("before-commit", "after-commit")),
    "parsing:stored",
    "embedding:answered",
    *(f"chain:{moment}" for moment in ("middle", "before-commit", "after-commit")),
)
VENDOR_POINTS = tuple(f"job_validated:{edge}" for edge in ("before-commit", "after-commit", "uploaded", "submitted"))
LEASE, BATCH, IN_FLIGHT, WORKERS, USERS = 3.0, 2, 3, 3, 5
PROMPT = 8.0  # seconds: how long a lease may be over while there is a cluster, which looks twice a second
AT_A_TIME = 12  # documents under way while the killing lasts
SETTINGS = {
    "EMBEDDER": "testing.embedders.CountingEmbedder",
    "EMBED_BATCH": str(BATCH),
    "WORKERS": str(WORKERS),
    "WEB_WORKERS": "1",
    "JOBS_LEASE_SECONDS": str(LEASE),
    "JOBS_HANG_SECONDS": "3",
    "JOBS_RETRY_BASE_SECONDS": "0.5",
    "JOBS_PERIODIC_SECONDS": "1",
    "UPLOADS_PER_DAY": "1000000",
    "SUPABASE_JWT_SECRET": SECRET,
    "LOG_LEVEL": "WARNING",
}
# With vendors: a fifth of LlamaParse's callbacks is lost, a tenth comes twice.
VENDORS = {
    "EMBEDDER": "openai",
    "PARSE_POLL_FIRST_SECONDS": "1",
    "PARSE_POLL_MOST_SECONDS": "2",
    "VENDOR_TIMEOUT_SECONDS": "5",
}
FAKES = ("--llamaparse-port", "0", "--openai-port", "0", "--p-lost", "0.2", "--p-doubled", "0.1")
# Every purchased vector that was ever committed to the buffer: the buffer itself is emptied. Purchases come by COPY;
# an INSERT copies a vector that the tenant or the document has already.
LEDGER = """
    CREATE TABLE committed_vectors (chunk_id uuid, at timestamptz DEFAULT clock_timestamp());
    CREATE FUNCTION note_vector() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO committed_vectors VALUES (NEW.chunk_id); RETURN NULL; END';
    CREATE TRIGGER vector_bought AFTER INSERT ON document_vector_buffer
        FOR EACH ROW WHEN (current_query() LIKE 'COPY%') EXECUTE FUNCTION note_vector()"""
ROWS = """
    SELECT d.user_id, d.file_sha256, c.chunk_ord, c.chunk_sha, encode(sha256(vector_send(c.embedding)), 'hex'),
           (SELECT encode(sha256(v.vectors), 'hex') FROM sentence_vectors v
            WHERE v.chunk_id = c.chunk_id AND v.chunk_sha = c.chunk_sha)
    FROM documents d JOIN document_chunks c USING (document_id)"""
# Effects that may happen once for each job, whoever dies: the end of each stage, and the end.
REPEATED = """
    SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM events WHERE type IN ('stage_done', 'finalized')
    AND code <> 'UPLOAD_DEDUP_HIT' GROUP BY job_id, payload ->> 'from') e"""
# Since there has been a cluster to see it: a busy machine takes its time to start one.
OVERDUE = """
    SELECT coalesce(extract(epoch FROM max(clock_timestamp() - greatest(j.lease_until, c.started_at))), 0)::float8
    FROM upload_jobs j, clusters c WHERE j.state = 'working' AND c.name = %s"""
ACTIVE = "SELECT count(*) FROM upload_jobs WHERE state IN ('queued', 'working', 'retryable')"
# Who dies at random moments, in turn.
DECK = ("worker", "web", "worker", "worker", "cluster", "worker", "web", "worker", "worker")
# A job on its last try: one more death would rightly make it a dead letter, so nobody is killed at random meanwhile.
LAST_TRY = """
    SELECT count(*) FROM upload_jobs
    WHERE (state = 'queued' AND attempts >= 3) OR (state = 'working' AND attempts >= 4)"""
SENTENCES_WAIT = "SELECT count(*) FROM sentence_vectors WHERE vectors IS NULL"
STATES = "SELECT state, count(*) FROM upload_jobs WHERE pipeline = 'insurance' GROUP BY 1"
DEAD = "SELECT last_error ->> 'code' || ' at ' || stage FROM upload_jobs WHERE state = 'deadletter'"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class SampleDocument:
    """A document somebody uploads."""

    user: UUID
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def sample_documents(seed: int) -> Iterator[SampleDocument]:
    """Yield documents without end, the same for the same seed: real plans first, then small generated ones."""
    plans = sorted((ROOT / "samples").glob("*.pdf"))
    plans += sorted(path for path in (ROOT.parent / "shared/pdfs/plans").glob("*.pdf") if path.stat().st_size < 200_000)
    contents = [path.read_bytes() for path in plans]
    dice = random.Random(seed)
    for number in count():
        user = UUID(int=0xCA05 + number % USERS)
        yield SampleDocument(user, contents[number] if number < len(contents) else _small(dice, number))


def _small(dice: random.Random, number: int) -> bytes:
    words = ("deductible", "copay", "network", "claim", "referral", "coverage", "annual", "limit", "drug", "visit")
    lines = [" ".join(dice.choices(words, k=9)) for _ in range(40)]
    return text_pdf(*("\n".join([f"Plan {number} page {page}", *lines[page::3], *lines]) for page in range(3)))


@dataclass
class Snapshot:
    """What a run left behind."""

    rows: Counter[Row]
    jobs: Counter[str]
    bought: int
    committed: Counter[UUID]
    repeated: int
    findings: str
    deliveries: queues.Deliveries = field(default_factory=queues.Deliveries)
    expected: tuple[str, ...] = POINTS
    parses: Counter[str] = field(default_factory=Counter)
    callbacks: Mapping[str, int] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    overdue: float = 0.0
    taken: int = 0


class World:
    """The product on a database and a folder of its own, and the supervisor that keeps it up."""

    def __init__(
        self,
        params: Mapping[str, str],
        folder: Path,
        name: str,
        *,
        vendors: bool = False,
        has_queues: bool = False,
        sentence_model: str = "none",
    ) -> None:
        self.sentence_model = sentence_model
        self.params, self.name, self.folder = params, f"{name}_{os.getpid()}", folder / name
        self.armed = self.folder / "armed"
        self.armed.mkdir(parents=True)
        self.ledger = self.folder / "purchases"
        self.ledger.touch()
        self.parses = self.folder / "parses"
        self.parses.touch()
        self.points = POINTS + VENDOR_POINTS * vendors + queues.POINTS * has_queues
        self.fakes = self._start_fakes() if vendors else None
        with self.connect("postgres") as connection:
            copy_database(connection, self.name, template=params["dbname"])
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = self.connect(self.name)
        self.database.execute(LEDGER)
        self.queues = queues.Queues(self.database, self.armed) if has_queues else None
        bind = ["--bind", f"127.0.0.1:{self.port}"]
        api = [
            sys.executable,
            "-m",
            "gunicorn",
            "accessa.wsgi:application",
            "-c",
            "python:accessa.server.gunicorn_conf",
            *bind,
        ]
        self.web = Child(Program("web", api, ROOT, self.environment))
        self.cluster = Child(Program("cluster", [*MANAGE, "qcluster"], ROOT, self.environment))

    def _start_fakes(self) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        """Start the vendors; they are never killed."""
        ledgers = ["--openai-ledger", str(self.ledger), "--llamaparse-ledger", str(self.parses)]
        command = [sys.executable, "-m", "testing.fakes", *FAKES, *ledgers]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        return process, json.loads(process.stdout.readline())

    @property
    def _vendors(self) -> dict[str, str]:
        if self.fakes is None:
            return {}
        _, fakes = self.fakes
        return VENDORS | {
            "LLAMAPARSE_API_KEY": fakes["llamaparse"]["key"],
            "LLAMAPARSE_BASE_URL": fakes["llamaparse"]["url"],
            "LLAMAPARSE_CALLBACK_URL": f"{self.url}/webhooks/llamaparse",
            "OPENAI_API_KEY": fakes["openai"]["key"],
            "OPENAI_BASE_URL": fakes["openai"]["url"],
        }

    @property
    def environment(self) -> dict[str, str]:
        return (
            SETTINGS
            | self._vendors
            | (queues.SETTINGS if self.queues else {})
            | {
                "SENTENCE_MODEL": self.sentence_model,
                "DATABASE_URL": database_url({**self.params, "dbname": self.name}),
                "STORAGE_ROOT": str(self.folder / "storage"),
                "PUBLIC_URL": self.url,
                "ACCESSA_PURCHASES": str(self.ledger),
                "ACCESSA_FAILPOINTS": str(self.armed),
            }
        )

    def connect(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo(**{**self.params, "dbname": database}), autocommit=True)

    def value(self, sql: str, *params: object) -> Any:
        row = self.database.execute(sql, params or None).fetchone()
        return row and row[0]

    def has_work(self) -> bool:
        """Tell whether a job is under way, or a passage waits for its sentence vectors."""
        return bool(self.value(ACTIVE) or self.value(SENTENCES_WAIT))

    def overdue_seconds(self) -> float:
        """Return how long the oldest expired lease has been over without the running cluster's notice."""
        process = self.cluster.process
        return float(self.value(OVERDUE, f"{socket.gethostname()}:{process.pid}")) if process else 0.0

    def restart_processes(self) -> None:
        """Start what is not there, start again what died: what a supervisor does, without its growing patience."""
        for child in (self.web, self.cluster):
            if child.process is None or child.reap() is not None:
                child.start()

    def upload(self, paper: SampleDocument) -> None:
        """Declare and put one document, as a client that goes on until it is through."""
        declared = {
            "filename": "plan.pdf",
            "bytes_len": len(paper.content),
            "mime": "application/pdf",
            "sha256": paper.sha256,
        }
        put = None
        while not (put and put.ok):
            answer = self._post("upload", paper.user, declared)
            with suppress(requests.RequestException):
                put = requests.put(
                    answer["signed_url"], paper.content, headers={"Content-Type": "application/pdf"}, timeout=10
                )

    def subscribe(self) -> None:
        """Let each user have a webhook for documents that are done, if the world has queues."""
        for number in range(USERS if self.queues else 0):
            endpoint = {"url": f"{self.queues.receiver.url}/hook", "events": ["document.completed"]}  # type: ignore[union-attr]
            self._post("webhook-endpoints", UUID(int=0xCA05 + number), endpoint)

    def _post(self, path: str, user: UUID, body: Mapping[str, Any]) -> Any:
        """Post until it is answered. Raises ``RuntimeError`` when it is refused."""
        claims = {"sub": str(user), "aud": "authenticated", "exp": time.time() + 3600}
        headers = {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}
        while True:
            with suppress(requests.RequestException):
                answer = requests.post(f"{self.url}/{path}", json=body, headers=headers, timeout=10)
                if answer.ok:
                    return answer.json()
                if answer.status_code < 500:
                    raise RuntimeError(f"It was refused: {answer.text}")
            time.sleep(0.1)

    def snapshot(self) -> Snapshot:
        audit = subprocess.run(
            [*MANAGE, "audit_jobs"],
            cwd=ROOT,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        states = self.database.execute(STATES).fetchall()
        bought = self.ledger.read_text().count("\n")
        committed = self.database.execute("SELECT chunk_id FROM committed_vectors").fetchall()
        return Snapshot(
            rows=Counter(self.database.execute(ROWS).fetchall()),
            jobs=Counter(dict(states)),
            bought=bought,
            committed=Counter(row[0] for row in committed),
            repeated=int(self.value(REPEATED)),
            dead=[row[0] for row in self.database.execute(DEAD).fetchall()],
            deliveries=self.queues.deliveries() if self.queues else queues.Deliveries(),
            expected=self.points,
            parses=Counter(self.parses.read_text().split()),
            callbacks=self._callbacks(),
            findings="" if audit.returncode == 0 else audit.stdout + audit.stderr[-2000:],
        )

    def _callbacks(self) -> Mapping[str, int]:
        if self.fakes is None:
            return {}
        callbacks: dict[str, int] = requests.get(self.fakes[1]["llamaparse"]["control"], timeout=10).json()["callbacks"]
        return callbacks

    def close(self) -> None:
        if self.fakes is not None:
            self.fakes[0].terminate()
            self.fakes[0].communicate()
        for child in (self.web, self.cluster):
            with suppress(ProcessLookupError):
                child.kill()
            if child.process:
                child.process.wait()
        if self.queues:
            self.queues.close()
        self.database.close()
        with self.connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


@contextmanager
def world(
    params: Mapping[str, str],
    folder: Path,
    name: str,
    *,
    vendors: bool = False,
    has_queues: bool = False,
    sentence_model: str = "none",
) -> Iterator[World]:
    """Run the product on a copy of the migrated, empty database of ``params``, until the end of the block."""
    started = World(params, folder, name, vendors=vendors, has_queues=has_queues, sentence_model=sentence_model)
    try:
        yield started
    finally:
        started.close()
