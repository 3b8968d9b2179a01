"""Search of records of connected systems and of clients, by vector and by word (POST /search)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Left

from accounts.common_error_codes import not_found
from accounts.rls import as_tenant
from embeddings import active_model, embedding_calls
from embeddings.embedders.registry import EmbeddingModel
from embeddings.error_codes import SEARCH_UNAVAILABLE
from embeddings.search import query_parser
from embeddings.search.bm25 import TextHit
from embeddings.search.fusion import RankedChunk, ScoreParts, fuse
from embeddings.search.hybrid_search import MIN_CANDIDATES, search_snapshot
from embeddings.search.lexemes import query_lexemes
from embeddings.search.query_parser import HYBRID, TEXT, VECTOR, Query, QueryEmbedding
from embeddings.search.results import render_snippets
from embeddings.search.vector_search import VectorHit
from integrations.models import ClientIntelligence, ConnectedSource, Provider, SourceDocument
from integrations.records.record_embedding import records_model

CLIENTS = "clients"
RECORDS = (*Provider.values, CLIENTS)
MOST_TEXT = 4_000  # characters shown of a record
SNIPPET_CHARS = 20_000  # of a record that the snippet is taken from
SHOWN = ("source", "source_id", "document_type", "external_id", "title", "url", "client_name")
CLIENT = "client"  # document type of client_intelligence

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
class RecordResult:
    """A record that matches a query. ``snippet`` is HTML whose only markup is <mark>."""

    record_id: UUID
    source: str  # "hubspot"; "clients" for a row of client_intelligence
    source_id: UUID | None  # None: the tenant's own row
    document_type: str
    external_id: str | None
    title: str
    url: str | None
    client_name: str | None
    text: str
    snippet: str
    score: float
    parts: ScoreParts
    updated_at: datetime  # at the provider, if known


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
    model: str  # as ``embedding_model`` of records names it
    providers: dict[UUID, str]  # of all connected sources
    documents: TableScope | None
    clients: TableScope | None
    required: str = ""

    @property
    def parts(self) -> list[TableScope]:
        return [part for part in (self.documents, self.clients) if part]


def search_records(
    *,
    user_id: UUID,
    query: str,
    sources: Sequence[str] = RECORDS,
    k: int = 10,
    mode: str = HYBRID,
    live: EmbeddingModel | None = None,
    bought: QueryEmbedding | None = None,
) -> list[RecordResult]:
    """Return at most ``k`` records of ``user_id`` that match ``query``, the best first.

    A record without a vector of the model of the tenant's records is found by its words. ``bought`` has the query's
    vector for another search of the same request. Raises what ``embeddings.search.hybrid_search.search`` raises.
    """
    parsed = query_parser.parse_query(query)
    query_parser.validate_options(k, mode)
    with embedding_calls.as_api_errors(SEARCH_UNAVAILABLE, "Search is away; try again shortly.", field="query"):
        model_of = active_model.active_model if mode == TEXT else records_model  # words need no other deployment
        model = live or model_of(user_id)
    embedding = bought or QueryEmbedding(user_id)
    with search_snapshot(user_id, model):
        scope = resolve_scope(user_id, model, parsed, sources)
        if not scope.parts:
            return []
        if mode == TEXT or not has_vectors(scope):
            return _retrieve(scope, model, parsed, None, k, mode)
        if embedding.is_at_hand(model, parsed):
            return _retrieve(scope, model, parsed, embedding.vector(model, parsed), k, mode)
    vector = embedding.vector(model, parsed)  # from a vendor: no transaction is open meanwhile
    with search_snapshot(user_id, model):
        return _retrieve(scope, model, parsed, vector, k, mode)


def _retrieve(
    scope: SearchScope, model: EmbeddingModel, query: Query, vector: list[float] | None, k: int, mode: str
) -> list[RecordResult]:
    n, lexemes = max(MIN_CANDIDATES, 4 * k), query_lexemes(query.text)
    ranking = fuse(
        model.model,
        nearest_records(scope, vector, n) if vector else [],
        keyword_matches(scope, lexemes, n) if mode != VECTOR else [],
        k,
    )
    return fetch_records(scope, ranking, lexemes)


def fetch_records(scope: SearchScope, ranking: Sequence[RankedChunk], lexemes: Sequence[str]) -> list[RecordResult]:
    ids = [ranked.chunk_id for ranked in ranking]
    rows = _documents(scope, ids) | _clients(scope, ids)
    shown = [(ranked, rows[ranked.chunk_id]) for ranked in ranking if ranked.chunk_id in rows]
    excerpts = render_snippets([row["beginning"] for _, row in shown], lexemes)
    return [
        RecordResult(
            record_id=row["id"],
            text=row["beginning"][:MOST_TEXT],
            snippet=snippet,
            score=ranked.score,
            parts=ranked.parts,
            updated_at=row["source_updated_at"] or row["updated_at"],
            **{name: row[name] for name in SHOWN},
        )
        for (ranked, row), snippet in zip(shown, excerpts, strict=True)
    ]


def _documents(scope: SearchScope, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    if scope.documents is None:
        return {}
    own = SourceDocument.objects.filter(user_id=scope.user_id, pk__in=ids, deleted_at=None)
    rows = own.filter(source_id__in=scope.documents.source_ids).annotate(beginning=Left("text", SNIPPET_CHARS))
    columns = ("id", "source_id", "document_type", "external_id", "title", "url")
    return {
        row["id"]: row | {"source": scope.providers[row["source_id"]], "client_name": None}
        for row in rows.values(*columns, "beginning", "source_updated_at", "updated_at")
    }


def _clients(scope: SearchScope, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    if scope.clients is None:
        return {}
    own = ClientIntelligence.objects.filter(user_id=scope.user_id, pk__in=ids)
    rows = own.annotate(beginning=Left("text", SNIPPET_CHARS)).values(
        "id", "source_id", "external_id", "client_name", "beginning", "source_updated_at", "updated_at"
    )
    return {
        row["id"]: row | {"source": CLIENTS, "document_type": CLIENT, "title": row["client_name"], "url": None}
        for row in rows
        if row["source_id"] is None or row["source_id"] in scope.clients.source_ids
    }


@dataclass(frozen=True, slots=True)
class Record:
    """A record or client with its whole text."""

    id: UUID
    source: str
    document_type: str
    title: str
    url: str | None
    text: str
    updated_at: datetime


def get_record(user_id: UUID, record_id: UUID) -> Record:
    """Return a record that a search of the tenant can find. Raises ``ApiError("NOT_FOUND")``."""
    with as_tenant(user_id):
        own = _searched_sources(user_id)
        records = SourceDocument.objects.filter(user_id=user_id, source__in=own, deleted_at=None, pk=record_id)
        if row := records.select_related("source").defer("raw_payload", "embedding").first():
            title, updated_at = row.title or row.external_id, row.source_updated_at or row.updated_at
            return Record(row.id, row.source.provider, row.document_type, title, row.url, row.text, updated_at)
        clients = ClientIntelligence.objects.filter(Q(source=None) | Q(source__in=own), user_id=user_id, pk=record_id)
        if client := clients.defer("embedding").first():
            updated_at = client.source_updated_at or client.updated_at
            return Record(client.id, CLIENTS, CLIENT, client.client_name, None, client.text, updated_at)
    raise not_found()


def _searched_sources(user_id: UUID) -> QuerySet[ConnectedSource]:
    return ConnectedSource.objects.filter(user_id=user_id).exclude(status=ConnectedSource.Status.DISCONNECTED)


def resolve_scope(user_id: UUID, live: EmbeddingModel, query: Query, sources: Sequence[str]) -> SearchScope:
    """Return the scope of a search of the tenant's connected sources. Call inside ``search_snapshot``."""
    providers = dict(_searched_sources(user_id).values_list("pk", "provider"))
    ids = tuple(source_id for source_id, provider in providers.items() if provider in sources)
    documents = clients = None
    if ids:
        documents = TableScope("source_documents", "find_source_documents", "c.source_id = ANY(%(sources)s)", ids)
    if CLIENTS in sources:
        findable = "(c.source_id IS NULL OR c.source_id = ANY(%(sources)s))"
        clients = TableScope("client_intelligence", "find_clients", findable, tuple(providers))
    model = f"{live.model}@{live.version}"
    return SearchScope(user_id, model, providers, documents, clients, _required_words(query))


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
    """Return the ``n`` records nearest to ``vector``, the best first. Call inside ``search_snapshot``."""
    digits = "[" + ",".join([f"{number:.9g}" for number in vector]) + "]"
    hits: list[tuple[float, Any]] = []
    for part in scope.parts:
        sql = NEAREST.format(table=part.table, findable=part.findable, required=REQUIRED if scope.required else "")
        params = _params(scope, part) | {"vector": digits, "compared": max(COMPARED, n), "n": n}
        hits += [(distance, record_id) for record_id, distance in _fetch(sql, params)]
    return [VectorHit(record_id, 1.0 - distance) for distance, record_id in sorted(hits)[:n]]


def keyword_matches(scope: SearchScope, lexemes: Sequence[str], n: int) -> list[TextHit]:
    """Return the ``n`` best records that contain any of ``lexemes``. Call inside ``search_snapshot``."""
    hits: list[tuple[Any, float]] = []
    for part in scope.parts if lexemes else ():
        params = _params(scope, part) | {"words": list(lexemes), "n": n}
        hits += _fetch(WITH_WORDS.format(function=part.function), params)
    return [TextHit(*row) for row in sorted(hits, key=lambda row: (-row[1], row[0]))[:n]]


def _params(scope: SearchScope, part: TableScope) -> dict[str, Any]:
    sources = list(part.source_ids)
    return {"user": scope.user_id, "model": scope.model, "required": scope.required, "sources": sources}


def _fetch(sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
