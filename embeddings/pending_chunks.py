"""Chunks of a job that lack a vector of its model: reuse of known vectors, batches to embed, and their progress.

A text that was embedded once is not bought again (MVP context §10).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from accounts.errors import ErrorCode
from embeddings import active_model, embedding_calls, tokenizer, vector_store
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedders.registry import Embedder, EmbeddingModel, Vectors
from embeddings.embedding_calls import EmbeddingTask, ModelChanged, Reservation, Settle
from embeddings.error_codes import GAVE_WAY
from embeddings.models import REEMBED
from jobs import failpoints
from jobs.claims import Claim
from jobs.cluster import shared_state
from jobs.error_codes import STOPPING
from jobs.models import Event, UploadJob
from vendors import rate_limit

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
# embedded once (copy_to_duplicates); a NOT IN is computed once a query, where an IN may become a join that
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
COUNT_PENDING = f"SELECT count(*), coalesce(sum((c.meta ->> 'tokens')::int), 0) {PENDING}"
SELECT_BATCH = f"""
    SELECT c.chunk_ord, c.chunk_id, c.text, (c.meta ->> 'tokens')::int {PENDING} AND c.chunk_ord > %(after)s
    ORDER BY c.chunk_ord LIMIT %(size)s"""

# Subqueries, each with its LIMIT, instead of joins: whatever the planner believes about tables that fill in seconds, it
# can only probe an index chunk by chunk, and never reads a table whole.
BUFFERED = f"""
    (SELECT v.buffer_id FROM document_vector_buffer v WHERE {VECTOR_OF_CHUNK} LIMIT 1)"""
COMMITTED = """
    ((c.embed_model = %(model)s AND c.embed_version = %(version)s) IS TRUE)"""
IN_SHADOW = f"""
    ((SELECT v.chunk_id FROM shadow_vectors v WHERE {VECTOR_OF_CHUNK} LIMIT 1) IS NOT NULL)"""
WITHOUT_VECTOR = f"""
    FROM document_chunks c WHERE {CHUNKS_OF_JOB} AND NOT {COMMITTED} AND {BUFFERED} IS NULL AND NOT {IN_SHADOW}"""
# Chunks without a vector and their tokens; then the same when each text is bought once.
COUNT_WITHOUT_VECTOR = f"""
    SELECT coalesce(sum(copies), 0), coalesce(sum(copies * tokens), 0), count(*), coalesce(sum(tokens), 0)
    FROM (SELECT count(*) AS copies, coalesce(max((c.meta ->> 'tokens')::int), 0) AS tokens {WITHOUT_VECTOR}
          GROUP BY c.chunk_sha) AS texts"""
INSERT = """
    INSERT INTO document_vector_buffer
        (user_id, document_id, chunk_id, embed_model, embed_version, vector_dim, vector_sha, embedding)"""
# Written so that they fit no index but the one that begins with the text's sha: as plain equalities the tenant, the
# model and the version fit the tenant's index as well, and a planner that takes the table for an empty one (after an
# old analysis, or without any) finds it as cheap to read all of a tenant's chunks once per chunk.
SAME_TEXT_OF_TENANT = """s.chunk_sha = c.chunk_sha AND (s.chunk_sha, s.user_id, s.embed_model, s.embed_version)
            BETWEEN (c.chunk_sha, %(user)s, %(model)s, %(version)s)
            AND (c.chunk_sha, %(user)s, %(model)s, %(version)s)"""
SAME_TEXT = "s.chunk_sha = c.chunk_sha AND (s.embed_model = %(model)s AND s.embed_version = %(version)s) IS TRUE"
SAME_SHADOWED_TEXT_OF_TENANT = """s.chunk_sha = c.chunk_sha AND (s.chunk_sha, s.user_id)
            BETWEEN (c.chunk_sha, %(user)s) AND (c.chunk_sha, %(user)s)"""
SAME_SHADOWED_TEXT = "s.chunk_sha = c.chunk_sha"
COPY = f"""
    {INSERT}
    SELECT c.user_id, c.document_id, c.chunk_id, %(model)s, %(version)s, known.*
    FROM (SELECT c.user_id, c.document_id, c.chunk_id, c.chunk_sha {WITHOUT_VECTOR} OFFSET 0) c
    CROSS JOIN LATERAL (
        (SELECT s.vector_dim, s.vector_sha, s.embedding FROM document_chunks s
         WHERE {{live}} LIMIT 1)
        UNION ALL
        (SELECT v.* FROM document_chunks s CROSS JOIN LATERAL (
             SELECT v.vector_dim, v.vector_sha, v.embedding FROM shadow_vectors v
             WHERE v.chunk_id = s.chunk_id AND v.embed_model = %(model)s AND v.embed_version = %(version)s LIMIT 1) v
         WHERE {{shadowed}} LIMIT 1)
        LIMIT 1) known
    ON CONFLICT DO NOTHING"""
COPY_FROM_ALL = COPY.format(live=SAME_TEXT, shadowed=SAME_SHADOWED_TEXT)
COPY_FROM_TENANT = COPY.format(live=SAME_TEXT_OF_TENANT, shadowed=SAME_SHADOWED_TEXT_OF_TENANT)

# Only to chunks of the same chunker: another chunker's may not be meant to be found yet.
COPY_TO_DUPLICATES = f"""
    WITH own AS MATERIALIZED (
        SELECT c.chunk_id, c.user_id, c.document_id, c.chunker_name, c.chunker_version, c.chunk_sha,
               {COMMITTED} AS committed, {BUFFERED} AS buffer_id, {IN_SHADOW} AS in_shadow
        FROM document_chunks c WHERE c.document_id = %(document)s),
    known AS MATERIALIZED (
        SELECT DISTINCT ON (chunker_name, chunker_version, chunk_sha) *
        FROM own WHERE committed OR in_shadow OR buffer_id IS NOT NULL
        ORDER BY chunker_name, chunker_version, chunk_sha, chunk_id)
    {INSERT}
    SELECT o.user_id, o.document_id, o.chunk_id, %(model)s, %(version)s, v.*
    FROM own o JOIN known k USING (chunker_name, chunker_version, chunk_sha)
    CROSS JOIN LATERAL (
        (SELECT vector_dim, vector_sha, embedding FROM document_vector_buffer WHERE buffer_id = k.buffer_id LIMIT 1)
        UNION ALL
        (SELECT vector_dim, vector_sha, embedding FROM document_chunks
         WHERE chunk_id = k.chunk_id AND k.committed LIMIT 1)
        UNION ALL
        (SELECT vector_dim, vector_sha, embedding FROM shadow_vectors
         WHERE chunk_id = k.chunk_id AND embed_model = %(model)s AND embed_version = %(version)s LIMIT 1)
        LIMIT 1) v
    WHERE NOT (o.committed OR o.in_shadow) AND o.buffer_id IS NULL
    ON CONFLICT DO NOTHING"""


class PendingChunk(NamedTuple):
    ord: int
    chunk_id: UUID
    text: str
    tokens: int  # as the chunker counted them, in the vendor's own tokens


@dataclass(frozen=True, slots=True)
class Reused:
    """Chunks that need not be bought, their tokens and price; ``copied`` of them got their vector just now.

    ``pending`` chunks, of ``pending_tokens``, are to be embedded.
    """

    passages: int
    tokens: int
    cents: Decimal
    copied: int = field(default=0, compare=False)
    pending: int = field(default=0, compare=False)
    pending_tokens: int = field(default=0, compare=False)


def planned_model(job: UploadJob) -> EmbeddingModel:
    return EmbeddingModel(job.embed_model or "", job.embed_version or "")


def query_params(claim: Claim, embedder: Embedder) -> dict[str, Any]:
    """Return the parameters of the statements: document, chunker and model."""
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


def reuse_vectors(claim: Claim, embedder: Embedder) -> Reused:
    """Buffer the vectors that the embedder's model made earlier of the same texts. Call inside ``claim.transaction()``.

    The same text means the same chunk_sha: chunks are cut from normalized markdown, so that line ends, blank lines and
    kinds of spaces make no difference. It is looked up among the tenant's own chunks, or among all where
    REUSE_ACROSS_TENANTS says so. A copy belongs to the new document: it stays when its source is deleted. Chunks that
    repeat a text of their own document count as saved too; ``copy_to_duplicates`` gives them their vectors.
    """
    params = query_params(claim, embedder)
    with connection.cursor() as cursor:
        cursor.execute(COUNT_WITHOUT_VECTOR, params)
        passages, tokens, texts, left = cursor.fetchone()
        without_vector = passages
        cursor.execute(COPY_FROM_ALL if settings.REUSE_ACROSS_TENANTS else COPY_FROM_TENANT, params)
        if cursor.rowcount:  # a corrupt stored vector is bought again, not copied
            vector_store.delete_corrupt_vectors(claim.job.document_id)
            cursor.execute(COUNT_WITHOUT_VECTOR, params)
            without_vector, _, texts, left = cursor.fetchone()
        cursor.execute(COUNT_PENDING, params)
        pending, pending_tokens = map(int, cursor.fetchone())
    saved_passages, saved_tokens = int(passages - texts), int(tokens - left)
    plan = claim.job.payload
    if (plan.get("embed_model"), plan.get("embed_version")) == (embedder.model, embedder.version):
        # Planned again: what the first plan copied is saved still.
        saved_passages = max(saved_passages, plan.get("reused", 0))
        saved_tokens = max(saved_tokens, plan.get("tokens_saved", 0))
    cents = embedder.cents(saved_tokens) if isinstance(embedder, HttpEmbedder) else Decimal(0)
    copied = max(0, int(passages - without_vector))
    return Reused(saved_passages, saved_tokens, cents, copied, pending, pending_tokens)


def copy_to_duplicates(document_id: UUID, model: EmbeddingModel) -> None:
    """Buffer a copy for each chunk whose text has the model's vector elsewhere in the document."""
    with connection.cursor() as cursor:
        cursor.execute(COPY_TO_DUPLICATES, {"document": document_id, **model.params})


def batch_size(embedder: Embedder) -> int:
    return min(int(settings.EMBED_BATCH), embedder.batch_size)


def pending_batch(
    claim: Claim, embedder: Embedder, *, after: int = -1, size: int | None = None, max_tokens: int | None = None
) -> list[PendingChunk]:
    """Return the first pending chunks behind the ordinal ``after``: at least one if there is any, up to both limits."""
    params = {**query_params(claim, embedder), "after": after, "size": size or batch_size(embedder)}
    with connection.cursor() as cursor:
        cursor.execute(SELECT_BATCH, params)
        rows = cursor.fetchall()
    batch: list[PendingChunk] = []
    total = 0
    for ord_, chunk_id, text, tokens in rows:
        chunk = PendingChunk(ord_, chunk_id, text, tokenizer.count_tokens(text) if tokens is None else tokens)
        total += chunk.tokens
        if batch and max_tokens is not None and total > max_tokens:
            break
        batch.append(chunk)
    return batch


def is_model_wanted(claim: Claim) -> bool:
    """Tell whether vectors of the planned model would be committed: not after a cut-over to another model.

    A campaign's re-embedding is for a model that is not active.
    """
    job = claim.job
    return job.pipeline == REEMBED or not active_model.has_changed(job.user_id, planned_model(job))


def log_first_vectors(claim: Claim) -> None:
    """Write the event EMBED_FIRST, once a job. Call inside ``claim.transaction()``."""
    if not Event.objects.filter(job_id=claim.job.pk, code="EMBED_FIRST").exists():
        claim.log_event("EMBED_FIRST")


def progress_pct(share: float) -> float:
    low, high = EMBEDDING_PCT
    return low + (high - low) * share


class ChunkEmbedding(EmbeddingTask[PendingChunk]):
    """Pending chunks to buy from a vendor and to buffer."""

    def __init__(self, claim: Claim, embedder: HttpEmbedder) -> None:
        super().__init__(embedder)
        self.max_in_flight = settings.EMBED_IN_FLIGHT
        self._claim = claim
        progress = claim.job.progress
        self._done, self._total = int(progress["embeds_done"]), int(progress["embeds_total"])
        self._after = -1  # the ordinal up to which the document was read
        # No more than may be spent at once; half as much for each time in a row that the vendor has said 429: a limit
        # that we do not know may be below one batch.
        vendor = embedder.vendor
        burst = rate_limit.burst_size(vendor.tokens_per_minute) or settings.EMBED_BATCH_TOKENS
        throttles = rate_limit.count_throttles(vendor)
        self._size = max(1, batch_size(embedder) >> throttles)
        self._max_tokens = min(settings.EMBED_BATCH_TOKENS, burst) >> throttles
        self._is_exhausted = False

    def next_batch(self) -> Sequence[PendingChunk]:
        if self._is_exhausted:
            return []
        limits = {"size": self._size, "max_tokens": self._max_tokens}
        batch = pending_batch(self._claim, self.embedder, after=self._after, **limits)
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
        purchase = {"user_id": job.user_id, "document_id": job.document_id, "job_id": job.pk, "stage": job.stage}
        return embedding_calls.reserve_call(embedder, tokens, **purchase, limited=job.campaign_id is None)

    def save(self, batch: Sequence[PendingChunk], vectors: Vectors, settle: Settle) -> None:
        failpoints.failpoint("embedding:answered")
        self._done = min(self._done + len(batch), self._total)
        job = self._claim.job
        with self._claim.transaction():
            chunk_ids = [chunk.chunk_id for chunk in batch]
            vector_store.buffer_vectors(job.document_id, planned_model(job), chunk_ids, vectors, user_id=job.user_id)
            total_pct = progress_pct(self._done / self._total)
            self._claim.save_progress(progress={"embeds_done": self._done}, total_pct=total_pct, cost_cents=settle())
            if self.saved_count == len(batch) and self._done < self._total:
                log_first_vectors(self._claim)
