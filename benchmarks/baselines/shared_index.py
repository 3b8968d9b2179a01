"""Baseline for search: one HNSW index over all tenants, and PostgreSQL's own text ranking."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from benchmarks import database
from benchmarks.report import print_progress

CREATE = "CREATE INDEX shared_hnsw ON document_chunks USING hnsw ((embedding::halfvec(1536)) halfvec_cosine_ops)"
ITERATIVE, POST_FILTER = "relaxed_order", "off"
VECTOR = """
    SELECT chunk_id, 1 - (embedding <=> %(vector)s::vector) FROM (
        SELECT chunk_id, embedding FROM document_chunks
        WHERE user_id = %(user)s AND embed_model = %(model)s AND embed_version = %(version)s
        ORDER BY embedding::halfvec(1536) <=> %(vector)s::halfvec(1536) LIMIT %(most)s) found
    ORDER BY 2 DESC LIMIT %(n)s"""
# OR, because AND finds nothing for questions (FACTS).
TEXT = """
    SELECT chunk_id, ts_rank(search, query) FROM document_chunks,
        (SELECT to_tsquery('english', string_agg(quote_literal(word), ' | ')) AS query
         FROM unnest(%(words)s::text[]) word) q
    WHERE user_id = %(user)s AND embed_model = %(model)s AND search @@ query ORDER BY 2 DESC LIMIT %(n)s"""
RRF = 60
CANDIDATES = 50


@contextmanager
def shared_index() -> Iterator[None]:
    """One half-precision HNSW index over everything; gone after the block."""
    print_progress("Building one HNSW index over all tenants")
    with database.connect(user="postgres") as server:
        server.execute("SET maintenance_work_mem = '1GB'")
        server.execute(CREATE)
        server.execute("ANALYZE document_chunks")
        try:
            yield
        finally:
            server.execute("DROP INDEX shared_hnsw")


def search_vectors(
    user_id: UUID, live: Any, vector: Any, n: int, *, scan: str = ITERATIVE, ef: int = 100
) -> list[tuple[UUID, float]]:
    """Search one tenant in the shared index, with pgvector's iterative scan or without it."""
    values = {"user": user_id, "model": live.model, "version": live.version, "n": n, "most": max(40, 2 * n)}
    values["vector"] = "[" + ",".join([f"{number:.9g}" for number in map(float, vector)]) + "]"
    settings = {"enable_sort": "off", "enable_seqscan": "off", "hnsw.iterative_scan": scan, "hnsw.ef_search": str(ef)}
    with transaction.atomic(), connection.cursor() as cursor:
        # The index on the tenant would be preferred to the shared one for the small.
        for name, value in {**settings, "enable_bitmapscan": "off"}.items():
            cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        cursor.execute(VECTOR, values)
        rows: list[tuple[UUID, float]] = cursor.fetchall()
        transaction.set_rollback(True)
    return rows


def search_hybrid(user_id: UUID, live: Any, text: str, vector: Any, k: int) -> list[UUID]:
    """Both arms fused by reciprocal rank, and the texts of what came out."""
    with connection.cursor() as cursor:
        values = {"words": text.split(), "user": user_id, "model": live.model, "n": CANDIDATES}
        cursor.execute(TEXT, values)
        arms = [search_vectors(user_id, live, vector, CANDIDATES), cursor.fetchall()]
        scores: dict[UUID, float] = {}
        for arm in arms:
            for rank, (chunk_id, _) in enumerate(arm):
                scores[chunk_id] = scores.get(chunk_id, 0) + 1 / (RRF + rank)
        best = sorted(scores, key=lambda chunk_id: -scores[chunk_id])[:k]
        cursor.execute("SELECT text, meta FROM document_chunks WHERE chunk_id = ANY(%s)", [best])
        cursor.fetchall()
    return best
