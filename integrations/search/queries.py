"""The two arms of a search of records, each over both tables: by vector, and by word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction

from embeddings.search.bm25_search import TextHit
from embeddings.search.vector_search import PLANNER_SETTINGS, VectorHit
from integrations.search.scope import SearchScope, TableScope

# The nearest by their signs, which are then compared by their vectors: exact for whoever has no more. Among 50,000
# texts of the model with the fewest signs, 99.9 % of the 10 nearest are found, and 99.3 % of the 50 nearest.
COMPARED = 4_000

ANY = """
    SELECT EXISTS (SELECT FROM {table} c WHERE c.user_id = %(user)s AND c.embedding_model = %(model)s AND {findable})"""
# The signs are read from the index alone. By an array, so that a planner that takes the tenant for a small one reads
# its rows once at most, and not once for each that was chosen.
NEAREST = """
    WITH q AS MATERIALIZED (SELECT %(vector)s::vector(1536) AS v)
    SELECT d.id, d.embedding <=> (SELECT v FROM q) AS distance FROM {table} d
    WHERE d.user_id = %(user)s AND d.id = ANY(ARRAY(
        SELECT c.id FROM {table} c
        WHERE c.user_id = %(user)s AND c.embedding_model = %(model)s AND {findable}{required}
        ORDER BY c.embedding_signs <~> (SELECT binary_quantize(v)::bit(1536) FROM q) LIMIT %(compared)s))
    ORDER BY distance, d.id LIMIT %(n)s"""
REQUIRED = " AND c.search @@ %(required)s::tsquery"
# Restricts itself to whoever asks: an index over words does not serve under row-level security.
WITH_WORDS = "SELECT id, score FROM {function}(%(words)s, %(required)s::tsquery, %(sources)s::uuid[], %(n)s)"


def has_vectors(scope: SearchScope) -> bool:
    """Tell whether the vector arm can find anything: for nothing, no query is embedded."""
    return any(
        _rows(ANY.format(table=part.table, findable=part.findable), _values(scope, part))[0][0] for part in scope.parts
    )


def nearest_records(scope: SearchScope, vector: Sequence[float], n: int) -> list[VectorHit]:
    """Return the ``n`` records nearest to ``vector``, the best first. Call inside ``as_tenant``."""
    digits = "[" + ",".join([f"{number:.9g}" for number in vector]) + "]"
    found: list[tuple[float, Any]] = []
    for part in scope.parts:
        sql = NEAREST.format(table=part.table, findable=part.findable, required=REQUIRED if scope.required else "")
        values = _values(scope, part) | {"vector": digits, "compared": max(COMPARED, n), "n": n}
        found += [(distance, record_id) for record_id, distance in _pinned(sql, values)]
    return [VectorHit(record_id, 1.0 - distance) for distance, record_id in sorted(found)[:n]]


def keyword_matches(scope: SearchScope, lexemes: Sequence[str], n: int) -> list[TextHit]:
    """Return the ``n`` best records in which any of ``lexemes`` stands. Call inside ``as_tenant``."""
    found: list[tuple[Any, float]] = []
    for part in scope.parts if lexemes else ():
        values = _values(scope, part) | {"words": list(lexemes), "n": n}
        found += _rows(WITH_WORDS.format(function=part.function), values)
    return [TextHit(*row) for row in sorted(found, key=lambda row: (-row[1], row[0]))[:n]]


def _values(scope: SearchScope, part: TableScope) -> dict[str, Any]:
    return {
        "user": scope.user_id,
        "model": scope.model,
        "required": scope.required,
        "sources": list(part.source_ids),
    }


def _rows(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _pinned(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rolled back, the savepoint takes the settings along; nothing else has happened in it."""
    calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in PLANNER_SETTINGS.items())
    with transaction.atomic():
        _rows(f"SELECT {calls}", {})
        rows = _rows(sql, values)
        transaction.set_rollback(True)
    return rows
