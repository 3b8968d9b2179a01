"""From checked markdown to searchable passages: the handlers of the last six stages."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db.utils import OperationalError

from accounts.errors import ApiError
from documents.error_codes import PARSE_HASH_MISMATCH
from documents.locks import lock_document
from documents.parsing import parse_store
from embeddings import (
    active_model,
    chunk_store,
    chunking,
    concurrent_embedding,
    embedders,
    invariants,
    pending_chunks,
    shadow_vectors,
    vector_reuse,
    vector_store,
)
from embeddings.active_model import EmbeddingModel
from embeddings.embedders import DIMENSIONS, Embedder
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.error_codes import CHUNKS_NOT_SOUND, GAVE_WAY, NO_CHUNKS, VECTORS_NOT_SOUND
from embeddings.indexes import bm25
from embeddings.reindex_jobs import REEMBED
from embeddings.search import index_probe
from jobs import failpoints
from jobs.claims import Claim
from jobs.events import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Moved, Outcome, Permanent, Retryable, Wait
from jobs.states import Stage

log = logging.getLogger("accessa.embeddings")


def plan_chunks(claim: Claim) -> Outcome:
    """parse_validated: choose the chunker; a campaign has chosen it already."""
    chunker = chunking.get_chunker(claim.job.payload.get("chunker", settings.CHUNKER))
    plan = {"chunker_name": chunker.name, "chunker_version": chunker.version}
    return Advance(fields={"chunks_version": chunker.label, "payload": plan})


def plan_rechunking(claim: Claim) -> Outcome:
    """parse_validated, of a campaign: the stored parse is cut, so it must be the recorded one; it is not made anew."""
    if not parse_store.is_intact(claim.job.document):
        raise Permanent(PARSE_HASH_MISMATCH, "The stored parse is not the one that was recorded.")
    return plan_chunks(claim)


def buffer_chunks(claim: Claim) -> Outcome:
    """chunking: cut the parsed text. Writes the same rows however often it runs."""
    document = claim.job.document
    chunker = chunking.get_chunker(claim.job.chunks_version)
    cut = chunker.split(parse_store.read_text(document), document.page_starts or (), last_page=document.pages or 1)
    if not cut:
        raise Permanent(NO_CHUNKS, "There is nothing in the document to cut into passages.")
    with claim.transaction(durable=False):
        chunk_store.buffer_chunks(
            user_id=document.user_id, document_id=document.pk, chunks=cut, chunks_version=chunker.label
        )
        progress = {"chunks_total": len(cut), "chunks_done": 0}
        return claim.advance(
            code="CHUNK_BUFFERED",
            event={"chunks": len(cut)},
            progress=progress,
            payload={"num_chunks": len(cut)},
        )


def commit_chunks(claim: Claim) -> Outcome:
    """chunks_buffered: check count, order and sha, then make the chunks those of the buffer."""
    with claim.transaction(durable=False):
        if broken := invariants.buffer_whole([claim.job.pk]):
            raise Retryable(CHUNKS_NOT_SOUND, broken[claim.job.pk])
        chunk_store.commit_chunks(claim.job.document_id, chunks_version=claim.job.chunks_version)
        total = claim.job.progress["chunks_total"]
        return claim.advance(code="CHUNK_COMMITTED", event={"chunks": total}, progress={"chunks_done": total})


def plan_vectors(claim: Claim) -> Outcome:
    """chunked: the model is the one by which the tenant's passages are found; known vectors are not bought again."""
    return _plan(claim, _available(active_model.active_model(claim.job.user_id)))


def plan_reembedding(claim: Claim) -> Outcome:
    """chunked, of a campaign: it has chosen the model."""
    return _plan(claim, _available(_chosen(claim)))


def _plan(claim: Claim, embedder: Embedder) -> Outcome:
    total = claim.job.progress["chunks_total"]
    with claim.transaction(durable=False):
        reused = vector_reuse.reuse_vectors(claim, embedder)
        left = pending_chunks.count_pending(claim, embedder)
        if reused.taken:
            pending_chunks.log_first_vectors(claim)
        plan = {
            "embed_model": embedder.model,
            "embed_version": embedder.version,
            "vector_dim": DIMENSIONS,
            "num_vectors": total,
            "reused": reused.passages,
            "tokens_saved": reused.tokens,
            "cents_saved": float(reused.cents),
            **_price(claim, embedder),
        }
        return claim.advance(
            event={"missing": left, "reused": reused.passages},
            embed_model=embedder.model,
            embed_version=embedder.version,
            payload=plan,
            progress={"embeds_total": total, "embeds_done": total - left},
        )


def _chosen(claim: Claim) -> EmbeddingModel:
    return EmbeddingModel(claim.job.embed_model or "", claim.job.embed_version or "")


def _available(wanted: EmbeddingModel) -> Embedder:
    try:
        return active_model.require_embedder(wanted)
    except ApiError as refused:  # an operator's mistake: no document's fault
        log.error("Nothing here makes vectors of %s@%s: documents wait.", wanted.model, wanted.version)
        raise Wait(concurrent_embedding.MISCONFIGURED_SECONDS, refused.code) from refused


def _price(claim: Claim, embedder: Embedder) -> dict[str, float]:
    """What the document will have cost, now that its passages are counted: known before the first of them is paid."""
    if not isinstance(embedder, HttpEmbedder):
        return {}
    tokens = pending_chunks.count_pending_tokens(claim, embedder)
    return {"planned_tokens": tokens, "planned_cents": float(claim.job.cost_cents + embedder.cents(tokens))}


def embed_chunks(claim: Claim) -> Outcome:
    """embedding: embed batch by batch, each kept the moment it returns; a later try goes on where this one ended."""
    embedder = _planned_embedder(claim)
    try:
        if embedder is None:
            raise concurrent_embedding.ModelChanged
        if isinstance(embedder, HttpEmbedder):
            concurrent_embedding.embed(claim, embedder)
        elif moved := _embed_here(claim, embedder, claim.job.progress["embeds_total"]):
            return moved
    except concurrent_embedding.ModelChanged:
        with claim.transaction():
            return rewind_to_plan(claim)
    with claim.transaction():
        return _embedded(claim, embedder)


def _embedded(claim: Claim, embedder: Embedder) -> Moved:
    vector_reuse.copy_to_duplicates(claim.job.document_id, embedder.model, embedder.version)
    total = claim.job.progress["embeds_total"]
    return claim.advance(code="EMBED_BUFFERED", event={"vectors": total}, progress={"embeds_done": total})


def _embed_here(claim: Claim, embedder: Embedder, total: int) -> Moved | None:
    done, is_first = claim.job.progress["embeds_done"], True
    while batch := pending_chunks.first_pending(claim, embedder, min(settings.EMBED_BATCH, embedder.batch_size)):
        found = embedder.embed([text for _, text in batch])
        failpoints.failpoint("embedding:answered")
        done = min(done + len(batch), total)
        with claim.transaction(durable=False):
            pending_chunks.buffer_vectors(claim, embedder, [chunk_id for chunk_id, _ in batch], found)
            if done == total:
                return _embedded(claim, embedder)
            claim.save_progress(progress={"embeds_done": done}, total_pct=pending_chunks.progress_pct(done / total))
            if is_first:
                pending_chunks.log_first_vectors(claim)
            is_first = False
        if claim.should_yield():
            raise Wait(0.0, GAVE_WAY)
        if not pending_chunks.is_model_still_wanted(claim):
            raise concurrent_embedding.ModelChanged
    return None


def _planned_embedder(claim: Claim) -> Embedder | None:
    """Return the planned model, whatever EMBEDDER names by now; None when it is not the tenant's any more.

    Nor is it before the first vectors, when nothing here makes it and EMBEDDER names another.
    """
    if not pending_chunks.is_model_still_wanted(claim):
        return None
    planned = _chosen(claim)
    found = embedders.find_embedder(planned.model, planned.version)
    if found is None and (
        claim.job.pipeline == REEMBED or active_model.active_model(claim.job.user_id).is_same(planned)
    ):
        return _available(planned)
    return found


def rewind_to_plan(claim: Claim) -> Moved:
    """Send the job back to where its model is chosen: the planned one is not the tenant's. Call inside ``held()``."""
    planned = _chosen(claim)
    vector_store.delete_buffered_vectors(claim.job.document_id, model=planned.model, version=planned.version)
    claim.move("rewind", stage=Stage.CHUNKED.value, code="MODEL_CHANGED", event={"embed_model": planned.model})
    return Moved(ended=True)


def commit_vectors(claim: Claim) -> Outcome:
    """embeddings_buffered: prove completeness and copy the vectors into the chunks, under the document's lock.

    From here on the passages are found, and those of other chunkers are gone.
    """
    job, planned = claim.job, _chosen(claim)
    with claim.transaction():
        lock_document(job.document_id, "vectors")
        broken = invariants.buffer_covers([job.pk])
        if not broken:
            if not active_model.confirm_active_model(job.user_id, model=planned.model, version=planned.version):
                return rewind_to_plan(claim)
            copied = vector_store.commit_vectors(job.document_id, model=planned.model, version=planned.version)
            chunk_store.replace_other_chunks(job.document_id, chunks_version=job.chunks_version)
            bm25.index_document(job.document_id)
            return claim.advance(code="EMBED_COMMITTED", event={"vectors": copied})
        vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable(VECTORS_NOT_SOUND, broken[job.pk])


def commit_shadow_vectors(claim: Claim) -> Outcome:
    """embeddings_buffered, of a re-embedding: the vectors wait beside the live ones, where no search looks."""
    job, planned = claim.job, _chosen(claim)
    with claim.transaction():
        lock_document(job.document_id, "vectors")
        broken = invariants.buffer_covers([job.pk])
        if not broken:
            copied = shadow_vectors.commit_shadow_vectors(job.document_id, model=planned.model, version=planned.version)
            return claim.advance(code="EMBED_SHADOWED", event={"vectors": copied})
        vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable(VECTORS_NOT_SOUND, broken[job.pk])


def finish_document(claim: Claim) -> Outcome:
    """embedded: look once through the index; a slow one is told, and is no reason to fail the document."""
    seconds = settings.INDEX_PROBE_SECONDS
    try:
        took = index_probe.probe_index(claim.job.document_id, user_id=claim.job.user_id, seconds=seconds)
    except OperationalError as error:
        if not index_probe.is_statement_timeout(error):
            raise
        with claim.transaction():
            payload = {"probe_seconds": seconds}
            log_event(claim.job, "EMBED_INDEX_TIMEOUT", Event.Type.STAGE_DONE, Event.Severity.WARN, payload)
        return Advance()
    return Advance(payload={} if took is None else {"probe_seconds": round(took, 5)})
