"""Recall@10 against exact with tenants of near-identical documents, and foreign passages, against one shared index."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from django.conf import settings

from accounts.rls import as_tenant
from benchmarks import database, shared_index
from benchmarks.report import Result, percentile, say
from embeddings.embedders import Vectors
from embeddings.indexes import hnsw
from embeddings.models import VectorIndex
from embeddings.search.vector_search import Scope, nearest_chunks
from testing.factories import vectors
from testing.factories.vectors import LIVE, Stored

SUMMARY = __doc__
GOAL = 0.99
K = 10
TIE = 1e-6
# Passages of a tenant, and how many such tenants: the last have indexes, one of them of several segments.
SIZES = ((100, 60), (1_000, 30), (5_000, 6), (10_000, 3), (24_000, 1))
CHANGED = 0.2  # of the passages differ from one tenant to the next, in a few words
Ask = Callable[[UUID, Any], list[tuple[UUID, float]]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=10_000, help="of ours; the other is asked every tenth")


@dataclass
class Found:
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
    ours = _asked(tenants, queries, _ours)
    with shared_index.shared_index():
        theirs = _asked(tenants, max(queries // 10, len(tenants)), _theirs)
    worst, shared = (min(found.recall for found in each.values()) for each in (ours, theirs))
    foreign = sum(found.foreign for found in ours.values())
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
            "queries": sum(len(found.recalls) for found in ours.values()),
            "foreign_passages": foreign,
            "goal_foreign_passages": 0,
            "indexes": VectorIndex.objects.count(),
            "ours": _told(ours),
            "shared": _told(theirs),
        },
    )


def _tenants(sizes: tuple[tuple[int, int], ...]) -> dict[UUID, tuple[int, Stored]]:
    """Tenants whose documents say nearly the same; the largest got its own in three parts."""
    base = vectors.vectors(max(size for size, _ in sizes))
    made: dict[UUID, tuple[int, Stored]] = {}
    for size, count in sizes:
        for _ in range(count):
            user_id = UUID(int=len(made) + 1)
            made[user_id] = size, _stored(user_id, _rows(base[:size], user_id))
    database.settle("document_chunks")
    say(
        len(made),
        "tenants,",
        sum(size for size, _ in made.values()),
        "passages,",
        VectorIndex.objects.count(),
        "indexes",
    )
    return made


def _rows(base: Vectors, user_id: UUID) -> Vectors:
    """The same every time: not kept, 100 tenants' vectors are half a gigabyte."""
    rows = base.copy()
    changed = np.random.default_rng(user_id.int).random(len(rows)) < CHANGED
    rows[changed] = vectors.near(rows[changed], seed=user_id.int, noise=0.005)
    return rows


def _stored(user_id: UUID, rows: Vectors) -> Stored:
    parts = np.array_split(rows, 2) if len(rows) > 2 * settings.SEARCH_EXACT_PASSAGES else [rows]
    written = []
    for part in parts:
        written.append(vectors.store(user_id, part))
        hnsw.build_index(user_id, LIVE.model, LIVE.version)
    chunk_ids = [chunk_id for part in written for chunk_id in part.chunk_ids]
    return Stored(user_id, chunk_ids, [], rows[:0])


def _asked(tenants: dict[UUID, tuple[int, Stored]], queries: int, ask: Ask) -> dict[int, Found]:
    """The queries, evenly among the sizes."""
    base = vectors.vectors(max(size for size, _ in tenants.values()))
    found: dict[int, Found] = {size: Found() for size, _ in tenants.values()}
    for size, each in found.items():
        own = [made for of, made in tenants.values() if of == size]
        for at, made in enumerate(own):
            share = queries // len(found) // len(own) + (at < queries // len(found) % len(own))
            _ask(each, made, _rows(base[:size], made.user_id), share, ask)
        say(
            f"{size} passages: recall {each.recall:.4f}, p95 {percentile(each.ms, 0.95):.1f} ms, foreign {each.foreign}"
        )
    return found


def _ask(found: Found, made: Stored, rows: Vectors, queries: int, ask: Ask) -> None:
    own = set(made.chunk_ids)
    chance = np.random.default_rng(made.user_id.int)
    wanted = vectors.near(rows[chance.integers(0, len(rows), queries)], seed=made.user_id.int) if queries else rows[:0]
    for vector, least in zip(wanted, _least(rows, wanted), strict=True):
        began = time.perf_counter()
        hits = ask(made.user_id, vector)
        found.ms.append((time.perf_counter() - began) * 1000)
        found.recalls.append(sum(similarity >= least for _, similarity in hits) / min(K, len(rows)))
        found.foreign += sum(chunk_id not in own for chunk_id, _ in hits)


def _least(rows: Vectors, wanted: Vectors) -> Iterator[float]:
    """How near the tenth of the exact answer is, for each query."""
    for start in range(0, len(wanted), 256):
        near = wanted[start : start + 256].astype("f8") @ rows.T.astype("f8")
        yield from np.sort(near, axis=1)[:, -min(K, len(rows))] - TIE


def _ours(user_id: UUID, vector: Any) -> list[tuple[UUID, float]]:
    with as_tenant(user_id):
        return [(hit.chunk_id, hit.similarity) for hit in nearest_chunks(Scope(user_id, LIVE), vector, K)]


def _theirs(user_id: UUID, vector: Any) -> list[tuple[UUID, float]]:
    with as_tenant(user_id):
        return shared_index.by_vector(user_id, LIVE, vector, K)


def _told(found: dict[int, Found]) -> dict[str, dict[str, float]]:
    return {
        str(size): {
            "recall": each.recall,
            "worst_query": min(each.recalls),
            "p50_ms": percentile(each.ms, 0.5),
            "p95_ms": percentile(each.ms, 0.95),
        }
        for size, each in found.items()
    }
