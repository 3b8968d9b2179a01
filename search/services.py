"""Search over all sources: passages of a tenant's documents, records of its connected systems, and statutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.errors import ApiError
from embeddings.search.hybrid_search import search as search_passages
from embeddings.search.query_parser import HYBRID, QueryEmbedding
from embeddings.search.results import Passage
from integrations.error_codes import UNKNOWN_SOURCE
from integrations.search import RECORDS, RecordResult, search_records
from statutes.article_citations import StatutePassage
from statutes.search import search_statutes

UPLOADS, STATUTES = "documents", "statutes"
SOURCES = (UPLOADS, *RECORDS, STATUTES)


@dataclass(frozen=True, slots=True)
class SearchResults:
    passages: list[Passage]
    records: list[RecordResult]
    laws: list[StatutePassage]
    nearest: list[Passage]  # of documents, where no passage answers the query


def search(
    *,
    user_id: UUID,
    query: str,
    sources: Sequence[str] = (UPLOADS,),
    k: int = 10,
    mode: str = HYBRID,
    document_ids: Sequence[UUID] | None = None,
    law_ids: Sequence[str] | None = None,
    filters: Any = None,
    merge: bool = False,
    query_embedding: QueryEmbedding | None = None,
) -> SearchResults:
    """Return at most ``k`` results of each kind that is among ``sources``, the best first.

    ``document_ids`` narrows the passages of documents, ``law_ids`` those of statutes, ``filters`` and ``merge`` apply
    to both. The query is embedded once per model; ``query_embedding`` shares it with other searches of the request.
    Raises ``ApiError("UNKNOWN_SOURCE")`` and as ``embeddings.search.hybrid_search.search``.
    """
    if any(name not in SOURCES for name in sources):
        raise ApiError(UNKNOWN_SOURCE, f"The sources are {', '.join(SOURCES)}.", field="sources")
    embedding = query_embedding or QueryEmbedding(user_id)
    systems = [name for name in sources if name in RECORDS]
    common: dict[str, Any] = {"user_id": user_id, "query": query, "k": k, "mode": mode}
    options: dict[str, Any] = {"filters": filters, "merge": merge, "query_embedding": embedding}
    passages = search_passages(**common, **options, document_ids=document_ids) if UPLOADS in sources else []
    return SearchResults(
        [passage for passage in passages if passage.is_relevant],
        search_records(**common, sources=systems, bought=embedding) if systems else [],
        search_statutes(**common, **options, law_ids=law_ids) if STATUTES in sources else [],
        [passage for passage in passages if not passage.is_relevant],
    )
