"""Searching everything: a tenant's own documents, its connected systems, and the laws, which are everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.search import HYBRID, Passage
from embeddings.search import search as find_passages
from embeddings.search.query_embedding import QueryEmbedding
from integrations import search as others
from integrations.search import RECORDS, UPLOADS, RecordResult
from statutes.models import Law
from statutes.search.results import FoundLaw, shown

__all__ = ["RECORDS", "SOURCES", "STATUTES", "UPLOADS", "Answer", "FoundLaw", "RecordResult", "laws", "search"]

STATUTES = "statutes"
SOURCES = (*others.SOURCES, STATUTES)  # what a search may name
MOST_TRIES = 3  # while another version takes the place of a law that was named


@dataclass(frozen=True, slots=True)
class Answer:
    passages: list[Passage]
    records: list[RecordResult]
    laws: list[FoundLaw]


def search(
    *,
    user_id: UUID,
    query: str,
    sources: Sequence[str] = (UPLOADS,),
    k: int = 10,
    mode: str = HYBRID,
    document_ids: Sequence[UUID] | None = None,
    law_ids: Sequence[str] | None = None,
    bought: QueryEmbedding | None = None,
    **of_passages: Any,
) -> Answer:
    """Return at most ``k`` passages, ``k`` records and ``k`` passages of laws, of whatever is among ``sources``.

    ``document_ids`` are of uploads, ``law_ids`` of laws; ``bought`` has the query's vector for another search of the
    same request. ``of_passages`` goes to ``embeddings.search.search``, which says what is raised besides
    ``UNKNOWN_SOURCE``.
    """
    if any(name not in SOURCES for name in sources):
        raise ApiError("UNKNOWN_SOURCE", f"The sources are {', '.join(SOURCES)}.", field="sources")
    asked: dict[str, Any] = {"user_id": user_id, "query": query, "k": k, "mode": mode, **of_passages}
    asked["bought"] = bought or QueryEmbedding(user_id)
    own = [name for name in sources if name != STATUTES]
    found = others.search(**asked, sources=own, document_ids=document_ids) if own else None
    return Answer(
        found.passages if found else [],
        found.records if found else [],
        laws(**asked, law_ids=law_ids) if STATUTES in sources else [],
    )


def laws(
    *,
    user_id: UUID,
    query: str,
    law_ids: Sequence[str] | None = None,
    bought: QueryEmbedding | None = None,
    **asked: Any,
) -> list[FoundLaw]:
    """Return the passages of laws that answer ``query``, the best first. What it costs, ``user_id`` pays.

    Laws that are unknown contribute nothing. The rest is as for ``embeddings.search.search``.
    """
    named = _versions(law_ids)
    for _ in range(MOST_TRIES):
        found = find_passages(
            user_id=SYSTEM_TENANT_ID,
            query=query,
            document_ids=None if named is None else list(named.values()),
            bought=bought or QueryEmbedding(user_id),
            **asked,
        )
        now = _versions(law_ids)
        if now == named:
            break
        named = now
    return shown(found, query)


def _versions(law_ids: Sequence[str] | None) -> dict[str, UUID] | None:
    """Return the documents of what is found of these laws today."""
    if law_ids is None:
        return None
    found = Law.objects.filter(pk__in=law_ids, document_id__isnull=False).values_list("law_id", "document_id")
    return {law_id: document_id for law_id, document_id in found if document_id}
