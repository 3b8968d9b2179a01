"""Retriever of statutes: passages of live statutes, cited by the article that answers."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.search import hybrid_search as retriever
from embeddings.search import query_parser
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


def _live_documents(law_ids: Sequence[str] | None) -> dict[str, UUID] | None:
    if law_ids is None:
        return None
    rows = Law.objects.filter(pk__in=law_ids, document_id__isnull=False).values_list("law_id", "document_id")
    return {law_id: document_id for law_id, document_id in rows if document_id}
