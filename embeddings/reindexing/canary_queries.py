"""Canary queries: queries with known answers, whose recall a cut-over may not lower."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from documents.models import Document
from embeddings import embedding_calls
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import DocumentChunk
from embeddings.reindexing.error_codes import CANARIES_INVALID
from embeddings.search.hybrid_search import search_snapshot
from embeddings.search.vector_search import Scope, nearest_chunks

MAX_DRAWN = 50  # a tenant
MAX_CANARIES = 1000  # a campaign
TOKENS = 60  # of a query, in an estimate
K = 10  # recall@10
MIN_WORDS, MAX_CHARS = 4, 300  # of a drawn query


@dataclass(frozen=True, slots=True)
class Canary:
    """``pages``: the first and last right page, None for all. ``sha``: the text that is right in any document."""

    query: str
    document_id: UUID
    pages: tuple[int, int] | None = None
    sha: str | None = None

    def accepts(self, document_id: UUID, meta: Mapping[str, Any] | None, sha: str) -> bool:
        """Tell whether this chunk answers the query."""
        if sha == self.sha:
            return True
        pages = _pages(meta)
        if document_id != self.document_id:
            return False
        return not (self.pages and pages) or (pages[0] <= self.pages[1] and self.pages[0] <= pages[1])


def validate_canaries(canaries: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return an operator's canaries as they are stored, or raise ``ApiError("CANARIES_INVALID")``.

    Each is ``{"query", "document_id"}``, optionally with a ``page``; the document's owner is its tenant.
    """
    if not canaries:
        return None
    if len(canaries) > MAX_CANARIES:
        raise _invalid(f"There are {len(canaries)} canaries; the limit is {MAX_CANARIES}.")
    return [_validate(number, canary) for number, canary in enumerate(canaries, start=1)]


def _validate(number: int, canary: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(canary, Mapping):
        raise _invalid(f"Canary {number} is not an object.")
    query, page = canary.get("query"), canary.get("page")
    if not isinstance(query, str) or not query.strip() or len(query) > settings.MAX_QUERY_CHARS:
        raise _invalid(f"Canary {number} needs a query of at most {settings.MAX_QUERY_CHARS} characters.")
    if "\0" in query or any("\ud800" <= letter <= "\udfff" for letter in query):
        raise _invalid(f"The query of canary {number} is not text.")
    if page is not None and (type(page) is not int or page < 1):
        raise _invalid(f"The page of canary {number} is not a number from 1.")
    try:
        document_id = UUID(str(canary.get("document_id")))
    except ValueError as error:
        raise _invalid(f"Canary {number} names no document.") from error
    owner = Document.objects.filter(pk=document_id).values_list("user_id", flat=True).first()
    if owner is None or str(canary.get("user_id") or owner) != str(owner):
        raise _invalid(f"Canary {number} names a document that is not there.")
    return {"user_id": str(owner), "query": query, "document_id": str(document_id), "page": page}


def _invalid(detail: str) -> ApiError:
    return ApiError(CANARIES_INVALID, detail, field="canaries")


def tenant_canaries(user_id: UUID, canaries: Sequence[Mapping[str, Any]] | None) -> list[Canary]:
    """Return the operator's canaries for this tenant; without any, sentences of its own chunks."""
    own = [each for each in canaries or () if each["user_id"] == str(user_id)]
    if own:
        pages = [(each["page"], each["page"]) if each["page"] else None for each in own]
        return [Canary(each["query"], UUID(each["document_id"]), page) for each, page in zip(own, pages, strict=True)]
    # By id, which is a hash: the same in each draw, and from all over the tenant's documents.
    searchable = DocumentChunk.objects.filter(user_id=user_id, embed_model__isnull=False).order_by("pk")
    drawn = list(searchable.values_list("pk", flat=True)[:MAX_DRAWN])
    rows = DocumentChunk.objects.filter(pk__in=drawn).order_by("pk")
    return [
        Canary(middle_sentence(text), document_id, _pages(meta), sha)
        for text, document_id, meta, sha in rows.values_list("text", "document_id", "meta", "chunk_sha")
    ]


def middle_sentence(text: str) -> str:
    """Return a sentence from the middle of a text; without sentences, the middle of the text."""
    pieces = [piece.strip() for piece in re.split(r"(?<=[.!?])\s+|\n+", text)]
    sentences = [piece for piece in pieces if len(piece.split()) >= MIN_WORDS]
    if sentences:
        return sentences[len(sentences) // 2][:MAX_CHARS]
    start = max(0, len(text) // 2 - MAX_CHARS // 2)
    return text[start : start + MAX_CHARS].strip() or "?"


def measure_recall(
    canaries: Sequence[Canary], model: EmbeddingModel, *, user_id: UUID, campaign_id: UUID
) -> float | None:
    """Return the share of canaries with a right chunk among the ten nearest of this model's vectors.

    None when the model is not configured any more. Billed to the campaign; raises what ``embed_texts`` raises.
    """
    embedder = registry.find_embedder(model)
    if embedder is None:
        return None
    hits, scope = 0, Scope(user_id, model)
    for start in range(0, len(canaries), embedder.batch_size):
        batch = canaries[start : start + embedder.batch_size]
        queries = [canary.query for canary in batch]
        vectors = embedding_calls.embed_texts(
            embedder, queries, user_id=user_id, stage="canaries", campaign_id=campaign_id
        )
        for canary, vector in zip(batch, vectors, strict=True):
            with search_snapshot(user_id, model):
                nearest = [hit.chunk_id for hit in nearest_chunks(scope, vector, K)]
            rows = DocumentChunk.objects.filter(pk__in=nearest).values_list("document_id", "meta", "chunk_sha")
            hits += any(canary.accepts(*row) for row in rows)
    return hits / len(canaries)


def _pages(meta: Mapping[str, Any] | None) -> tuple[int, int] | None:
    pages = (meta or {}).get("pages")
    return (int(pages[0]), int(pages[-1])) if pages else None
