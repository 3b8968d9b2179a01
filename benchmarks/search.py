"""Latency of hybrid search for a small, a 1 % and a 30 % tenant, and its growth, against one shared index."""

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from os import getloadavg
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
from django.conf import settings
from django.db import connection

from accounts.rls import as_tenant
from benchmarks import database
from benchmarks.baselines import shared_index
from benchmarks.report import Result, percentile, print_progress
from embeddings import hnsw_indexes
from embeddings.embedders.registry import EmbeddingModel, Vectors
from embeddings.models import DocumentChunk, VectorIndex
from embeddings.search import bm25, posting_segments
from embeddings.search.hybrid_search import search, search_snapshot
from embeddings.search.vector_search import Scope, nearest_chunks_exact
from testing.factories import vectors as stored

SUMMARY = __doc__
K = 10
LIVE = EmbeddingModel("known", "1")
WORDS, VOCABULARY = 130, 20_000
SMALL = 500  # passages of each of the many others
BATCH = 10_000  # passages that are made at once: their random numbers take 200 MB
LARGE = "tenant_of_30_percent"
SHARES = {LARGE: 0.3, "tenant_of_1_percent": 0.01}
MILLION = 1_000_000
LATE, LATE_GOAL, RECALL_GOAL = 75_000, 40.0, 0.99
TABLES = ("document_chunks", "document_terms", "posting_blocks", "posting_segments")


class KnownEmbedder:
    """Vectors that are known beforehand: what a question's embedding costs is not measured here."""

    model, version, batch_size = LIVE.model, LIVE.version, 256
    vectors: ClassVar[dict[str, Any]] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([self.vectors[text] for text in texts], dtype="f4")


def sizes(text: str) -> list[int]:
    numbers = sorted(int(part) for part in text.split(","))
    if not numbers or numbers[0] < 2 * SMALL:
        raise ArgumentTypeError(f"must be numbers of at least {2 * SMALL}, with commas between them")
    return numbers


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--sizes", type=sizes, default="100000", help="of the table; several show how it grows")
    parser.add_argument("--queries", type=int, default=200, help="of each tenant at each size")


def measure(options: Namespace) -> Result:
    settings.EMBEDDER = "benchmarks.search.KnownEmbedder"
    tenant_sizes, queries = ([1_000, 2_000], 10) if options.quick else (options.sizes, options.queries)
    if options.quick:
        settings.SEARCH_EXACT_PASSAGES = 200
    world = Corpus()
    grown: list[dict[str, Any]] = []
    shared: dict[str, list[float]] = {}
    for size in tenant_sizes:
        world.grow(size)
        grown.append(world.measure(queries))
        print_progress(size, "passages:", grown[-1]["p95_ms"])
        if not shared:  # of the smallest size: building one index over a million takes an hour
            with shared_index.shared_index():
                shared = {name: world.time_queries(name, max(queries // 4, 10), _search_shared) for name in SHARES}
    late = world.measure_late(queries, LATE if tenant_sizes[-1] == MILLION else world.sizes()[LARGE] // 4)
    last, worst_shared = grown[-1]["p95_ms"], max(percentile(ms, 0.95) for ms in shared.values())
    goals = _goals(tenant_sizes[-1])
    met = {name: last[name] <= goal for name, goal in goals.items()}
    met["late"] = late["p95_ms"] <= LATE_GOAL
    met["recall"] = min(late["recall"], *(each["recall_of_vectors"] for each in grown)) >= RECALL_GOAL
    return Result(
        name="search",
        value=last[LARGE],
        unit="ms p95 of the largest tenant, without the query's embedding and the second stage",
        against="one HNSW index over all tenants with iterative scan, ts_rank, fused; in the table of the first size",
        ratio=worst_shared / max(grown[0]["p95_ms"].values()),
        goal=goals[LARGE],
        ok=all(met.values()),
        details={
            "passages": tenant_sizes[-1],
            "queries": queries * len(last),
            "load": getloadavg()[0],
            "goals": goals | {"late": LATE_GOAL, "recall": RECALL_GOAL},
            "met": met,
            "sizes": {str(size): each for size, each in zip(tenant_sizes, grown, strict=True)},
            "late": late,
            "shared_p95_ms": {name: percentile(ms, 0.95) for name, ms in shared.items()},
        },
    )


def _goals(size: int) -> dict[str, float]:
    """Return the milliseconds of each tenant: those of a larger table are for its large tenant."""
    small = {"tenant_of_1_percent": 6.0, "small_tenant": 6.0} if size <= 100_000 else {}
    return {LARGE: 12.0 if size <= 100_000 else 25.0} | small


class Corpus:
    """A table in which two tenants have their shares and many small ones the rest."""

    def __init__(self) -> None:
        self.tenants = {name: UUID(int=at) for at, name in enumerate([*SHARES, "small_tenant"], 1)}
        self.seconds: dict[str, float] = {}  # of the last size
        self._others = 0
        self._held: dict[UUID, list[UUID]] = {}  # chunks of each tenant
        self._chance = np.random.default_rng(1)
        letters = self._chance.integers(97, 123, size=(VOCABULARY, 7)).astype("uint8")
        self._words = np.array([row.tobytes().decode() for row in letters])
        odds = 1 / np.arange(1, VOCABULARY + 1)  # as in any language: few words are most of the text
        self._odds = odds / odds.sum()

    def sizes(self) -> dict[str, int]:
        return {name: len(self._held[user_id]) for name, user_id in self.tenants.items()}

    def grow(self, size: int) -> None:
        """Add passages until the table has ``size`` of them, each tenant its share, and tend the indexes."""
        began = time.perf_counter()
        for name, share in SHARES.items():
            self._add(self.tenants[name], int(size * share))
        self._add(self.tenants["small_tenant"], SMALL)
        while sum(map(len, self._held.values())) < size:
            self._others += 1
            self._add(UUID(int=1000 + self._others), SMALL)
        self.seconds = {"adding": time.perf_counter() - began}
        self._merge_words()
        print_progress("Building the indexes of tenants that have outgrown the exact scan")
        began = time.perf_counter()
        for user_id in self.tenants.values():
            hnsw_indexes.build_index(user_id, LIVE)
        self.seconds["building vector indexes"] = time.perf_counter() - began

    def _merge_words(self) -> None:
        began = time.perf_counter()
        posting_segments.merge_due()
        self.seconds["merging words"] = time.perf_counter() - began
        database.analyze_tables("documents", *TABLES)

    def _add(self, user_id: UUID, size: int) -> None:
        """Passages as an ingested document leaves them: text, its words counted, vector."""
        chunk_ids = self._held.setdefault(user_id, [])
        while missing := min(size - len(chunk_ids), BATCH):
            if missing < 0:
                return
            texts = [" ".join(words) for words in self._chance.choice(self._words, (missing, WORDS), p=self._odds)]
            rows = stored.generate_vectors(missing, seed=user_id.int + 7 * len(chunk_ids))
            written = stored.store_vectors(user_id, rows, live=LIVE, texts=texts)
            for document_id in dict.fromkeys(written.document_ids):
                bm25.index_document(document_id)
            chunk_ids += written.chunk_ids

    def questions(self, name: str, queries: int) -> Iterator[tuple[UUID, str, Any]]:
        """Words out of a passage, and a vector near its own."""
        chunk_ids = self._held[self.tenants[name]]
        asked = [chunk_ids[at] for at in self._chance.integers(0, len(chunk_ids), queries)]
        passages = DocumentChunk.objects.in_bulk(asked)
        for at, chunk_id in enumerate(asked):
            words = self._chance.choice(passages[chunk_id].text.split(), 6)
            vector = np.array(passages[chunk_id].embedding, "f4")
            yield self.tenants[name], " ".join(words), stored.perturb_vectors(vector[None], seed=at)[0]

    def time_queries(self, name: str, queries: int, ask: Callable[[UUID, str, Any], object]) -> list[float]:
        """Return each query's milliseconds; the first few, which load what is cold, are not counted."""
        times = []
        for user_id, text, vector in self.questions(name, queries + 5):
            KnownEmbedder.vectors[text] = vector
            began = time.perf_counter()
            ask(user_id, text, vector)
            times.append((time.perf_counter() - began) * 1000)
        return times[5:]

    def measure(self, queries: int) -> dict[str, Any]:
        """Return what the present size costs."""
        times = {name: self.time_queries(name, queries, _search_first_stage) for name in self.tenants}
        whole = {name: self.time_queries(name, queries, _search_ours) for name in self.tenants}
        return {
            "tenants": self.sizes(),
            "p50_ms": {name: percentile(ms, 0.5) for name, ms in times.items()},
            "p95_ms": {name: percentile(ms, 0.95) for name, ms in times.items()},
            "p95_ms_with_second_stage": {name: percentile(ms, 0.95) for name, ms in whole.items()},
            "recall_of_vectors": min(self.recall(name, min(queries, 50)) for name in SHARES),
            "vector_indexes": list(VectorIndex.objects.order_by("upto").values_list("passages", flat=True)),
            "seconds": dict(self.seconds),
            "disk_mb": _disk_megabytes(),
            "load": getloadavg()[0],
        }

    def measure_late(self, queries: int, late: int) -> dict[str, Any]:
        """Return what the large tenant's queries cost while so many of its passages are in no vector index."""
        self._add(self.tenants[LARGE], self.sizes()[LARGE] + late)
        self._merge_words()
        times = self.time_queries(LARGE, queries, _search_first_stage)
        recall = self.recall(LARGE, min(queries, 50))
        return {"passages": late, "p95_ms": percentile(times, 0.95), "recall": recall, "load": getloadavg()[0]}

    def recall(self, name: str, queries: int) -> float:
        """How much of the exact answer the vector arm finds."""
        recalls = []
        for user_id, text, vector in self.questions(name, queries):
            KnownEmbedder.vectors[text] = vector
            ours = {passage.chunk_id for passage in search(user_id=user_id, query=text, k=K, mode="vector")}
            with search_snapshot(user_id, LIVE):
                best = nearest_chunks_exact(Scope(user_id, LIVE), vector, K)
            recalls.append(sum(hit.chunk_id in ours for hit in best) / len(best))
        return float(np.mean(recalls))


def _disk_megabytes() -> dict[str, int]:
    """Return the size of each table that search reads, with its indexes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t, pg_total_relation_size(t::regclass) / 1000000 FROM unnest(%s::text[]) t", [list(TABLES)]
        )
        return dict(cursor.fetchall())


def _search_first_stage(user_id: UUID, text: str, vector: Any) -> object:
    return search(user_id=user_id, query=text, k=K, reranks=False)


def _search_ours(user_id: UUID, text: str, vector: Any) -> object:
    return search(user_id=user_id, query=text, k=K)


def _search_shared(user_id: UUID, text: str, vector: Any) -> object:
    with as_tenant(user_id):
        return shared_index.search_hybrid(user_id, LIVE, text, vector, K)
