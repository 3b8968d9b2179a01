"""What a search of records looks among: whose, of which sources, of which model, with which words in them."""

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
    """A table, and what of it is meant. ``findable`` is SQL on a row ``c``; ``function`` looks among its words."""

    table: str
    function: str
    findable: str
    source_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class SearchScope:
    """``required`` is a tsquery: what must stand in a record, and what must not."""

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
        """As records name the model of their vectors."""
        return f"{self.live.model}@{self.live.version}"


def resolve_scope(user_id: UUID, live: EmbeddingModel, question: Query, sources: Sequence[str]) -> SearchScope:
    """Return what of the tenant's connected sources is meant. Call inside ``as_tenant``."""
    own = ConnectedSource.objects.filter(user_id=user_id).exclude(status=ConnectedSource.Status.DISCONNECTED)
    providers = dict(own.values_list("pk", "provider"))
    asked = tuple(source_id for source_id, provider in providers.items() if provider in sources)
    return SearchScope(
        user_id,
        live,
        providers,
        _documents(asked) if asked else None,
        _clients(tuple(providers)) if CLIENTS in sources else None,
        _required(question),
    )


def _documents(source_ids: tuple[UUID, ...]) -> TableScope:
    return TableScope("source_documents", "find_source_documents", "c.source_id = ANY(%(sources)s)", source_ids)


def _clients(source_ids: tuple[UUID, ...]) -> TableScope:
    findable = "(c.source_id IS NULL OR c.source_id = ANY(%(sources)s))"
    return TableScope("client_intelligence", "find_clients", findable, source_ids)


def _required(question: Query) -> str:
    """A phrase of stop words asks for nothing."""
    asked = ["phraseto_tsquery('english', %s)"] * len(question.phrases)
    asked += ["!! phraseto_tsquery('english', %s)"] * len(question.excluded)
    if not asked:
        return ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT ({' && '.join(asked)})::text", [*question.phrases, *question.excluded])
        required: str = cursor.fetchone()[0]
    return required
