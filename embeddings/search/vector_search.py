"""A tenant's passages nearest to a vector: exactly while they are few, through the tenant's own indexes beyond."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction

from embeddings.active_model import EmbeddingModel
from embeddings.embedders import Vectors
from embeddings.models import VectorIndex
from embeddings.search.vector_sql import IndexSegment, Scope, compose, index_segments, is_small

__all__ = ["EmbeddingModel", "Scope", "VectorHit", "nearest_chunks", "nearest_chunks_exact"]

# What a scan through an index looks at: measured by `benchmarks recall`.
EF_SEARCH, MOST_EF = 80, 1000
SPARE = 20  # more than are wanted, or a quarter more, are compared again by the full vectors
# With filters: then the index gives up, and the scan is exact.
MOST_SCANNED = 8_000
# A sequential scan reads every tenant (86 ms instead of 1.5, FACTS), a sort of everything skips the index, and neither
# compiling nor waiting for a parallel worker pays for milliseconds.
PLANNER_SETTINGS = {"enable_seqscan": "off", "jit": "off", "max_parallel_workers_per_gather": "0"}
PIN = "SELECT {told}; SELECT {given}"
THROUGH_INDEX = {"enable_sort": "off", "hnsw.iterative_scan": "relaxed_order", "hnsw.max_scan_tuples": MOST_SCANNED}
BUILT = """
    SELECT table_name, since, upto FROM vector_indexes
    WHERE user_id = %s AND embed_model = %s AND embed_version = %s AND built_at IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A passage and its cosine similarity to what was asked for, -1 to 1."""

    chunk_id: UUID
    similarity: float


def nearest_chunks(scope: Scope, vector: Sequence[float] | Vectors, n: int) -> list[VectorHit]:
    """Return the ``n`` passages nearest to ``vector``, best first; fewer only if there are fewer.

    Call inside ``as_tenant``, or as the application's role. What an index leaves short of ``n``, as a filter can, is
    found by ``exact``.
    """
    indexes = _built(scope)
    if not indexes or is_small(scope):
        return nearest_chunks_exact(scope, vector, n)
    parts = index_segments(scope, indexes)
    rows = _run(scope, parts, vector, n)
    found = Counter(arm for arm, *_ in rows)
    if any(part.indexed and found[at] < n for at, part in enumerate(parts)):
        return nearest_chunks_exact(scope, vector, n)
    return _best(rows, n)


def nearest_chunks_exact(scope: Scope, vector: Sequence[float] | Vectors, n: int) -> list[VectorHit]:
    """Return what ``nearest`` returns, by comparing every passage in the scope."""
    return _best(_run(scope, index_segments(scope, []), vector, n), n)


def _built(scope: Scope) -> list[VectorIndex]:
    live = scope.live
    with connection.cursor() as cursor:
        cursor.execute(BUILT, [scope.user_id, live.model, live.version])
        return [VectorIndex(table_name=table, since=since, upto=upto) for table, since, upto in cursor.fetchall()]


def _run(
    scope: Scope, parts: list[IndexSegment], vector: Sequence[float] | Vectors, n: int
) -> list[tuple[int, UUID, float]]:
    if n < 1 or scope.document_ids == ():
        return []
    most = n + max(SPARE, n // 4)
    pinned = PLANNER_SETTINGS | (
        THROUGH_INDEX | {"hnsw.ef_search": min(MOST_EF, max(EF_SEARCH, most))} if _mixed(parts) else {}
    )
    told = ", ".join(f"current_setting('{name}', true)" for name in pinned)
    given = ", ".join(f"set_config('{name}', %s, true)" for name in pinned)
    # Set back, not rolled back to a savepoint: after that psycopg forgets all statements that it has prepared.
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.execute(PIN.format(told=told, given=given), [str(value) for value in pinned.values()])
        before = cursor.fetchone()
        cursor.execute(compose(scope, parts, vector, n=n, candidates=most))
        rows: list[tuple[int, UUID, float]] = cursor.fetchall()
        cursor.execute(f"SELECT {given}", before)
    return rows


def _mixed(parts: list[IndexSegment]) -> bool:
    return any(part.indexed for part in parts)


def _best(rows: list[tuple[int, UUID, float]], n: int) -> list[VectorHit]:
    """A passage that moved while it was looked for is in two arms: the later one has it as it is now."""
    distances = {chunk_id: distance for _, chunk_id, distance in rows}
    ranked = heapq.nsmallest(n, distances.items(), key=lambda found: (found[1], found[0]))
    return [VectorHit(chunk_id, 1.0 - distance) for chunk_id, distance in ranked]
