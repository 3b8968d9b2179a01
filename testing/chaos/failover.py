"""Failover: the primary PostgreSQL dies while documents are taken, its standby is promoted, a new standby follows.

Commits wait for the standby (`synchronous_standby_names`), as docs/operations/deploy.md advises; those that the product
makes with `synchronous_commit=off` do not.
"""

import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import jwt
import psycopg
import requests

from accessa.embedded_postgres import os_user
from accessa.embedded_postgres.server import EmbeddedServer
from testing.chaos.kill_loop import Uploader, check_intake, undisturbed
from testing.chaos.verdict import Verdict, verdict
from testing.chaos.world import ACTIVE, AT_A_TIME, SampleDocument, Snapshot, World, sample_documents
from testing.cluster import MANAGE, SECRET, database_url, wait_until
from testing.standby import administer, start_standby

SYNCHRONOUS = "*"  # any standby: a commit returns once it is on both servers
SETTLED = "SELECT coalesce(array_agg(purchase_id), '{}') FROM purchases WHERE state = 'settled'"
DONE = "SELECT count(*) FROM upload_jobs WHERE state = 'done'"
USER = UUID(int=0xFA11)
NAMED = re.compile(r"^(job|object|file) (?:\w+:)?([0-9a-f-]{36}):")  # in the audit: a job, or a document by its file
JOBS = "SELECT jsonb_object_agg(job_id, document_id) FROM upload_jobs"


class ReplicatedServer:
    """A primary and a streaming standby, each in a folder of its own; libpq finds the primary among the two."""

    def __init__(self, folder: Path, *, is_synchronous: bool = True) -> None:
        self.is_synchronous = is_synchronous
        self.servers = [EmbeddedServer(folder / name / "postgres") for name in ("one", "two")]
        for server in self.servers:
            server.data.parent.mkdir(parents=True)
        self.primary, self.standby = self.servers

    @property
    def params(self) -> dict[str, str]:
        """Return libpq's parameters of whichever server takes writes."""
        return self.primary.params() | {
            "host": ",".join(str(server.socket_folder) for server in self.servers),
            "port": ",".join(server.params()["port"] for server in self.servers),
            "target_session_attrs": "read-write",
        }

    def start(self) -> None:
        self.primary.ensure_running()
        environment = os.environ | {"DATABASE_URL": database_url(self.primary.params())}
        subprocess.run([*MANAGE, "migrate", "-v0"], env=environment, check=True, timeout=120)
        self.add_standby()

    def add_standby(self) -> None:
        """Copy the primary to the other folder and let it follow; from then on commits wait for it."""
        self._administer("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        start_standby(self.standby, primary=self.primary)
        if not self.is_synchronous:
            return
        self._administer(f"ALTER SYSTEM SET synchronous_standby_names = '{SYNCHRONOUS}'", "SELECT pg_reload_conf()")
        wait_until(
            lambda: self._administer("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"), seconds=30
        )

    def cut_replication(self) -> None:
        """Let the standby replay all there is, and receive nothing from then on."""
        position = self._administer("SELECT pg_current_wal_insert_lsn()::text")
        wait_until(
            lambda: administer(self.standby, f"SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn"), seconds=30
        )
        administer(self.standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        wait_until(lambda: not self._administer("SELECT count(*) FROM pg_stat_replication"), seconds=30)

    def fail_over(self) -> float:
        """Kill the primary, promote the standby; return when it took over, by ``time.monotonic``."""
        self.primary.stop("immediate")
        self.primary, self.standby = self.standby, self.primary
        with self.primary.log.open("ab") as output:
            os_user.account_for(self.primary.data).run(
                "pg_ctl", "-D", str(self.primary.data), "-w", "promote", output=output
            )
        return time.monotonic()

    def replace_standby(self) -> None:
        """Make a standby of the folder of the server that died."""
        subprocess.run(["rm", "-rf", self.standby.data], check=True)
        self.add_standby()

    def stop(self) -> None:
        for server in self.servers:
            server.stop("immediate")

    def _administer(self, *statements: str) -> Any:
        return administer(self.primary, *statements)


class ReplicatedWorld(World):
    """The product on a primary with a standby: its connections, and ours, follow the primary."""

    def value(self, sql: str, *params: object) -> Any:
        deadline = time.monotonic() + 60
        while True:
            try:
                return super().value(sql, *params)
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                with suppress(psycopg.OperationalError):
                    self.database = self.connect(self.name)
                time.sleep(0.05)

    def settled_purchases(self) -> set[UUID]:
        return set(self.value(SETTLED))


class Caller(threading.Thread):
    """Calls the API as a member does who does not know of any failover; keeps when each call was answered, and how."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        claims = {"sub": str(USER), "aud": "authenticated", "exp": time.time() + 7200}
        self.headers = {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}
        self.url = f"{world.url}/jobs"
        self.ended = threading.Event()
        self.refused = 0
        self.answers: list[tuple[float, int, bool]] = []  # moment, status, Retry-After

    def run(self) -> None:
        while not self.ended.wait(0.05):
            try:
                answer = requests.get(self.url, headers=self.headers, timeout=30)
            except requests.ConnectionError:
                self.refused += 1  # nobody listens: the API is starting
                continue
            self.answers.append((time.monotonic(), answer.status_code, "Retry-After" in answer.headers))

    def first_success(self, after: float) -> float:
        """Return the moment of the first good answer after ``after``; 0 while there is none."""
        return next((moment for moment, status, _ in list(self.answers) if moment > after and status == 200), 0.0)

    def outcomes(self) -> Iterator[str]:
        for _, status, has_retry_after in self.answers:
            yield f"{status} with Retry-After" if has_retry_after else str(status)


@dataclass
class FailoverReport:
    """``back_seconds``: from each promotion to the API's first good answer. ``lost_purchases`` were settled before."""

    failovers: int
    documents: int = 0
    back_seconds: list[float] = field(default_factory=list)
    lost_purchases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    verdict: Verdict | None = None

    @property
    def ok(self) -> bool:
        """Tell whether nothing was lost, doubled or paid twice. What a local model computes again costs nothing."""
        if self.verdict is None or self.lost_purchases:
            return False
        outcome = self.verdict
        lost = outcome.lost or outcome.unfinished or outcome.findings
        doubled = outcome.duplicated or outcome.paid_twice or outcome.parses_paid_twice
        is_bounded = not outcome.callbacks or outcome.bought_again_after_crash <= outcome.bought_again_bound
        return not lost and not doubled and is_bounded and set(self.answers) <= {"200", "503 with Retry-After"}


def trial(
    folder: Path, *, failovers: int, seed: int = 1, seconds: float = 600, vendors: bool = False
) -> FailoverReport:
    """Let the primary die ``failovers`` times at random moments; compare with the same documents undisturbed."""
    server = ReplicatedServer(folder / "servers")
    try:
        server.start()
        with closing(ReplicatedWorld(server.params, folder, "failing", vendors=vendors)) as world:
            broken, report = _fail_over(world, server, failovers=failovers, seed=seed, seconds=seconds)
        with closing(ReplicatedWorld(server.params, folder, "calm", vendors=vendors)) as world:
            calm = undisturbed(world, taken=broken.taken, seed=seed, seconds=seconds)
    finally:
        server.stop()
    report.verdict = verdict(broken, calm)
    return report


def _fail_over(
    world: ReplicatedWorld, server: ReplicatedServer, *, failovers: int, seed: int, seconds: float
) -> tuple[Snapshot, FailoverReport]:
    """Take documents while servers fail; let the work end."""
    intake, caller = Uploader(world, sample_documents(seed), at_a_time=AT_A_TIME), Caller(world)
    report, dice, deadline = FailoverReport(failovers), Random(seed), time.monotonic() + seconds
    world.restart_processes()
    intake.start()
    caller.start()
    for number in range(failovers):
        if number:
            server.replace_standby()
        done = world.value(DONE)
        wait_until(lambda: world.value(DONE) >= done + 3, seconds=60)  # noqa: B023
        time.sleep(dice.uniform(0, 1))
        settled = world.settled_purchases()
        promoted = server.fail_over()
        wait_until(lambda: caller.first_success(promoted), seconds=60)  # noqa: B023
        report.back_seconds.append(caller.first_success(promoted) - promoted)
        report.lost_purchases += len(settled - world.settled_purchases())
    intake.enough.set()
    while intake.is_alive() or world.value(ACTIVE):
        world.restart_processes()
        check_intake(intake, deadline)
        time.sleep(0.05)
    caller.ended.set()
    snapshot = world.snapshot()
    snapshot.taken, snapshot.kills, snapshot.expected = intake.taken, Counter(cluster=failovers), ()
    report.documents = intake.taken
    report.answers = Counter(caller.outcomes())
    return snapshot, report


@dataclass
class LossReport:
    """An asynchronous standby was promoted without the last commits. ``named`` are the losses that the audit names."""

    lost_documents: set[UUID]
    undone_deletions: set[UUID]
    named: set[UUID]
    findings: list[str]
    before: str

    @property
    def ok(self) -> bool:
        """Tell whether the audit names each lost or returned document, and nothing else; and had no finding before."""
        lost = self.lost_documents | self.undone_deletions
        return bool(self.lost_documents and self.undone_deletions) and self.named == lost and not self.before


def lose_commits(folder: Path, *, documents: int, seed: int = 1, seconds: float = 600) -> LossReport:
    """Lose the last ``documents`` that were done, and as many deletions, in a failover; let the audit name them."""
    server = ReplicatedServer(folder / "servers", is_synchronous=False)
    try:
        server.start()
        with closing(ReplicatedWorld(server.params, folder, "losing")) as world:
            pile = sample_documents(seed)
            world.restart_processes()
            _take(world, islice(pile, documents), seconds=seconds)
            before = world.snapshot().findings
            kept = _document_ids(world)
            server.cut_replication()
            _take(world, islice(pile, documents), seconds=seconds)
            lost = _document_ids(world) - kept
            deleted = {document for document in kept if _delete(world, document)}
            server.fail_over()
            documents_of = world.value(JOBS)  # connects again
            findings = world.snapshot().findings.splitlines()
            returned = deleted & _document_ids(world)
            lost -= _document_ids(world)
    finally:
        server.stop()
    found = [match for line in findings for match in NAMED.findall(line)]
    named = {UUID(documents_of[subject] if kind == "job" else subject) for kind, subject in found}
    return LossReport(lost, returned, named, findings, before)


def _take(world: World, pile: Iterator[SampleDocument], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for document in pile:
        world.upload(document)
    while world.value(ACTIVE):
        world.restart_processes()
        if time.monotonic() > deadline:
            raise TimeoutError("The work did not end in time.")
        time.sleep(0.05)


def _document_ids(world: World) -> set[UUID]:
    return set(world.value("SELECT coalesce(array_agg(document_id), '{}') FROM documents"))


def _delete(world: World, document: UUID) -> bool:
    user = world.value("SELECT user_id FROM documents WHERE document_id = %s", document)
    claims = {"sub": str(user), "aud": "authenticated", "exp": time.time() + 7200}
    headers = {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}
    return requests.delete(f"{world.url}/documents/{document}", headers=headers, timeout=30).ok
