"""From checked markdown to searchable passages: the handlers of the last six stages."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.utils import OperationalError

from documents.locks import lock
from documents.stages import parsed_text
from embeddings import chunking, chunks, embedders, proofs, search, vectors
from embeddings.embedders import DIMENSIONS, Embedder
from jobs import crashpoints
from jobs.claims import Claim
from jobs.journal import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Outcome, Permanent, Retryable

EMBEDDING_PCT = (70.0, 95.0)  # where the bar stands when embedding begins, and when the last batch is in


def plan_chunks(claim: Claim) -> Outcome:
    """parse_validated: choose the chunker."""
    plan = {"chunker_name": chunking.NAME, "chunker_version": chunking.VERSION}
    return Advance(fields={"chunks_version": chunks.CHUNKS_VERSION, "payload": plan})


def buffer_chunks(claim: Claim) -> Outcome:
    """chunking: cut the parsed text. Writes the same rows however often it runs."""
    document = claim.job.document
    cut = chunking.cut(parsed_text(document), document.page_starts or (0,))
    if not cut:
        raise Permanent("NO_CHUNKS", "There is nothing in the document to cut into passages.")
    with claim.held():
        chunks.buffer(user_id=document.user_id, document_id=document.pk, chunks=cut)
        progress = {"chunks_total": len(cut), "chunks_done": 0}
        return claim.advance(
            code="CHUNK_BUFFERED",
            event={"chunks": len(cut)},
            progress=progress,
            payload={"num_chunks": len(cut)},
        )


def commit_chunks(claim: Claim) -> Outcome:
    """chunks_buffered: check count, order and sha, then make the chunks those of the buffer."""
    with claim.held():
        if broken := proofs.buffer_whole([claim.job.pk]):
            raise Retryable("CHUNKS_NOT_SOUND", broken[claim.job.pk])
        chunks.commit(claim.job.document_id)
        total = claim.job.progress["chunks_total"]
        return claim.advance(code="CHUNK_COMMITTED", event={"chunks": total}, progress={"chunks_done": total})


# What the chosen model still has to embed: neither committed with its vector nor waiting in the buffer.
MISSING = """
    FROM document_chunks c
    WHERE c.document_id = %(document)s AND c.chunker_name || '@' || c.chunker_version = %(chunker)s
      AND (c.embed_model IS DISTINCT FROM %(model)s OR c.embed_version IS DISTINCT FROM %(version)s)
      AND NOT EXISTS (SELECT 1 FROM document_vector_buffer b WHERE b.chunk_id = c.chunk_id
                      AND b.embed_model = %(model)s AND b.embed_version = %(version)s)"""


def plan_vectors(claim: Claim) -> Outcome:
    """chunked: choose the model; vectors that are there already are not bought again."""
    embedder = embedders.get(settings.EMBEDDER)
    total = claim.job.progress["chunks_total"]
    missing = _count_missing(claim, embedder)
    plan = {
        "embed_model": embedder.model,
        "embed_version": embedder.version,
        "vector_dim": DIMENSIONS,
        "num_vectors": total,
    }
    progress = {"embeds_total": total, "embeds_done": total - missing}
    fields = {"embed_model": embedder.model, "embed_version": embedder.version, "payload": plan, "progress": progress}
    return Advance(fields=fields, payload={"missing": missing})


def _count_missing(claim: Claim, embedder: Embedder) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) {MISSING}", _sought(claim, embedder))
        return int(cursor.fetchone()[0])


def _next_batch(claim: Claim, embedder: Embedder) -> list[tuple[UUID, str]]:
    size = min(settings.EMBED_BATCH, embedder.batch_size)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT c.chunk_id, c.text {MISSING} ORDER BY c.chunk_ord LIMIT {size}", _sought(claim, embedder)
        )
        return list(cursor.fetchall())


def _sought(claim: Claim, embedder: Embedder) -> dict[str, UUID | str]:
    return {
        "document": claim.job.document_id,
        "chunker": claim.job.chunks_version,
        "model": embedder.model,
        "version": embedder.version,
    }


def embed(claim: Claim) -> Outcome:
    """embedding: embed batch by batch, each kept the moment it returns; a later try goes on where this one ended."""
    embedder = _planned_embedder(claim)
    done, total = claim.job.progress["embeds_done"], claim.job.progress["embeds_total"]
    while batch := _next_batch(claim, embedder):
        found = embedder.embed([text for _, text in batch])
        crashpoints.reach("embedding:answered")
        done = min(done + len(batch), total)
        with claim.held():
            _keep(claim, embedder, [chunk_id for chunk_id, _ in batch], found)
            claim.save(progress={"embeds_done": done}, total_pct=_pct(done / total))
            if done == total:
                return claim.advance(code="EMBED_BUFFERED", event={"vectors": total}, progress={"embeds_done": total})
    with claim.held():
        return claim.advance(code="EMBED_BUFFERED", event={"vectors": total}, progress={"embeds_done": total})


def _planned_embedder(claim: Claim) -> Embedder:
    embedder = embedders.get(settings.EMBEDDER)
    if (embedder.model, embedder.version) != (claim.job.embed_model, claim.job.embed_version):
        raise Permanent("MODEL_CHANGED", "The embedding model was changed while this document was being embedded.")
    return embedder


def _keep(claim: Claim, embedder: Embedder, chunk_ids: Sequence[UUID], found: embedders.Vectors) -> None:
    vectors.buffer(
        user_id=claim.job.user_id,
        document_id=claim.job.document_id,
        model=embedder.model,
        version=embedder.version,
        chunk_ids=chunk_ids,
        vectors=found,
    )


def _pct(share: float) -> float:
    low, high = EMBEDDING_PCT
    return low + (high - low) * share


def commit_vectors(claim: Claim) -> Outcome:
    """embeddings_buffered: prove completeness and copy the vectors into the chunks, under the document's lock."""
    job = claim.job
    with claim.held():
        lock(job.document_id, "vectors")
        broken = proofs.buffer_covers([job.pk])
        if not broken:
            copied = vectors.commit(job.document_id, model=job.embed_model or "", version=job.embed_version or "")
            return claim.advance(code="EMBED_COMMITTED", event={"vectors": copied})
        vectors.drop_unsound(job.document_id)
    raise Retryable("VECTORS_NOT_SOUND", broken[job.pk])


def finish(claim: Claim) -> Outcome:
    """embedded: look once through the index; a slow one is told, and is no reason to fail the document."""
    try:
        search.probe(claim.job.document_id, seconds=settings.INDEX_PROBE_SECONDS)
    except OperationalError as error:
        if not search.timed_out(error):
            raise
        with claim.held():
            log_event(claim.job, "EMBED_INDEX_TIMEOUT", Event.Type.STAGE_DONE, Event.Severity.WARN)
    return Advance()
