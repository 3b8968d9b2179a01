"""Recall@10 against exact search for tenants with near-identical documents, against one shared HNSW index."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from django.conf import settings

from accounts.rls import as_tenant
from benchmarks import database
from benchmarks.baselines import shared_index
from benchmarks.report import Result, percentile, print_progress
from embeddings import hnsw_indexes
from embeddings.embedders.registry import Vectors
from embeddings.models import VectorIndex
from embeddings.search.hybrid_search import search_snapshot
from embeddings.search.vector_search import Scope, nearest_chunks
from testing.factories import vectors
from testing.factories.vectors import LIVE_MODEL, StoredVectors

SUMMARY = __doc__
GOAL = 0.99
K = 10
TIE_TOLERANCE = 1e-6
# Passages of a tenant, and how many such tenants: the last have indexes, one of them of several segments.
SIZES = ((100, 60), (1_000, 30), (5_000, 6), (10_000, 3), (24_000, 1))
CHANGED_SHARE = 0.2  # of the passages differ from one tenant to the next, in a few words
Search = Callable[[UUID, Any], list[tuple[UUID, float]]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=10_000, help="of ours; the other is asked every tenth")


@dataclass
class SizeScores:
    """What one size of tenant got: recalls and milliseconds of its queries, and passages of others."""

    recalls: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    foreign: int = 0

    @property
    def recall(self) -> float:
        return float(np.mean(self.recalls))


def measure(options: Namespace) -> Result:
    sizes = ((20, 6), (150, 2), (400, 1)) if options.quick else SIZES
    queries = min(options.queries, 90) if options.quick else options.queries
    if options.quick:
        settings.SEARCH_EXACT_PASSAGES = 100
    tenants = _tenants(sizes)
    ours = _search_tenants(tenants, queries, _search_ours)
    with shared_index.shared_index():
        theirs = _search_tenants(tenants, max(queries // 10, len(tenants)), _search_shared)
    worst, shared = (min(scores.recall for scores in each.values()) for each in (ours, theirs))
    foreign = sum(scores.foreign for scores in ours.values())
    return Result(
        name="recall",
        value=worst,
        unit="recall@10 of the worst size",
        against="one HNSW index over all tenants, iterative scan",
        ratio=worst / max(shared, 0.001),
        goal=GOAL,
        ok=worst >= GOAL and foreign == 0,
        details={
            "tenants": len(tenants),
            "passages": sum(size for size, _ in tenants.values()),
            "queries": sum(len(scores.recalls) for scores in ours.values()),
            "foreign_passages": foreign,
            "goal_foreign_passages": 0,
            "indexes": VectorIndex.objects.count(),
            "ours": _summarize(ours),
            "shared": _summarize(theirs),
        },
    )


def _tenants(sizes: tuple[tuple[int, int], ...]) -> dict[UUID, tuple[int, StoredVectors]]:
    """Tenants whose documents say nearly the same; the largest got its own in three parts."""
    base = vectors.generate_vectors(max(size for size, _ in sizes))
    tenants: dict[UUID, tuple[int, StoredVectors]] = {}
    for size, count in sizes:
        for _ in range(count):
            user_id = UUID(int=len(tenants) + 1)
            tenants[user_id] = size, _store_tenant(user_id, _rows(base[:size], user_id))
    database.analyze_tables("document_chunks")
    print_progress(
        len(tenants),
        "tenants,",
        sum(size for size, _ in tenants.values()),
        "passages,",
        VectorIndex.objects.count(),
        "indexes",
    )
    return tenants


def _rows(base: Vectors, user_id: UUID) -> Vectors:
    """Generate a tenant's vectors, the same every time: keeping those of 100 tenants takes half a gigabyte."""
    rows = base.copy()
    changed = np.random.default_rng(user_id.int).random(len(rows)) < CHANGED_SHARE
    rows[changed] = vectors.perturb_vectors(rows[changed], seed=user_id.int, noise=0.005)
    return rows


def _store_tenant(user_id: UUID, rows: Vectors) -> StoredVectors:
    parts = np.array_split(rows, 2) if len(rows) > 2 * settings.SEARCH_EXACT_PASSAGES else [rows]
    written = []
    for part in parts:
        written.append(vectors.store_vectors(user_id, part))
        hnsw_indexes.build_index(user_id, LIVE_MODEL)
    chunk_ids = [chunk_id for part in written for chunk_id in part.chunk_ids]
    return StoredVectors(user_id, chunk_ids, [], rows[:0])


def _search_tenants(tenants: dict[UUID, tuple[int, StoredVectors]], queries: int, ask: Search) -> dict[int, SizeScores]:
    """Run the queries, spread evenly over the sizes."""
    base = vectors.generate_vectors(max(size for size, _ in tenants.values()))
    scores: dict[int, SizeScores] = {size: SizeScores() for size, _ in tenants.values()}
    for size, each in scores.items():
        size_tenants = [stored for of, stored in tenants.values() if of == size]
        for at, stored in enumerate(size_tenants):
            share = queries // len(scores) // len(size_tenants) + (at < queries // len(scores) % len(size_tenants))
            _search_tenant(each, stored, _rows(base[:size], stored.user_id), share, ask)
        print_progress(
            f"{size} passages: recall {each.recall:.4f}, p95 {percentile(each.ms, 0.95):.1f} ms, foreign {each.foreign}"
        )
    return scores


def _search_tenant(scores: SizeScores, stored: StoredVectors, rows: Vectors, queries: int, ask: Search) -> None:
    own_ids = set(stored.chunk_ids)
    chance = np.random.default_rng(stored.user_id.int)
    query_vectors = (
        vectors.perturb_vectors(rows[chance.integers(0, len(rows), queries)], seed=stored.user_id.int)
        if queries
        else rows[:0]
    )
    for vector, least in zip(query_vectors, _exact_thresholds(rows, query_vectors), strict=True):
        began = time.perf_counter()
        hits = ask(stored.user_id, vector)
        scores.ms.append((time.perf_counter() - began) * 1000)
        scores.recalls.append(sum(similarity >= least for _, similarity in hits) / min(K, len(rows)))
        scores.foreign += sum(chunk_id not in own_ids for chunk_id, _ in hits)


def _exact_thresholds(rows: Vectors, query_vectors: Vectors) -> Iterator[float]:
    """How near the tenth of the exact answer is, for each query."""
    for start in range(0, len(query_vectors), 256):
        near = query_vectors[start : start + 256].astype("f8") @ rows.T.astype("f8")
        yield from np.sort(near, axis=1)[:, -min(K, len(rows))] - TIE_TOLERANCE


def _search_ours(user_id: UUID, vector: Any) -> list[tuple[UUID, float]]:
    with search_snapshot(user_id, LIVE_MODEL):
        return [(hit.chunk_id, hit.similarity) for hit in nearest_chunks(Scope(user_id, LIVE_MODEL), vector, K)]


def _search_shared(user_id: UUID, vector: Any) -> list[tuple[UUID, float]]:
    with as_tenant(user_id):
        return shared_index.search_vectors(user_id, LIVE_MODEL, vector, K)


def _summarize(scores: dict[int, SizeScores]) -> dict[str, dict[str, float]]:
    return {
        str(size): {
            "recall": each.recall,
            "worst_query": min(each.recalls),
            "p50_ms": percentile(each.ms, 0.5),
            "p95_ms": percentile(each.ms, 0.95),
        }
        for size, each in scores.items()
    }
