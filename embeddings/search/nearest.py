"""A tenant's passages nearest to a vector: exactly while they are few, through the tenant's own indexes beyond."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from embeddings.embedders import Vectors
from embeddings.live import Live
from embeddings.models import VectorIndex
from embeddings.search.arms import Arm, Scope, arms, compose, is_small

__all__ = ["Hit", "Live", "Scope", "exact", "nearest"]

# What a scan through an index looks at: measured by `benchmarks recall`.
EF_SEARCH, MOST_EF = 80, 1000
SPARE = 20  # more than are wanted, or a quarter more, are compared again by the full vectors
# With filters: then the index gives up, and the scan is exact.
MOST_SCANNED = 8_000
# A sequential scan reads every tenant (86 ms instead of 1.5, FACTS), a sort of everything skips the index, and neither
# compiling nor waiting for a parallel worker pays for milliseconds.
PINNED = {"enable_seqscan": "off", "jit": "off", "max_parallel_workers_per_gather": "0"}
THROUGH_INDEX = {"enable_sort": "off", "hnsw.iterative_scan": "relaxed_order", "hnsw.max_scan_tuples": MOST_SCANNED}


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage and its cosine similarity to what was asked for, -1 to 1."""

    chunk_id: UUID
    similarity: float


def nearest(scope: Scope, vector: Sequence[float] | Vectors, n: int) -> list[Hit]:
    """Return the ``n`` passages nearest to ``vector``, best first; fewer only if there are fewer.

    Call inside ``as_tenant``, or as the application's role. What an index leaves short of ``n``, as a filter can, is
    found by ``exact``.
    """
    indexes = list(_built(scope))
    if not indexes or is_small(scope):
        return exact(scope, vector, n)
    parts = arms(scope, indexes)
    rows = _run(scope, parts, vector, n)
    found = Counter(arm for arm, *_ in rows)
    if any(part.indexed and found[at] < n for at, part in enumerate(parts)):
        return exact(scope, vector, n)
    return _best(rows, n)


def exact(scope: Scope, vector: Sequence[float] | Vectors, n: int) -> list[Hit]:
    """Return what ``nearest`` returns, by comparing every passage in the scope."""
    return _best(_run(scope, arms(scope, []), vector, n), n)


def _built(scope: Scope) -> Any:
    live = scope.live
    own = VectorIndex.objects.filter(user_id=scope.user_id, embed_model=live.model, embed_version=live.version)
    return own.filter(built_at__isnull=False)


def _run(scope: Scope, parts: list[Arm], vector: Sequence[float] | Vectors, n: int) -> list[tuple[int, UUID, float]]:
    if n < 1 or scope.document_ids == ():
        return []
    most = n + max(SPARE, n // 4)
    pinned = PINNED | (THROUGH_INDEX | {"hnsw.ef_search": min(MOST_EF, max(EF_SEARCH, most))} if _mixed(parts) else {})
    # Rolled back, the savepoint takes the settings along; nothing else has happened in it.
    with transaction.atomic(), connection.cursor() as cursor:
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in pinned.items())
        cursor.execute(f"SELECT {calls}")
        cursor.execute(compose(scope, parts, vector, n=n, candidates=most))
        rows: list[tuple[int, UUID, float]] = cursor.fetchall()
        transaction.set_rollback(True)
    return rows


def _mixed(parts: list[Arm]) -> bool:
    return any(part.indexed for part in parts)


def _best(rows: list[tuple[int, UUID, float]], n: int) -> list[Hit]:
    """A passage that moved while it was looked for is in two arms: the later one has it as it is now."""
    distances = {chunk_id: distance for _, chunk_id, distance in rows}
    ranked = heapq.nsmallest(n, distances.items(), key=lambda found: (found[1], found[0]))
    return [Hit(chunk_id, 1.0 - distance) for chunk_id, distance in ranked]
