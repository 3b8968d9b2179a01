"""Retriever of statutes: passages of live statutes, cited by the article that answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.rls import as_tenant
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.error_codes import MODEL_UNAVAILABLE, SEARCH_UNAVAILABLE
from embeddings.models import DocumentChunk
from embeddings.search import hybrid_search as retriever
from embeddings.search import query_parser
from embeddings.search.fusion import RankedChunk, ScoreParts
from embeddings.search.results import RetrievedChunk, fetch_chunks, make_passages
from statutes.article_citations import StatutePassage, cite_passages
from statutes.models import Law

MAX_ATTEMPTS = 3  # while a new version replaces one of ``law_ids``


def search_statutes(
    *,
    user_id: UUID,
    query: str,
    k: int = 10,
    mode: str = retriever.HYBRID,
    law_ids: Sequence[str] | None = None,
    filters: Any = None,
    merge: bool = False,
    query_embedding: query_parser.QueryEmbedding | None = None,
) -> list[StatutePassage]:
    """Return at most ``k`` passages, the best first; ``user_id`` pays. Raises as ``hybrid_search.search``."""
    documents = _live_documents(law_ids)
    for _ in range(MAX_ATTEMPTS):
        passages = retriever.search(
            user_id=SYSTEM_TENANT_ID, query=query, k=k, mode=mode,
            document_ids=None if documents is None else list(documents.values()),
            filters=filters, merge=merge, query_embedding=query_embedding or query_parser.QueryEmbedding(user_id),
        )  # fmt: skip
        current = _live_documents(law_ids)
        if current == documents:
            break
        documents = current
    return cite_passages(passages, query)


def search_available_statutes(**query: Any) -> list[StatutePassage]:
    """Search as ``search_statutes``; by words only while the model of statutes is unavailable."""
    try:
        return search_statutes(**query)
    except ApiError as error:
        if error.code not in (MODEL_UNAVAILABLE, SEARCH_UNAVAILABLE):
            raise
        return search_statutes(**query | {"mode": query_parser.TEXT})


@dataclass(frozen=True, slots=True)
class PassageInPlace:
    """A passage of a live statute with the ids of the passages before and after it."""

    passage: StatutePassage
    previous: UUID | None
    following: UUID | None


def get_passage(chunk_id: UUID) -> PassageInPlace:
    """Return a passage of a live statute, which every tenant may read. Raises ``ApiError("NOT_FOUND")``."""
    with as_tenant(SYSTEM_TENANT_ID):
        chunks = fetch_chunks(SYSTEM_TENANT_ID, [RankedChunk(chunk_id, 0.0, ScoreParts(None, None))])
        neighbours = _neighbours(chunks[0]) if chunks else {}
    if not Law.objects.filter(document_id__in=[chunk.document_id for chunk in chunks]).exists():
        raise not_found()
    passages = cite_passages(make_passages(chunks, {}, "", merge=False))
    if not passages:  # withdrawn meanwhile
        raise not_found()
    return PassageInPlace(passages[0], neighbours.get(chunks[0].ord - 1), neighbours.get(chunks[0].ord + 1))


def _neighbours(chunk: RetrievedChunk) -> dict[int, UUID]:
    """Return the ids of the chunks before and after one, of the same chunker: a campaign may prepare others."""
    name, version = chunk.chunker
    own = DocumentChunk.objects.filter(user_id=SYSTEM_TENANT_ID, document_id=chunk.document_id)
    own = own.filter(chunker_name=name, chunker_version=version, chunk_ord__in=(chunk.ord - 1, chunk.ord + 1))
    return dict(own.values_list("chunk_ord", "pk"))


def _live_documents(law_ids: Sequence[str] | None) -> dict[str, UUID] | None:
    if law_ids is None:
        return None
    rows = Law.objects.filter(pk__in=law_ids, document_id__isnull=False).values_list("law_id", "document_id")
    return {law_id: document_id for law_id, document_id in rows if document_id}
