"""Which passages of a document still have no vector of the chosen model, and the keeping of those that come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from embeddings import active_model, vector_store
from embeddings import tokenizer as tokens
from embeddings.embedders import Embedder, Vectors
from embeddings.reindex_jobs import REEMBED
from jobs.claims import Claim
from jobs.models import Event

EMBEDDING_PCT = (70.0, 95.0)  # where the bar stands when embedding begins, and when the last batch is in

# The passages in question: of one cut, and for a campaign's re-embedding those that are found today.
CHUNKS_OF_JOB = """
    c.document_id = %(document)s AND c.chunker_name = %(chunker)s AND c.chunker_version = %(chunker_version)s
    AND (NOT %(findable)s OR c.embed_model IS NOT NULL)"""
# One vector's row. Rows are compared, not columns: as equalities, model and version fit another index too, and a
# planner that takes a buffer which fills in seconds for an empty one may read all of that model's once a passage.
VECTOR_OF_CHUNK = """
    v.chunk_id = c.chunk_id AND (v.chunk_id, v.embed_model, v.embed_version)
    BETWEEN (c.chunk_id, %(model)s, %(version)s) AND (c.chunk_id, %(model)s, %(version)s)"""
# What the chosen model still has to embed: neither committed with its vector nor waiting in the buffer or beside the
# live model's. Subqueries, not NOT EXISTS: of a buffer that fills in seconds the planner knows nothing, and joined all
# of it to each passage. A text that is repeated is embedded once (reuse.spread): a NOT IN is computed once a query,
# where an IN may become a join that is computed once a passage.
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
BATCH = f"SELECT c.chunk_id, c.text {PENDING} ORDER BY c.chunk_ord LIMIT %(size)s"
# The chunker has counted already, in the vendor's own tokens.
ITEMS = f"""
    SELECT c.chunk_ord, c.chunk_id, c.text, (c.meta ->> 'tokens')::int {PENDING} AND c.chunk_ord > %(after)s
    ORDER BY c.chunk_ord LIMIT %(size)s"""


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A passage on its way to a vendor."""

    ord: int
    chunk_id: UUID
    text: str
    tokens: int


def is_model_still_wanted(claim: Claim) -> bool:
    """Tell whether vectors of the planned model would be committed: no longer, once its tenant has been cut over.

    A campaign's re-embedding is for a model that is not live. Asked before anything is bought.
    """
    job = claim.job
    if job.pipeline == REEMBED:
        return True
    return not active_model.has_changed(job.user_id, model=job.embed_model or "", version=job.embed_version or "")


def count_pending(claim: Claim, embedder: Embedder) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) {PENDING}", query_params(claim, embedder))
        return int(cursor.fetchone()[0])


def count_pending_tokens(claim: Claim, embedder: Embedder) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT coalesce(sum((c.meta ->> 'tokens')::int), 0) {PENDING}", query_params(claim, embedder))
        return int(cursor.fetchone()[0])


def first_pending(claim: Claim, embedder: Embedder, size: int) -> list[tuple[UUID, str]]:
    """Return the first ``size`` that are missing."""
    with connection.cursor() as cursor:
        cursor.execute(BATCH, {**query_params(claim, embedder), "size": size})
        return list(cursor.fetchall())


def pending_batch(claim: Claim, embedder: Embedder, *, after: int, size: int, most_tokens: int) -> list[PendingChunk]:
    """Return what is missing behind the ordinal ``after``: at least one if there is any, then as many as both allow."""
    with connection.cursor() as cursor:
        cursor.execute(ITEMS, {**query_params(claim, embedder), "after": after, "size": size})
        rows = cursor.fetchall()
    found: list[PendingChunk] = []
    total = 0
    for ord_, chunk_id, text, counted in rows:
        item = PendingChunk(ord_, chunk_id, text, tokens.count_tokens(text) if counted is None else counted)
        total += item.tokens
        if found and total > most_tokens:
            break
        found.append(item)
    return found


def query_params(claim: Claim, embedder: Embedder) -> dict[str, UUID | str | bool]:
    """Return whose passages of which cut the statements here and in ``reuse`` mean, and of which model."""
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


def buffer_vectors(claim: Claim, embedder: Embedder, chunk_ids: Sequence[UUID], found: Vectors) -> None:
    """Buffer vectors. Call inside ``held()``."""
    vector_store.buffer_vectors(
        user_id=claim.job.user_id,
        document_id=claim.job.document_id,
        model=embedder.model,
        version=embedder.version,
        chunk_ids=chunk_ids,
        vectors=found,
    )


def log_first_vectors(claim: Claim) -> None:
    """Write down, once a job, that it has its first vectors. Call inside ``held()``."""
    if not Event.objects.filter(job_id=claim.job.pk, code="EMBED_FIRST").exists():
        claim.log_event("EMBED_FIRST")


def progress_pct(share: float) -> float:
    low, high = EMBEDDING_PCT
    return low + (high - low) * share
