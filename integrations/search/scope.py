"""Scope of a record search: tenant, sources, embedding model, and required words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from embeddings.active_model import EmbeddingModel
from embeddings.search.query import Query
from integrations.models import ConnectedSource, Provider

CLIENTS = "clients"
RECORDS = (*Provider.values, CLIENTS)


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
