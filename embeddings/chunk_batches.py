"""Embedding of a document's chunks: chunks that lack a vector of the planned model, their batches, their progress."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from accounts.error_codes import ErrorCode
from embeddings import active_model, billed_calls, tokenizer, vector_store
from embeddings.billed_calls import Reservation
from embeddings.embedders import Embedder, Vectors
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedding_loop import EmbeddingTask, ModelChanged, Settle, embed_texts
from embeddings.error_codes import GAVE_WAY, TEXT_REFUSED
from embeddings.reindex_jobs import REEMBED
from jobs import failpoints
from jobs.claims import Claim
from jobs.cluster import shared_state
from jobs.error_codes import STOPPING
from jobs.models import Event
from jobs.outcomes import Permanent

EMBEDDING_PCT = (70.0, 95.0)  # total progress when embedding begins, and when the last batch is in

# Chunks of one chunker, as alias ``c``; for a campaign's re-embedding those that search can find today.
CHUNKS_OF_JOB = """
    c.document_id = %(document)s AND c.chunker_name = %(chunker)s AND c.chunker_version = %(chunker_version)s
    AND (NOT %(findable)s OR c.embed_model IS NOT NULL)"""
# The chunk's vector of the model, as alias ``v``. Rows are compared, not columns: equalities of model and version fit
# another index too, and a planner that takes a buffer which fills in seconds for an empty one may read all of that
# model's rows once per chunk.
VECTOR_OF_CHUNK = """
    v.chunk_id = c.chunk_id AND (v.chunk_id, v.embed_model, v.embed_version)
    BETWEEN (c.chunk_id, %(model)s, %(version)s) AND (c.chunk_id, %(model)s, %(version)s)"""
# Chunks whose vector is neither committed nor in the buffer nor in shadow_vectors. Subqueries, not NOT EXISTS: the
# planner knows nothing of a buffer that fills in seconds and joined all of it to each chunk. A repeated text is
# embedded once (vector_reuse.copy_to_duplicates); a NOT IN is computed once a query, where an IN may become a join that
# is computed once per chunk.
PENDING = f"""
    FROM document_chunks c
    WHERE {CHUNKS_OF_JOB}
      AND (c.embed_model IS DISTINCT FROM %(model)s OR c.embed_version IS DISTINCT FROM %(version)s)
      AND (SELECT v.chunk_id FROM document_vector_buffer v WHERE {VECTOR_OF_CHUNK} LIMIT 1) IS NULL
      AND (SELECT v.chunk_id FROM shadow_vectors v WHERE {VECTOR_OF_CHUNK} LIMIT 1) IS NULL
      AND c.chunk_id NOT IN (
           SELECT t.chunk_id FROM (
               SELECT c.chunk_id, row_number() OVER (PARTITION BY c.chunk_sha ORDER BY c.chunk_ord) AS nth
               FROM document_chunks c WHERE {CHUNKS_OF_JOB}) t WHERE t.nth > 1)"""
COUNT = f"SELECT count(*), coalesce(sum((c.meta ->> 'tokens')::int), 0) {PENDING}"
BATCH = f"""
    SELECT c.chunk_ord, c.chunk_id, c.text, (c.meta ->> 'tokens')::int {PENDING} AND c.chunk_ord > %(after)s
    ORDER BY c.chunk_ord LIMIT %(size)s"""


@dataclass(frozen=True, slots=True)
class PendingChunk:
    ord: int
    chunk_id: UUID
    text: str
    tokens: int  # as the chunker counted them, in the vendor's own tokens


def query_params(claim: Claim, embedder: Embedder) -> dict[str, Any]:
    """Return the parameters of the statements here and in ``vector_reuse``: document, chunker and model."""
    chunker, _, version = claim.job.chunks_version.partition("@")
    return {
        "user": claim.job.user_id,
        "document": claim.job.document_id,
        "chunker": chunker,
        "chunker_version": version,
        "model": embedder.model,
        "version": embedder.version,
        "findable": claim.job.pipeline == REEMBED,
    }


def count_pending(claim: Claim, embedder: Embedder) -> tuple[int, int]:
    """Return how many chunks are to be embedded, and their tokens."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, query_params(claim, embedder))
        chunks, tokens = cursor.fetchone()
    return int(chunks), int(tokens)


def pending_batch(
    claim: Claim, embedder: Embedder, *, after: int = -1, max_tokens: int | None = None
) -> list[PendingChunk]:
    """Return the first pending chunks behind the ordinal ``after``: at least one if there is any, up to both limits."""
    size = min(settings.EMBED_BATCH, embedder.batch_size)
    with connection.cursor() as cursor:
        cursor.execute(BATCH, {**query_params(claim, embedder), "after": after, "size": size})
        rows = cursor.fetchall()
    if max_tokens is None:
        return [PendingChunk(ord_, chunk_id, text, tokens or 0) for ord_, chunk_id, text, tokens in rows]
    batch: list[PendingChunk] = []
    total = 0
    for ord_, chunk_id, text, tokens in rows:
        chunk = PendingChunk(ord_, chunk_id, text, tokenizer.count_tokens(text) if tokens is None else tokens)
        total += chunk.tokens
        if batch and total > max_tokens:
            break
        batch.append(chunk)
    return batch


def is_model_wanted(claim: Claim) -> bool:
    """Tell whether vectors of the planned model would be committed: not after a cut-over to another model.

    A campaign's re-embedding is for a model that is not active.
    """
    job = claim.job
    if job.pipeline == REEMBED:
        return True
    return not active_model.has_changed(job.user_id, model=job.embed_model or "", version=job.embed_version or "")


def buffer_vectors(claim: Claim, embedder: Embedder, batch: Sequence[PendingChunk], vectors: Vectors) -> None:
    """Write vectors to the buffer. Call inside ``claim.transaction()``."""
    vector_store.buffer_vectors(
        user_id=claim.job.user_id,
        document_id=claim.job.document_id,
        model=embedder.model,
        version=embedder.version,
        chunk_ids=[chunk.chunk_id for chunk in batch],
        vectors=vectors,
    )


def log_first_vectors(claim: Claim) -> None:
    """Write the event EMBED_FIRST, once a job. Call inside ``claim.transaction()``."""
    if not Event.objects.filter(job_id=claim.job.pk, code="EMBED_FIRST").exists():
        claim.log_event("EMBED_FIRST")


def progress_pct(share: float) -> float:
    low, high = EMBEDDING_PCT
    return low + (high - low) * share


class _ChunkEmbedding(EmbeddingTask[PendingChunk]):
    def __init__(self, claim: Claim, embedder: HttpEmbedder) -> None:
        super().__init__(embedder)
        self.max_in_flight = settings.EMBED_IN_FLIGHT
        self._claim = claim
        progress = claim.job.progress
        self._done, self._total = int(progress["embeds_done"]), int(progress["embeds_total"])
        self._after = -1  # the ordinal up to which the document was read
        self._is_exhausted = False

    def next_batch(self) -> Sequence[PendingChunk]:
        if self._is_exhausted:
            return []
        max_tokens = settings.EMBED_BATCH_TOKENS
        batch = pending_batch(self._claim, self.embedder, after=self._after, max_tokens=max_tokens)
        self._is_exhausted = not batch
        if batch:
            self._after = batch[-1].ord
        return batch

    def transaction(self) -> AbstractContextManager[None]:
        return self._claim.transaction()

    def stop_reason(self) -> ErrorCode | None:
        if shared_state.is_stopping():
            return STOPPING
        return GAVE_WAY if self._claim.should_yield() else None

    def reserve(self, embedder: HttpEmbedder, tokens: int) -> Reservation:
        if not is_model_wanted(self._claim):
            raise ModelChanged
        job = self._claim.job
        return billed_calls.reserve_call(
            embedder,
            tokens,
            user_id=job.user_id,
            stage=job.stage,
            document_id=job.document_id,
            job_id=job.pk,
            limited=job.campaign_id is None,
        )

    def save(self, batch: Sequence[PendingChunk], vectors: Vectors, settle: Settle) -> None:
        failpoints.failpoint("embedding:answered")
        self._done = min(self._done + len(batch), self._total)
        with self._claim.transaction():
            buffer_vectors(self._claim, self.embedder, batch, vectors)
            total_pct = progress_pct(self._done / self._total)
            self._claim.save_progress(progress={"embeds_done": self._done}, total_pct=total_pct, cost_cents=settle())
            if self.saved_count == len(batch) and self._done < self._total:
                log_first_vectors(self._claim)


def embed_with_vendor(claim: Claim, embedder: HttpEmbedder) -> None:
    """Buy the vectors of all pending chunks and buffer them.

    Raises ``Permanent("TEXT_REFUSED")`` for chunks that the vendor does not take, once all others are in,
    ``ModelChanged`` after a cut-over, and what ``concurrent_embedding.embed_texts`` raises.
    """
    task = _ChunkEmbedding(claim, embedder)
    embed_texts(task)
    if task.refused_count:
        raise Permanent(TEXT_REFUSED, "The embedding service refuses one passage of this document.")
