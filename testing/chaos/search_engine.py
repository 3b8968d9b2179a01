"""Kill loop of the search engine's feed: deaths of senders and of Milvus Lite while documents come, change and go."""

import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.test import override_settings

from documents import services
from documents.models import Document
from embeddings.search import hybrid_search
from embeddings.search_engine import maintenance, milvus_lite, retrieval
from outbox import search_feed
from testing.cluster import Cluster, running_cluster, wait_until
from testing.factories.searchable_documents import create_searchable_document

POINTS = ("outbox:claimed", "outbox:sent", "search_engine:written")
WORKERS, ENGINE = "all workers", "Milvus Lite"
TENANTS = [UUID(int=number) for number in range(1, 6)]
WORDS = (
    *("dental", "hospital", "drug", "deductible", "copay", "referral"),
    *("therapy", "emergency", "vision", "maternity", "appeal", "network"),
)
CHANGES = 3  # of documents, before each kill
CLAIM_SECONDS = 100  # a dead sender's claim lasts a minute and a half


@dataclass
class Trial:
    """What the loop has done, and what its searches and its end showed."""

    kills: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)  # points that no sender reached in time
    changes: int = 0
    searches: int = 0
    different: int = 0  # answers that PostgreSQL alone gives otherwise
    away: int = 0  # searches that PostgreSQL answered because the engine did not
    seconds_to_converge: float = 0.0
    verification: maintenance.Verification = field(default_factory=maintenance.Verification)


class Engine:
    """A server of Milvus Lite that is killed and started again with the same data."""

    def __init__(self, folder: Path, port: int) -> None:
        self._command, self._log = milvus_lite.command(folder / "milvus", port), folder / "milvus.log"
        self.port = port
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def trial(folder: Path, *, port: int, kills: int, seed: int) -> Trial:
    """Kill so many processes, by turns, and wait until the engine has what the rows hold."""
    armed, chosen, done = folder / "armed", random.Random(seed), Trial()
    armed.mkdir(parents=True)
    engine = Engine(folder, port)
    environment: dict[str, Any] = {"SEARCH_ENGINE": "milvus", "MILVUS_URI": f"http://127.0.0.1:{port}"}
    try:
        with override_settings(**environment):
            wait_until(_rebuild, seconds=30)
            with running_cluster(**environment, ACCESSA_FAILPOINTS=armed) as cluster:
                while done.kills.total() + done.missed.total() < kills:
                    _change(chosen, done)
                    kind = (*POINTS, WORKERS, ENGINE)[done.kills.total() % (len(POINTS) + 2)]
                    _kill(kind, cluster, engine, armed, done)
                    _compare(chosen, done)
                began = time.monotonic()
                wait_until(lambda: not search_feed.backlog()[0], seconds=3 * CLAIM_SECONDS, patience=1, pause=0.5)
                done.seconds_to_converge = time.monotonic() - began
            done.verification = maintenance.verify()
    finally:
        engine.kill()
    return done


def _rebuild() -> bool:
    try:
        maintenance.rebuild()
    except ConnectionError:  # it is not up yet
        return False
    return True


def _change(chosen: random.Random, done: Trial) -> None:
    for _ in range(CHANGES):
        owner, texts = chosen.choice(TENANTS), [" ".join(chosen.choices(WORDS, k=12)) for _ in range(4)]
        own = list(Document.objects.filter(user_id=owner).order_by("pk"))
        done.changes += 1
        if len(own) > 8:
            services.delete(chosen.choice(own))
            continue
        with transaction.atomic():
            create_searchable_document(owner, texts)


def _kill(kind: str, cluster: Cluster, engine: Engine, armed: Path, done: Trial) -> None:
    if kind == WORKERS:
        for process in cluster.tree():
            process.kill()
        cluster.process.wait()
        cluster.start()
    elif kind == ENGINE:
        engine.kill()
        engine.start()
    else:
        to_come = armed / f"{kind}~{done.kills.total()}"
        to_come.touch()
        try:
            wait_until(lambda: not to_come.exists(), seconds=20, patience=1)
        except TimeoutError:
            to_come.unlink(missing_ok=True)
            done.missed[kind] += 1
            return
    done.kills[kind] += 1


def _compare(chosen: random.Random, done: Trial) -> None:
    """Search by both engines, as one that has just died or come back."""
    owner, query = chosen.choice(TENANTS), " ".join(chosen.sample(WORDS, 2))
    retrieval._paused_until = 0.0
    answers = []
    for engine in ("milvus", "postgres"):
        with override_settings(SEARCH_ENGINE=engine):
            answers.append([hit.chunk_id for hit in hybrid_search.search(user_id=owner, query=query, k=10)])
    done.searches += 1
    done.away += retrieval._paused_until > 0
    done.different += answers[0] != answers[1]
