"""Command recall: compare searches through HNSW indexes with exact ones, on the stored chunks."""

import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from rich.console import Console
from rich.table import Table

from embeddings import active_model
from embeddings.embedders.registry import EmbeddingModel, Vectors
from embeddings.search.hybrid_search import search_snapshot
from embeddings.search.vector_search import Scope, VectorHit, nearest_chunks, nearest_chunks_exact

GOAL = 0.99
CLASSES = (1_000, 30_000)  # and where the exact scan ends
NOISE = 0.015  # of a query vector around its chunk's, in each of 1536 dimensions
TIE = 1e-6
SECONDS = 600.0  # of an exact scan of a large tenant


@dataclass
class Measured:
    """One size class: recall and milliseconds of each query."""

    tenants: int = 0
    recalls: list[float] = field(default_factory=list)
    searched: list[float] = field(default_factory=list)
    scanned: list[float] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return float(np.mean(self.recalls))


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError("must be 1 or more")
    return number


class Command(BaseCommand):
    help = "Compares searches with exact ones, by size of tenant. Exits 1 if a class finds less than 99 %."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queries", type=count, default=20, help="for each tenant")
        parser.add_argument("--tenants", type=count, default=5, help="of each size")
        parser.add_argument("--tenant", type=UUID, help="this one only")
        parser.add_argument("--k", type=count, default=10, help="how many passages a search asks for")
        parser.add_argument("--seed", type=int, default=0, help="another seed takes other tenants and passages")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["seed"] < 0:
            raise CommandError("--seed must be 0 or more.")
        random = np.random.default_rng(options["seed"])
        measurements: dict[int, Measured] = {}
        for largest, user_id, live in _sampled(options["tenant"], options["tenants"], random):
            measured = measurements.setdefault(largest, Measured())
            measured.tenants += 1
            for vector in _query_vectors(user_id, live, options["queries"], random):
                _compare(measured, Scope(user_id, live), vector, options["k"])
        if not any(measured.recalls for measured in measurements.values()):
            raise CommandError("There are no findable passages to measure with.")
        Console(file=self.stdout, width=100).print(_table(measurements, options["k"]))  # type: ignore[arg-type]
        if any(measured.recalls and measured.recall < GOAL for measured in measurements.values()):
            sys.exit(1)


# The number of each tenant's chunks that its active model finds.
SIZES = """
    SELECT l.user_id, count(*) FROM active_models l JOIN ({vectors}) v USING (user_id, embed_model, embed_version)
    WHERE %(tenant)s::uuid IS NULL OR l.user_id = %(tenant)s GROUP BY l.user_id ORDER BY l.user_id"""
COLUMNS = "SELECT user_id, embed_model, embed_version FROM"


def _sampled(tenant: UUID | None, most: int, random: np.random.Generator) -> Iterator[tuple[int, UUID, EmbeddingModel]]:
    """Yield some tenants of each size class, with the class's largest size."""
    vectors = f"{COLUMNS} document_chunks UNION ALL {COLUMNS} shadow_vectors"
    with connection.cursor() as cursor:
        cursor.execute(SIZES.format(vectors=vectors), {"tenant": tenant})
        sizes: list[tuple[UUID, int]] = cursor.fetchall()
    before = 0
    for largest in _classes():
        own = [user_id for user_id, size in sizes if before < size <= largest]
        for at in sorted(random.permutation(len(own))[:most]):
            yield largest, own[at], active_model.active_model(own[at])
        before = largest


def _classes() -> list[int]:
    """Return the largest size of each class. No class mixes tenants that are scanned and tenants with an index."""
    return sorted({*CLASSES, settings.SEARCH_EXACT_PASSAGES, sys.maxsize})


def _query_vectors(user_id: UUID, live: EmbeddingModel, most: int, random: np.random.Generator) -> Iterator[Vectors]:
    """Yield stored vectors from all over the tenant's documents, each with a little noise."""
    table = "shadow_vectors" if live.shadowed else "document_chunks"
    sql = f"""SELECT embedding::real[] FROM {table} WHERE user_id = %s AND embed_model = %s AND embed_version = %s
              ORDER BY hashtextextended(chunk_id::text, %s) LIMIT %s"""
    with connection.cursor() as cursor:
        cursor.execute(sql, [user_id, live.model, live.version, int(random.integers(2**31)), most])
        rows = cursor.fetchall()
    for (row,) in rows:
        yield (np.asarray(row) + NOISE * random.normal(size=len(row))).astype("f4")


def _compare(measured: Measured, scope: Scope, vector: Vectors, k: int) -> None:
    with search_snapshot(scope.user_id, scope.live, seconds=SECONDS):
        hits = _timed(measured.searched, lambda: nearest_chunks(scope, vector, k))
        best = _timed(measured.scanned, lambda: nearest_chunks_exact(scope, vector, k))
    if best:
        measured.recalls.append(sum(hit.similarity >= best[-1].similarity - TIE for hit in hits) / len(best))


def _timed(into: list[float], ask: Callable[[], list[VectorHit]]) -> list[VectorHit]:
    began = time.perf_counter()
    hits = ask()
    into.append((time.perf_counter() - began) * 1000)
    return hits


def _table(measurements: dict[int, Measured], k: int) -> Table:
    table = Table("passages", "tenants", "queries", f"recall@{k}", "worst", "search ms", "exact ms")
    for largest, measured in sorted(measurements.items()):
        if not measured.recalls:
            continue
        size = f"up to {largest:,}" if largest < sys.maxsize else f"over {_classes()[-2]:,}"
        times = [
            f"{np.percentile(ms, 50):.1f} / {np.percentile(ms, 95):.1f}" for ms in (measured.searched, measured.scanned)
        ]
        recall = f"{measured.recall:.4f}", f"{min(measured.recalls):.2f}"
        table.add_row(size, str(measured.tenants), str(len(measured.recalls)), *recall, *times)
    table.caption = "milliseconds: p50 / p95"
    return table
