"""Feedback on answers: recorded for its tenant, exported as questions with the sentences that answer them."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from accounts.common_error_codes import not_found
from accounts.rls import as_tenant
from documents.markdown.normalization import page_at
from documents.markdown.sentences import plain_text
from documents.markdown.structure import split_cells
from embeddings.models import DocumentChunk
from embeddings.search.query_parser import parse_query
from search.models import AnswerFeedback


def record_feedback(*, user_id: UUID, question: str, chunk_id: UUID, span: tuple[int, int], is_right: bool) -> None:
    """Store whether the sentence at ``span`` answers the question.

    Raises ``ApiError``: NOT_FOUND for a passage that is not the tenant's or does not hold the span, and those of
    ``parse_query``.
    """
    question = parse_query(question).text
    with as_tenant(user_id):
        chunk = DocumentChunk.objects.filter(user_id=user_id, pk=chunk_id).only("document_id", "meta").first()
    meta = (chunk.meta or {}) if chunk else {}
    if chunk is None or not meta.get("start", 0) <= span[0] < span[1] <= meta.get("end", 0):
        raise not_found()
    AnswerFeedback.objects.create(
        user_id=user_id,
        document_id=chunk.document_id,
        chunk_id=chunk_id,
        span_start=span[0],
        span_end=span[1],
        question=question,
        is_right=is_right,
    )


def export_feedback(user_id: UUID) -> Iterator[dict[str, Any]]:
    """Yield a row for each opinion, oldest first, in the format of question sets (docs/retrieval.md), with ``right``.

    ``answer`` is empty where the passage has been replaced since.
    """
    with as_tenant(user_id):
        rows = list(
            AnswerFeedback.objects.filter(user_id=user_id).select_related("document").order_by("created_at", "pk")
        )
        chunks = DocumentChunk.objects.filter(user_id=user_id, pk__in={row.chunk_id for row in rows}).only(
            "text", "meta"
        )
        texts = {chunk.pk: chunk for chunk in chunks}
    for row in rows:
        starts = row.document.page_starts or ()
        yield {
            "question": row.question,
            "document": row.document.filename,
            "pages": sorted({page_at(starts, row.span_start), page_at(starts, row.span_end - 1)}),
            "answer": _text(texts.get(row.chunk_id), row.span_start, row.span_end),
            "right": row.is_right,
        }


def _text(chunk: DocumentChunk | None, start: int, end: int) -> str:
    meta = (chunk.meta or {}) if chunk else {}
    if chunk is None or not meta.get("start", 0) <= start < end <= meta.get("end", 0):
        return ""
    own = chunk.text[-(meta["end"] - meta["start"]) :]
    said = own[start - meta["start"] : end - meta["start"]]
    return " — ".join(filter(None, map(plain_text, split_cells(said)))) if said.startswith("|") else plain_text(said)
