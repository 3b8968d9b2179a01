"""Scope and queries of a record search: tenant, sources, model and required words; by vector and by word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from embeddings.embedders import EmbeddingModel
from embeddings.search.bm25 import TextHit
from embeddings.search.query_parser import Query
from embeddings.search.vector_search import PLANNER_SETTINGS, VectorHit
from integrations.models import ConnectedSource, Provider

CLIENTS = "clients"
RECORDS = (*Provider.values, CLIENTS)

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


@dataclass(frozen=True, slots=True)
class TableScope:
    """The rows of a table to search. ``findable`` is SQL on a row ``c``; ``function`` searches by words."""

    table: str
    function: str
    findable: str
    source_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The tables to search for a tenant. ``required`` is a tsquery of phrases and excluded words."""

    user_id: UUID
    live: EmbeddingModel
    providers: dict[UUID, str]  # of all connected sources
    documents: TableScope | None
    clients: TableScope | None
    required: str = ""

    @property
    def parts(self) -> list[TableScope]:
        return [part for part in (self.documents, self.clients) if part]

    @property
    def model(self) -> str:
        """The model as ``embedding_model`` of records names it."""
        return f"{self.live.model}@{self.live.version}"


def resolve_scope(user_id: UUID, live: EmbeddingModel, query: Query, sources: Sequence[str]) -> SearchScope:
    """Return the scope of a search of the tenant's connected sources. Call inside ``as_tenant``."""
    own = ConnectedSource.objects.filter(user_id=user_id).exclude(status=ConnectedSource.Status.DISCONNECTED)
    providers = dict(own.values_list("pk", "provider"))
    ids = tuple(source_id for source_id, provider in providers.items() if provider in sources)
    documents = clients = None
    if ids:
        documents = TableScope("source_documents", "find_source_documents", "c.source_id = ANY(%(sources)s)", ids)
    if CLIENTS in sources:
        findable = "(c.source_id IS NULL OR c.source_id = ANY(%(sources)s))"
        clients = TableScope("client_intelligence", "find_clients", findable, tuple(providers))
    return SearchScope(user_id, live, providers, documents, clients, _required_words(query))


def _required_words(query: Query) -> str:
    """Return a tsquery, "" without phrases and excluded words. A phrase of stop words requires nothing."""
    terms = ["phraseto_tsquery('english', %s)"] * len(query.phrases)
    terms += ["!! phraseto_tsquery('english', %s)"] * len(query.excluded)
    if not terms:
        return ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT ({' && '.join(terms)})::text", [*query.phrases, *query.excluded])
        required: str = cursor.fetchone()[0]
    return required


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
