"""Latency of hybrid search for a small, a 1 % and a 30 % tenant, and its growth, against one shared index."""

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from accounts.rls import as_tenant
from benchmarks import database
from benchmarks.baselines import shared_index
from benchmarks.report import Result, percentile, print_progress
from embeddings import hnsw_indexes
from embeddings.embedders.registry import EmbeddingModel, Vectors
from embeddings.models import VectorIndex
from embeddings.search import bm25, posting_segments
from embeddings.search.hybrid_search import search
from embeddings.search.vector_search import Scope, nearest_chunks_exact
from testing.factories import vectors as stored

SUMMARY = __doc__
GOAL = 25.0
K = 10
LIVE = EmbeddingModel("known", "1")
WORDS, VOCABULARY = 130, 20_000
SMALL = 500  # passages of each of the many others
SHARES = {"tenant_of_30_percent": 0.3, "tenant_of_1_percent": 0.01}
MILLION = 1_000_000
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
    grown: dict[int, dict[str, list[float]]] = {}
    for size in tenant_sizes:
        world.grow(size)
        grown[size] = {name: world.time_queries(name, queries, _search_ours) for name in world.tenants}
        print_progress(size, "passages:", {name: f"{percentile(ms, 0.95):.1f} ms" for name, ms in grown[size].items()})
    recall = min(world.recall(name, min(queries, 50)) for name in SHARES)
    late = world.time_late_queries("tenant_of_30_percent", queries)
    with shared_index.shared_index():
        theirs = {name: world.time_queries(name, max(queries // 4, 10), _search_shared) for name in world.tenants}
    last = grown[tenant_sizes[-1]]
    worst, shared = (max(percentile(ms, 0.95) for ms in each.values()) for each in (last, theirs))
    return Result(
        name="search",
        value=worst,
        unit="ms p95, worst tenant",
        against="one HNSW index over all tenants with iterative scan, ts_rank, fused; in the same table",
        ratio=shared / worst,
        goal=GOAL,
        ok=worst <= GOAL,
        details={
            "passages": tenant_sizes[-1],
            "queries": queries * len(last),
            "tenants": world.sizes(),
            "p50_ms": {name: percentile(ms, 0.5) for name, ms in last.items()},
            "p95_ms": {name: percentile(ms, 0.95) for name, ms in last.items()},
            "recall_of_vectors": recall,
            "late_index_p95_ms": percentile(late, 0.95),
            "seconds": {step: round(seconds, 1) for step, seconds in world.seconds.items()},
            "disk_mb": _disk_megabytes(),
            "shared_p95_ms": {name: percentile(ms, 0.95) for name, ms in theirs.items()},
            "growth_p95_ms": {
                str(size): max(percentile(ms, 0.95) for ms in each.values()) for size, each in grown.items()
            },
            **_extrapolated(grown),
        },
    )


def _extrapolated(grown: dict[int, dict[str, list[float]]]) -> dict[str, Any]:
    """Extrapolate, per tenant, a power law through three sizes or more."""
    if len(grown) < 3:
        return {}
    estimates = {}
    for name in next(iter(grown.values())):
        times = [percentile(each[name], 0.95) for each in grown.values()]
        slope, start = np.polyfit(np.log(list(grown)), np.log(times), 1)
        estimates[name] = float(np.exp(start + slope * np.log(MILLION)))
    return {"extrapolated_to_1000000_p95_ms": estimates}


class Corpus:
    """A table in which two tenants have their shares and many small ones the rest."""

    def __init__(self) -> None:
        self.tenants = {name: UUID(int=at) for at, name in enumerate([*SHARES, "small_tenant"], 1)}
        self.seconds = {"merging words": 0.0, "building vector indexes": 0.0}  # of all sizes together
        self._others = 0
        self._held: dict[UUID, list[tuple[str, Any]]] = {}
        self._chance = np.random.default_rng(1)
        letters = self._chance.integers(97, 123, size=(VOCABULARY, 7)).astype("uint8")
        self._words = np.array([row.tobytes().decode() for row in letters])
        odds = 1 / np.arange(1, VOCABULARY + 1)  # as in any language: few words are most of the text
        self._odds = odds / odds.sum()

    def sizes(self) -> dict[str, int]:
        return {name: len(self._held[user_id]) for name, user_id in self.tenants.items()}

    def grow(self, size: int) -> None:
        """Add passages until the table has ``size`` of them, each tenant its share, and tend the indexes."""
        for name, share in SHARES.items():
            self._add(self.tenants[name], int(size * share))
        self._add(self.tenants["small_tenant"], SMALL)
        while sum(map(len, self._held.values())) < size:
            self._others += 1
            self._add(UUID(int=1000 + self._others), SMALL)
        began = time.perf_counter()
        posting_segments.merge_due()
        self.seconds["merging words"] += time.perf_counter() - began
        database.analyze_tables("documents", *TABLES)
        print_progress("Sealing what has outgrown the exact scan")
        began = time.perf_counter()
        for user_id in self.tenants.values():
            hnsw_indexes.build_index(user_id, LIVE)
        self.seconds["building vector indexes"] += time.perf_counter() - began

    def _add(self, user_id: UUID, size: int) -> None:
        """Passages as an ingested document leaves them: text, its words counted, vector."""
        passages = self._held.setdefault(user_id, [])
        missing = size - len(passages)
        if missing <= 0:
            return
        texts = [" ".join(words) for words in self._chance.choice(self._words, (missing, WORDS), p=self._odds)]
        rows = stored.generate_vectors(missing, seed=user_id.int + 7 * len(passages))
        written = stored.store_vectors(user_id, rows, live=LIVE, texts=texts)
        for document_id in dict.fromkeys(written.document_ids):
            bm25.index_document(document_id)
        passages += zip(texts, rows if user_id in self.tenants.values() else [None] * missing, strict=True)

    def questions(self, name: str, queries: int) -> Iterator[tuple[UUID, str, Any]]:
        """Words out of a passage, and a vector near its own."""
        passages = self._held[self.tenants[name]]
        for at in self._chance.integers(0, len(passages), queries):
            text, row = passages[at]
            words = self._chance.choice(text.split(), 6)
            yield self.tenants[name], " ".join(words), stored.perturb_vectors(row[None], seed=int(at))[0]

    def time_queries(self, name: str, queries: int, ask: Callable[[UUID, str, Any], object]) -> list[float]:
        """Return each query's milliseconds; the first few, which load what is cold, are not counted."""
        times = []
        for user_id, text, vector in self.questions(name, queries + 5):
            KnownEmbedder.vectors[text] = vector
            began = time.perf_counter()
            ask(user_id, text, vector)
            times.append((time.perf_counter() - began) * 1000)
        return times[5:]

    def time_late_queries(self, name: str, queries: int) -> list[float]:
        """Return what ``time_queries`` does before the tenant's first vector index is built."""
        indexes = VectorIndex.objects.filter(user_id=self.tenants[name])
        indexes.update(built_at=None)
        times = self.time_queries(name, queries, _search_ours)
        indexes.update(built_at=Now())
        return times

    def recall(self, name: str, queries: int) -> float:
        """How much of the exact answer the vector arm finds."""
        recalls = []
        for user_id, text, vector in self.questions(name, queries):
            KnownEmbedder.vectors[text] = vector
            ours = {passage.chunk_id for passage in search(user_id=user_id, query=text, k=K, mode="vector")}
            with as_tenant(user_id):
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


def _search_ours(user_id: UUID, text: str, vector: Any) -> object:
    return search(user_id=user_id, query=text, k=K)


def _search_shared(user_id: UUID, text: str, vector: Any) -> object:
    with as_tenant(user_id):
        return shared_index.search_hybrid(user_id, LIVE, text, vector, K)
