"""Vector and word queries of a record search, each over both tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction

from embeddings.search.bm25_search import TextHit
from embeddings.search.vector_search import PLANNER_SETTINGS, VectorHit
from integrations.search.scope import SearchScope, TableScope

# Rows with the nearest signs, whose vectors are then compared: exact for tenants with no more rows. Among 50,000 texts
# of the model with the fewest signs, 99.9 % of the 10 nearest are found, and 99.3 % of the 50 nearest.
COMPARED = 4_000

ANY = """
    SELECT EXISTS (SELECT FROM {table} c WHERE c.user_id = %(user)s AND c.embedding_model = %(model)s AND {findable})"""
# The signs are read from the index alone. By an array, so that a planner that underestimates the tenant reads its rows
# once at most, and not once for each candidate.
NEAREST = """
    WITH q AS MATERIALIZED (SELECT %(vector)s::vector(1536) AS v)
    SELECT d.id, d.embedding <=> (SELECT v FROM q) AS distance FROM {table} d
    WHERE d.user_id = %(user)s AND d.id = ANY(ARRAY(
        SELECT c.id FROM {table} c
        WHERE c.user_id = %(user)s AND c.embedding_model = %(model)s AND {findable}{required}
        ORDER BY c.embedding_signs <~> (SELECT binary_quantize(v)::bit(1536) FROM q) LIMIT %(compared)s))
    ORDER BY distance, d.id LIMIT %(n)s"""
REQUIRED = " AND c.search @@ %(required)s::tsquery"
# The function restricts itself to the tenant: an index over words does not serve under row-level security.
WITH_WORDS = "SELECT id, score FROM {function}(%(words)s, %(required)s::tsquery, %(sources)s::uuid[], %(n)s)"


def has_vectors(scope: SearchScope) -> bool:
    """Return whether there are vectors to search: for none, no query is embedded."""
    return any(
        _fetch(ANY.format(table=part.table, findable=part.findable), _params(scope, part))[0][0] for part in scope.parts
    )


def nearest_records(scope: SearchScope, vector: Sequence[float], n: int) -> list[VectorHit]:
    """Return the ``n`` records nearest to ``vector``, the best first. Call inside ``as_tenant``."""
    digits = "[" + ",".join([f"{number:.9g}" for number in vector]) + "]"
    planner = ", ".join(f"set_config('{name}', '{setting}', true)" for name, setting in PLANNER_SETTINGS.items())
    hits: list[tuple[float, Any]] = []
    for part in scope.parts:
        sql = NEAREST.format(table=part.table, findable=part.findable, required=REQUIRED if scope.required else "")
        params = _params(scope, part) | {"vector": digits, "compared": max(COMPARED, n), "n": n}
        with transaction.atomic():  # rolled back, the savepoint resets the settings; nothing else happens in it
            _fetch(f"SELECT {planner}", {})
            hits += [(distance, record_id) for record_id, distance in _fetch(sql, params)]
            transaction.set_rollback(True)
    return [VectorHit(record_id, 1.0 - distance) for distance, record_id in sorted(hits)[:n]]


def keyword_matches(scope: SearchScope, lexemes: Sequence[str], n: int) -> list[TextHit]:
    """Return the ``n`` best records that contain any of ``lexemes``. Call inside ``as_tenant``."""
    hits: list[tuple[Any, float]] = []
    for part in scope.parts if lexemes else ():
        params = _params(scope, part) | {"words": list(lexemes), "n": n}
        hits += _fetch(WITH_WORDS.format(function=part.function), params)
    return [TextHit(*row) for row in sorted(hits, key=lambda row: (-row[1], row[0]))[:n]]


def _params(scope: SearchScope, part: TableScope) -> dict[str, Any]:
    return {
        "user": scope.user_id, "model": scope.model, "required": scope.required, "sources": list(part.source_ids),
    }  # fmt: skip


def _fetch(sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
