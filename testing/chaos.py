"""The kill loop: the same documents undisturbed and under SIGKILL, and what must be equal afterwards.

Everything is real: the API under gunicorn, `qcluster`, PostgreSQL, SIGKILL. The disturbed run comes first and takes
documents until every death has been died; the undisturbed run then takes the same ones.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
import psutil
import psycopg
import requests
from psycopg.conninfo import make_conninfo

from accessa.supervisor import Child, Program
from jobs.states import Stage
from testing.cluster import MANAGE, SECRET, database_url
from testing.pdfs import text_pdf

ROOT = Path(__file__).resolve().parents[1]
WRITES = ("queued", "parsing", "chunking", "chunks_buffered", "embedding", "embeddings_buffered")
POINTS = (
    *(f"{stage}:{edge}" for stage in Stage.values for edge in ("begin", "end")),
    *(f"{stage}:{edge}" for stage in WRITES for edge in ("before-commit", "after-commit")),
    "parsing:stored",
    "embedding:answered",
)
LEASE, BATCH, WORKERS, USERS = 3.0, 2, 3, 5
RESTART = 8.0  # seconds until a cluster that hangs has been ended and its successor sweeps
AT_A_TIME = 12  # documents under way while the killing lasts
SETTINGS = {
    "EMBEDDER": "testing.embedders.Counting",
    "EMBED_BATCH": str(BATCH),
    "WORKERS": str(WORKERS),
    "WEB_WORKERS": "1",
    "JOBS_LEASE_SECONDS": str(LEASE),
    "JOBS_HANG_SECONDS": "3",
    "JOBS_RETRY_BASE_SECONDS": "0.5",
    "JOBS_SWEEP_SECONDS": "1",
    "UPLOADS_PER_DAY": "1000000",
    "SUPABASE_JWT_SECRET": SECRET,
    "LOG_LEVEL": "WARNING",
}
# Every vector that was ever committed to the buffer: the buffer itself is emptied.
LEDGER = """
    CREATE TABLE committed_vectors (chunk_id uuid, at timestamptz DEFAULT clock_timestamp());
    CREATE FUNCTION note_vector() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO committed_vectors VALUES (NEW.chunk_id); RETURN NULL; END';
    CREATE TRIGGER vector_bought AFTER INSERT ON document_vector_buffer
        FOR EACH ROW EXECUTE FUNCTION note_vector()"""
ROWS = """
    SELECT d.user_id, d.file_sha256, c.chunk_ord, c.chunk_sha, encode(sha256(vector_send(c.embedding)), 'hex')
    FROM documents d JOIN document_chunks c USING (document_id)"""
# Effects that may happen once for each job, whoever dies: the end of each stage, and the end.
REPEATED = """
    SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM events WHERE type IN ('stage_done', 'finalized')
    AND code <> 'UPLOAD_DEDUP_HIT' GROUP BY job_id, payload ->> 'from') e"""
OVERDUE = """
    SELECT coalesce(extract(epoch FROM max(clock_timestamp() - lease_until)), 0)::float8 FROM upload_jobs
    WHERE state = 'working'"""
ACTIVE = "SELECT count(*) FROM upload_jobs WHERE state IN ('queued', 'working', 'retryable')"
# Who dies at random moments, in turn.
DECK = ("worker", "web", "worker", "worker", "cluster", "worker", "web", "worker", "worker")
# A job on its last try: one more death would rightly make it a dead letter, so nobody is killed at random meanwhile.
LAST_TRY = """
    SELECT count(*) FROM upload_jobs
    WHERE (state = 'queued' AND attempts >= 3) OR (state = 'working' AND attempts >= 4)"""
DEAD = "SELECT last_error ->> 'code' || ' at ' || stage FROM upload_jobs WHERE state = 'deadletter'"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Paper:
    """A document somebody uploads."""

    user: UUID
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def papers(seed: int) -> Iterator[Paper]:
    """An endless pile, the same for the same seed: real plans first, then small ones of many words."""
    plans = sorted((ROOT / "samples").glob("*.pdf"))
    plans += sorted(path for path in (ROOT.parent / "shared/pdfs/plans").glob("*.pdf") if path.stat().st_size < 200_000)
    contents = [path.read_bytes() for path in plans]
    dice = random.Random(seed)
    for number in count():
        user = UUID(int=0xCA05 + number % USERS)
        yield Paper(user, contents[number] if number < len(contents) else _small(dice, number))


def _small(dice: random.Random, number: int) -> bytes:
    words = ("deductible", "copay", "network", "claim", "referral", "coverage", "annual", "limit", "drug", "visit")
    lines = [" ".join(dice.choices(words, k=9)) for _ in range(40)]
    return text_pdf(*("\n".join([f"Plan {number} page {page}", *lines[page::3], *lines]) for page in range(3)))


@dataclass
class Found:
    """What a run left behind."""

    rows: Counter[Row]
    jobs: Counter[str]
    bought: int
    committed: Counter[UUID]
    repeated: int
    findings: str
    dead: list[str] = field(default_factory=list)
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    overdue: float = 0.0
    taken: int = 0


class World:
    """The product on a database and a folder of its own, and the supervisor that keeps it up."""

    def __init__(self, params: Mapping[str, str], folder: Path, name: str) -> None:
        self.params, self.name, self.folder = params, f"{name}_{os.getpid()}", folder / name
        self.armed = self.folder / "armed"
        self.armed.mkdir(parents=True)
        self.ledger = self.folder / "purchases"
        self.ledger.touch()
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {self.name} TEMPLATE {params['dbname']}")
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = self.connect(self.name)
        self.database.execute(LEDGER)
        bind = ["--bind", f"127.0.0.1:{self.port}"]
        api = [sys.executable, "-m", "gunicorn", "accessa.wsgi:application", "-c", "python:accessa.gunicorn", *bind]
        self.web = Child(Program("web", api, ROOT, self.environment))
        self.cluster = Child(Program("cluster", [*MANAGE, "qcluster"], ROOT, self.environment))

    @property
    def environment(self) -> dict[str, str]:
        return SETTINGS | {
            "DATABASE_URL": database_url({**self.params, "dbname": self.name}),
            "STORAGE_ROOT": str(self.folder / "storage"),
            "PUBLIC_URL": self.url,
            "ACCESSA_PURCHASES": str(self.ledger),
            "ACCESSA_CRASHPOINTS": str(self.armed),
        }

    def connect(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo(**{**self.params, "dbname": database}), autocommit=True)

    def value(self, sql: str) -> Any:
        row = self.database.execute(sql).fetchone()
        return row and row[0]

    def keep_up(self) -> None:
        """Start what is not there, start again what died: what a supervisor does, without its growing patience."""
        for child in (self.web, self.cluster):
            if child.process is None or child.died() is not None:
                child.start()

    def upload(self, paper: Paper) -> None:
        """Declare and put one document, as a client that goes on until it is through."""
        claims = {"sub": str(paper.user), "aud": "authenticated", "exp": time.time() + 3600}
        headers = {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}
        declared = {
            "filename": "plan.pdf",
            "bytes_len": len(paper.content),
            "mime": "application/pdf",
            "sha256": paper.sha256,
        }
        while True:
            with suppress(requests.RequestException):
                answer = requests.post(f"{self.url}/upload", json=declared, headers=headers, timeout=10)
                put = answer.ok and requests.put(
                    answer.json()["signed_url"], paper.content, headers={"Content-Type": "application/pdf"}, timeout=10
                )
                if put and put.ok:
                    return
                if answer.status_code < 500 and not answer.ok:
                    raise RuntimeError(f"The upload was refused: {answer.text}")
            time.sleep(0.1)

    def look(self) -> Found:
        audit = subprocess.run(
            [*MANAGE, "audit_jobs"],
            cwd=ROOT,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        states = self.database.execute("SELECT state, count(*) FROM upload_jobs GROUP BY 1").fetchall()
        bought = self.ledger.read_text().count("\n")
        committed = self.database.execute("SELECT chunk_id FROM committed_vectors").fetchall()
        return Found(
            rows=Counter(self.database.execute(ROWS).fetchall()),
            jobs=Counter(dict(states)),
            bought=bought,
            committed=Counter(row[0] for row in committed),
            repeated=int(self.value(REPEATED)),
            dead=[row[0] for row in self.database.execute(DEAD).fetchall()],
            findings="" if audit.returncode == 0 else audit.stdout + audit.stderr[-2000:],
        )

    def close(self) -> None:
        for child in (self.web, self.cluster):
            with suppress(ProcessLookupError):
                child.kill()
            if child.process:
                child.process.wait()
        self.database.close()
        with self.connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


class Intake(threading.Thread):
    """Uploads one document after the other, as long as it may and no more than the workers keep up with."""

    def __init__(self, world: World, pile: Iterator[Paper], *, at_a_time: int) -> None:
        super().__init__(daemon=True)
        self.world, self.pile, self.at_a_time = world, pile, at_a_time
        self.enough = threading.Event()
        self.taken = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self.world.connect(self.world.name) as database:
                for paper in self.pile:
                    while not self.enough.is_set() and _one(database, ACTIVE) >= self.at_a_time:
                        time.sleep(0.05)
                    if self.enough.is_set():
                        return
                    self.world.upload(paper)
                    self.taken += 1
        except BaseException as failure:
            self.failure = failure


class Killer:
    """Deaths at the named points, each ``rounds`` times, and ``extra`` at random moments."""

    def __init__(self, world: World, *, rounds: int, extra: int, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.rounds, self.extra = rounds, extra
        self.kills: Counter[str] = Counter()
        self.round = 0
        self.next_at = time.monotonic() + 4.0

    @property
    def satisfied(self) -> bool:
        return not self.extra and self.round == self.rounds and not self._left()

    def _left(self) -> list[Path]:
        return list(self.world.armed.glob("*~*"))

    def tick(self) -> None:
        if self.round < self.rounds and not self._left():
            self.round += 1
            for point in POINTS:
                (self.world.armed / f"{point}~{self.round}").touch()
        if self.extra and time.monotonic() > self.next_at and not self.world.value(LAST_TRY):
            self.extra -= self._kill_somebody()
            self.next_at = time.monotonic() + self.dice.uniform(0.5, 2.5)

    def _kill_somebody(self) -> bool:
        kind = DECK[self.kills.total() % len(DECK)]
        child = self.world.web if kind == "web" else self.world.cluster
        if child.process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            main = psutil.Process(child.process.pid)
            below = main.children(recursive=True)
            if not below:
                return False  # it is only just starting
            # Below a cluster's main process is django-q2's guard: when either dies, so does everybody.
            whom = {"worker": below[1:], "cluster": [main, below[0]], "web": [main, *below]}[kind]
            self.dice.choice(whom or [main]).send_signal(signal.SIGKILL)
            self.kills[kind] += 1
            return True
        return False

    def points(self) -> Counter[str]:
        return Counter(path.name.partition(".")[0] for path in self.world.armed.glob("*.*.*"))


@contextmanager
def world(params: Mapping[str, str], folder: Path, name: str) -> Iterator[World]:
    """The product on a copy of the migrated, empty database that ``params`` name, until the end of the block."""
    made = World(params, folder, name)
    try:
        yield made
    finally:
        made.close()


def disturbed(here: World, *, rounds: int, extra: int, seed: int, seconds: float) -> Found:
    """Take documents, and kill, until every death has been died; then let the work end."""
    killer = Killer(here, rounds=rounds, extra=extra, dice=random.Random(seed))
    intake = Intake(here, papers(seed), at_a_time=AT_A_TIME)
    began, overdue = time.monotonic(), 0.0
    deadline = began + seconds
    here.keep_up()
    intake.start()
    while intake.is_alive() or here.value(ACTIVE):
        here.keep_up()
        killer.tick()
        if killer.satisfied:
            intake.enough.set()
        overdue = max(overdue, here.value(OVERDUE))
        _check(intake, deadline)
        time.sleep(0.05)
    ended = time.monotonic() - began
    found = here.look()
    found.seconds, found.kills, found.points, found.overdue = ended, killer.kills, killer.points(), overdue
    found.taken = intake.taken
    return found


def undisturbed(here: World, *, taken: int, seed: int, seconds: float) -> Found:
    intake = Intake(here, islice(papers(seed), taken), at_a_time=1000)
    began = time.monotonic()
    here.keep_up()
    intake.start()
    while intake.is_alive() or here.value(ACTIVE):
        _check(intake, began + seconds)
        time.sleep(0.1)
    ended = time.monotonic() - began
    found = here.look()
    found.seconds, found.taken = ended, intake.taken
    return found


def _check(intake: Intake, deadline: float) -> None:
    if intake.failure:
        raise intake.failure
    if time.monotonic() > deadline:
        raise TimeoutError("The work did not end in time.")


def trial(
    params: Mapping[str, str], folder: Path, *, rounds: int, extra: int, seed: int = 1, seconds: float = 300
) -> tuple[Found, Found]:
    """Return what the disturbed run left, and what the undisturbed one did."""
    with world(params, folder, "broken") as here:
        broken = disturbed(here, rounds=rounds, extra=extra, seed=seed, seconds=seconds)
    with world(params, folder, "calm") as here:
        calm = undisturbed(here, taken=broken.taken, seed=seed, seconds=seconds)
    return broken, calm


@dataclass(frozen=True)
class Verdict:
    kills: int
    lost: int
    duplicated: int
    paid_twice: int
    bought_again_after_crash: int
    bought_again_bound: int
    points: Mapping[str, int]
    missed_points: list[str]
    unfinished: int
    dead: list[str]
    overdue: float
    findings: str

    @property
    def ok(self) -> bool:
        spotless = not (self.lost or self.duplicated or self.paid_twice or self.unfinished or self.findings)
        bounded = self.bought_again_after_crash <= self.bought_again_bound
        # A lease may run out while the one who sweeps is being restarted itself.
        return spotless and bounded and not self.missed_points and self.overdue < LEASE + RESTART


def verdict(broken: Found, calm: Found) -> Verdict:
    """Compare what a disturbed run left with what an undisturbed one of the same documents left."""
    keys = Counter((user, file, ordinal) for user, file, ordinal, *_ in broken.rows.elements())
    twice = sum(times - 1 for times in keys.values())
    unfinished = sum(broken.jobs.values()) - broken.jobs["done"]
    paid_twice = sum(times - 1 for times in broken.committed.values())
    # A death between the vendor's answer and the commit loses the batch; a death at random may fall there too.
    gaps = sum(broken.points[f"embedding:{edge}"] for edge in ("answered", "before-commit"))
    gaps += broken.kills["worker"] + WORKERS * broken.kills["cluster"]
    return Verdict(
        kills=sum(broken.kills.values()) + sum(broken.points.values()),
        lost=(calm.rows - broken.rows).total() + max(0, broken.taken - sum(broken.jobs.values())),
        duplicated=twice + (broken.rows - calm.rows).total() + broken.repeated,
        paid_twice=paid_twice,
        bought_again_after_crash=broken.bought - sum(broken.committed.values()),
        bought_again_bound=gaps * BATCH,
        points=dict(sorted(broken.points.items())),
        missed_points=[point for point in POINTS if not broken.points[point]],
        unfinished=unfinished,
        dead=broken.dead,
        overdue=broken.overdue,
        findings=broken.findings + calm.findings,
    )


def _one(database: psycopg.Connection[Any], sql: str) -> Any:
    row = database.execute(sql).fetchone()
    return row and row[0]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
