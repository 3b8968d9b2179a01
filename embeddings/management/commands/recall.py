"""Measure what searching through an index misses, on the passages that are here."""

from __future__ import annotations

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

from accounts.rls import as_tenant
from embeddings import active_model
from embeddings.active_model import EmbeddingModel
from embeddings.embedders import Vectors
from embeddings.search.vector_search import Scope, VectorHit, nearest_chunks, nearest_chunks_exact

GOAL = 0.99
CLASSES = (1_000, 30_000)  # and where the exact scan ends
NOISE = 0.015  # how far from its passage a question is, in each of 1536 directions
TIE = 1e-6


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
    value = int(text)
    if value < 1:
        raise ArgumentTypeError("must be 1 or more")
    return value


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
        chance = np.random.default_rng(options["seed"])
        found: dict[int, Measured] = {}
        for largest, user_id, live in _sampled(options["tenant"], options["tenants"], chance):
            measured = found.setdefault(largest, Measured())
            measured.tenants += 1
            for vector in _questions(user_id, live, options["queries"], chance):
                _compare(measured, Scope(user_id, live), vector, options["k"])
        if not any(measured.recalls for measured in found.values()):
            raise CommandError("There are no findable passages to measure with.")
        Console(file=self.stdout, width=100).print(_table(found, options["k"]))  # type: ignore[arg-type]
        if any(measured.recalls and measured.recall < GOAL for measured in found.values()):
            sys.exit(1)


# The passages of each tenant that its live model finds.
SIZES = """
    SELECT l.user_id, count(*) FROM live_models l JOIN ({vectors}) v USING (user_id, embed_model, embed_version)
    WHERE %(tenant)s::uuid IS NULL OR l.user_id = %(tenant)s GROUP BY l.user_id ORDER BY l.user_id"""
COLUMNS = "SELECT user_id, embed_model, embed_version FROM"


def _sampled(tenant: UUID | None, most: int, chance: np.random.Generator) -> Iterator[tuple[int, UUID, EmbeddingModel]]:
    """Some tenants of each size class, with the class's largest size."""
    vectors = f"{COLUMNS} document_chunks UNION ALL {COLUMNS} shadow_vectors"
    with connection.cursor() as cursor:
        cursor.execute(SIZES.format(vectors=vectors), {"tenant": tenant})
        sizes: list[tuple[UUID, int]] = cursor.fetchall()
    before = 0
    for largest in _classes():
        own = [user_id for user_id, size in sizes if before < size <= largest]
        for at in sorted(chance.permutation(len(own))[:most]):
            yield largest, own[at], active_model.active_model(own[at])
        before = largest


def _classes() -> list[int]:
    """The largest size of each class. In none are tenants that are scanned and tenants that have an index."""
    return sorted({*CLASSES, settings.SEARCH_EXACT_PASSAGES, sys.maxsize})


def _questions(user_id: UUID, live: EmbeddingModel, most: int, chance: np.random.Generator) -> Iterator[Vectors]:
    """Stored vectors from all over the tenant's documents, each moved a little."""
    table = "shadow_vectors" if live.shadowed else "document_chunks"
    sql = f"""SELECT embedding::real[] FROM {table} WHERE user_id = %s AND embed_model = %s AND embed_version = %s
              ORDER BY hashtextextended(chunk_id::text, %s) LIMIT %s"""
    with connection.cursor() as cursor:
        cursor.execute(sql, [user_id, live.model, live.version, int(chance.integers(2**31)), most])
        rows = cursor.fetchall()
    for (row,) in rows:
        yield (np.asarray(row) + NOISE * chance.normal(size=len(row))).astype("f4")


def _compare(measured: Measured, scope: Scope, vector: Vectors, k: int) -> None:
    with as_tenant(scope.user_id):
        hits = _timed(measured.searched, lambda: nearest_chunks(scope, vector, k))
        best = _timed(measured.scanned, lambda: nearest_chunks_exact(scope, vector, k))
    if best:
        measured.recalls.append(sum(hit.similarity >= best[-1].similarity - TIE for hit in hits) / len(best))


def _timed(into: list[float], ask: Callable[[], list[VectorHit]]) -> list[VectorHit]:
    began = time.perf_counter()
    hits = ask()
    into.append((time.perf_counter() - began) * 1000)
    return hits


def _table(found: dict[int, Measured], k: int) -> Table:
    table = Table("passages", "tenants", "queries", f"recall@{k}", "worst", "search ms", "exact ms")
    for largest, measured in sorted(found.items()):
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
