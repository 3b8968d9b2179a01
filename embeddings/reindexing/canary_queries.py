"""Questions whose answers are known: what a cut-over may not lose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from documents.models import Document
from embeddings import billed_calls, embedders
from embeddings.active_model import EmbeddingModel
from embeddings.models import DocumentChunk
from embeddings.reindexing.error_codes import CANARIES_INVALID
from embeddings.search.vector_search import Scope, nearest_chunks

MOST = 50  # a tenant, when they are drawn
MOST_GIVEN = 1000  # a campaign
TOKENS = 60  # what a query is taken for in an estimate
AT = 10  # recall@10
LEAST_WORDS, MOST_CHARS = 4, 300


@dataclass(frozen=True, slots=True)
class Canary:
    """``pages``: the first and last that are right; None: any of the document. ``sha``: this text is right anywhere."""

    query: str
    document_id: UUID
    pages: tuple[int, int] | None = None
    sha: str | None = None


def validate_canaries(given: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return an operator's questions as they are stored, or raise ``Refused("CANARIES_INVALID")``.

    Each is ``{"query", "document_id"}`` and may have a ``page``; whose it is, its document says.
    """
    if not given:
        return None
    if len(given) > MOST_GIVEN:
        raise _invalid(f"There are {len(given)} canaries; at most {MOST_GIVEN} are asked.")
    return [_stored(at, each) for at, each in enumerate(given, start=1)]


def _stored(at: int, given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _invalid(f"Canary {at} is not an object.")
    query, page = given.get("query"), given.get("page")
    if not isinstance(query, str) or not query.strip() or len(query) > settings.MAX_QUERY_CHARS:
        raise _invalid(f"Canary {at} needs a query of at most {settings.MAX_QUERY_CHARS} characters.")
    if "\0" in query or any("\ud800" <= letter <= "\udfff" for letter in query):
        raise _invalid(f"The query of canary {at} is not text.")
    if page is not None and (type(page) is not int or page < 1):
        raise _invalid(f"The page of canary {at} is not a number from 1.")
    try:
        document_id = UUID(str(given.get("document_id")))
    except ValueError as error:
        raise _invalid(f"Canary {at} names no document.") from error
    owner = Document.objects.filter(pk=document_id).values_list("user_id", flat=True).first()
    if owner is None or str(given.get("user_id") or owner) != str(owner):
        raise _invalid(f"Canary {at} names a document that is not there.")
    return {"user_id": str(owner), "query": query, "document_id": str(document_id), "page": page}


def _invalid(detail: str) -> ApiError:
    return ApiError(CANARIES_INVALID, detail, field="canaries")


def tenant_canaries(user_id: UUID, given: Sequence[Mapping[str, Any]] | None) -> list[Canary]:
    """Return the operator's questions about this tenant; without any, sentences of its own passages."""
    own = [each for each in given or () if each["user_id"] == str(user_id)]
    if own:
        return [_given(each) for each in own]
    # By id, which is a hash: the same whenever they are drawn, and from all over the tenant's documents.
    findable = DocumentChunk.objects.filter(user_id=user_id, embed_model__isnull=False).order_by("pk")
    drawn = list(findable.values_list("pk", flat=True)[:MOST])
    rows = DocumentChunk.objects.filter(pk__in=drawn).order_by("pk")
    return [
        Canary(middle_sentence(text), document_id, _pages((meta or {}).get("pages")), sha)
        for text, document_id, meta, sha in rows.values_list("text", "document_id", "meta", "chunk_sha")
    ]


def _given(each: Mapping[str, Any]) -> Canary:
    page = each["page"]
    return Canary(each["query"], UUID(each["document_id"]), (page, page) if page else None)


def middle_sentence(text: str) -> str:
    """Return a sentence from the middle of a passage; of one without sentences, the middle."""
    pieces = [piece.strip() for piece in re.split(r"(?<=[.!?])\s+|\n+", text)]
    told = [piece for piece in pieces if len(piece.split()) >= LEAST_WORDS]
    if told:
        return told[len(told) // 2][:MOST_CHARS]
    start = max(0, len(text) // 2 - MOST_CHARS // 2)
    return text[start : start + MOST_CHARS].strip() or "?"


def measure_recall(asked: Sequence[Canary], live: EmbeddingModel, *, user_id: UUID, campaign_id: UUID) -> float | None:
    """Return the share of questions with a right passage among the ten nearest of this model's vectors.

    None when the model is not configured here any more. The campaign pays; raises what the vendor's gate raises.
    """
    embedder = embedders.find_embedder(live.model, live.version)
    if embedder is None:
        return None
    found = 0
    for start in range(0, len(asked), embedder.batch_size):
        batch = asked[start : start + embedder.batch_size]
        texts = [canary.query for canary in batch]
        vectors = billed_calls.embed_texts(embedder, texts, user_id=user_id, stage="canaries", campaign_id=campaign_id)
        scope = Scope(user_id, live)
        found += sum(_answers(canary, scope, vector) for canary, vector in zip(batch, vectors, strict=True))
    return found / len(asked)


def _answers(canary: Canary, scope: Scope, vector: Any) -> bool:
    hits = [hit.chunk_id for hit in nearest_chunks(scope, vector, AT)]
    rows = DocumentChunk.objects.filter(pk__in=hits).values_list("document_id", "meta", "chunk_sha")
    return any(_is_right(canary, *row) for row in rows)


def _is_right(canary: Canary, document_id: UUID, meta: Mapping[str, Any] | None, sha: str) -> bool:
    if sha == canary.sha:
        return True
    pages = _pages((meta or {}).get("pages"))
    if document_id != canary.document_id:
        return False
    return not (canary.pages and pages) or (pages[0] <= canary.pages[1] and canary.pages[0] <= pages[1])


def _pages(found: Any) -> tuple[int, int] | None:
    return (int(found[0]), int(found[-1])) if found else None
