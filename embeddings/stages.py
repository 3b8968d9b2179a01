"""Stage handlers of a document's chunks and vectors: plan, buffer, commit, embed, finish."""

import logging
from collections.abc import Callable
from functools import partial

from django.conf import settings

from documents import parse_store, replacement_parses
from documents.error_codes import PARSE_HASH_MISMATCH
from documents.locks import lock_document
from documents.replacement_parses import REPARSE
from embeddings import (
    active_model,
    chunk_store,
    error_codes,
    pending_chunks,
    shadow_vectors,
    stage_invariants,
    vector_store,
)
from embeddings.chunking import chunkers
from embeddings.embedders import registry
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedders.registry import DIMENSIONS, Embedder, EmbeddingModel
from embeddings.embedding_calls import MISCONFIGURED_SECONDS, ModelChanged, run_task
from embeddings.models import REEMBED, STAGED
from embeddings.pending_chunks import planned_model
from embeddings.search import bm25
from embeddings.search.hybrid_search import probe_index
from jobs import failpoints
from jobs.choices import Stage
from jobs.claims import Claim
from jobs.lifecycle import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Moved, Outcome, Permanent, Retryable, Wait

log = logging.getLogger("accessa.embeddings")


def plan_chunks(claim: Claim) -> Outcome:
    """parse_validated: choose the chunker; for a rechunk or a reparse the campaign has chosen it."""
    chunker = chunkers.get_chunker(claim.job.payload.get("chunker", settings.CHUNKER))
    plan = {"chunker_name": chunker.name, "chunker_version": chunker.version}
    label = chunker.label + (STAGED if claim.job.pipeline == REPARSE else "")
    return Advance(fields={"chunks_version": label, "payload": plan})


def plan_rechunking(claim: Claim) -> Outcome:
    """parse_validated of a rechunk: the stored parse must be the recorded one; the document is not parsed again."""
    if not parse_store.is_intact(claim.job.document):
        raise Permanent(PARSE_HASH_MISMATCH, "The stored parse is not the one that was recorded.")
    return plan_chunks(claim)


def buffer_chunks(claim: Claim) -> Outcome:
    """chunking: split the parsed text. Writes the same rows however often it runs."""
    document = claim.job.document
    label = claim.job.chunks_version
    text, page_starts = replacement_parses.job_text(claim.job)
    chunks = chunkers.get_chunker(label.removesuffix(STAGED)).split(text, page_starts, last_page=document.pages or 1)
    if not chunks:
        raise Permanent(error_codes.NO_CHUNKS, "There is nothing in the document to cut into passages.")
    return claim.end_stage(
        partial(
            chunk_store.buffer_chunks,
            user_id=document.user_id,
            document_id=document.pk,
            chunks=chunks,
            chunks_version=label,
        ),
        result=[(chunk.text, chunk.meta) for chunk in chunks],
        code="CHUNK_BUFFERED",
        event={"chunks": len(chunks)},
        progress={"chunks_total": len(chunks), "chunks_done": 0},
        payload={"num_chunks": len(chunks)},
    )


def commit_chunks(claim: Claim) -> Outcome:
    """chunks_buffered: check the buffer by its rows and by the parsed text, then commit it to ``document_chunks``."""
    job = claim.job
    unsaved = claim.unsaved_result(Stage.CHUNKING)
    if reason := stage_invariants.recount(job, unsaved or chunk_store.buffered_chunks(job.document_id)):
        raise Retryable(error_codes.CHUNKS_NOT_SOUND, reason)

    def write() -> None:
        claim.save_moves()
        if broken := stage_invariants.buffer_whole([job.pk]):
            raise Retryable(error_codes.CHUNKS_NOT_SOUND, broken[job.pk])
        chunk_store.commit_chunks(job.document_id, chunks_version=job.chunks_version)

    total = job.progress["chunks_total"]
    return claim.end_stage(write, code="CHUNK_COMMITTED", event={"chunks": total}, progress={"chunks_done": total})


def plan_vectors(claim: Claim) -> Outcome:
    """chunked: choose the model, the tenant's active one or the campaign's, and reuse known vectors."""
    job = claim.job
    embedder = _require_embedder(
        planned_model(job) if job.pipeline == REEMBED else active_model.active_model(job.user_id)
    )
    total = job.progress["chunks_total"]
    with claim.transaction(durable=False):
        reused = pending_chunks.reuse_vectors(claim, embedder)
        if reused.copied:
            pending_chunks.log_first_vectors(claim)
        plan = {
            "embed_model": embedder.model,
            "embed_version": embedder.version,
            "vector_dim": DIMENSIONS,
            "num_vectors": total,
            "reused": reused.passages,
            "tokens_saved": reused.tokens,
            "cents_saved": float(reused.cents),
        }
        if isinstance(embedder, HttpEmbedder):  # the document's total price, before the first chunk is paid
            cents = float(job.cost_cents + embedder.cents(reused.pending_tokens))
            plan |= {"planned_tokens": reused.pending_tokens, "planned_cents": cents}
        return claim.advance(
            event={"missing": reused.pending, "reused": reused.passages},
            embed_model=embedder.model,
            embed_version=embedder.version,
            payload=plan,
            progress={"embeds_total": total, "embeds_done": total - reused.pending},
        )


def _require_embedder(model: EmbeddingModel) -> Embedder:
    if embedder := registry.find_embedder(model):
        return embedder
    # An operator's mistake: no document's fault.
    lack = f" Missing packages: {', '.join(missing)}." if (missing := registry.missing_packages()) else ""
    log.error("No embedder is configured for %s: jobs wait.%s", model.label, lack)
    raise Wait(MISCONFIGURED_SECONDS, error_codes.MODEL_UNAVAILABLE)


def embed_chunks(claim: Claim) -> Outcome:
    """embedding: embed batch by batch, each saved on arrival; a later try continues where this one ended.

    The planned model is used, whatever EMBEDDER names by now, unless another model has become the tenant's.
    """
    planned = planned_model(claim.job)
    try:
        if not pending_chunks.is_model_wanted(claim):
            raise ModelChanged
        embedder = registry.find_embedder(planned)
        if embedder is None:
            # Before a tenant's first vectors, the plan may name a model that is gone while EMBEDDER names another.
            active = active_model.active_model(claim.job.user_id)
            if claim.job.pipeline != REEMBED and active.label != planned.label:
                raise ModelChanged
            embedder = _require_embedder(planned)
        if isinstance(embedder, HttpEmbedder):
            task = pending_chunks.ChunkEmbedding(claim, embedder)
            run_task(task)
            if task.refused_count:  # all other chunks are in
                raise Permanent(error_codes.TEXT_REFUSED, "The embedding service refuses one passage of this document.")
        elif moved := _embed_locally(claim, embedder):
            return moved
    except ModelChanged:
        with claim.transaction():
            return rewind_to_plan(claim)
    return _end_embedding(claim)


def _end_embedding(claim: Claim, buffer: Callable[[], None] | None = None) -> Moved:
    document_id, planned, total = claim.job.document_id, planned_model(claim.job), claim.job.progress["embeds_total"]

    def write() -> None:
        if buffer:
            buffer()
        pending_chunks.copy_to_duplicates(document_id, planned)

    return claim.end_stage(write, code="EMBED_BUFFERED", event={"vectors": total}, progress={"embeds_done": total})


def _embed_locally(claim: Claim, embedder: Embedder) -> Moved | None:
    job = claim.job
    done, total = job.progress["embeds_done"], job.progress["embeds_total"]
    is_first = True
    while batch := pending_chunks.pending_batch(claim, embedder):
        vectors = embedder.embed([chunk.text for chunk in batch])
        failpoints.failpoint("embedding:answered")
        done = min(done + len(batch), total)
        chunk_ids = [chunk.chunk_id for chunk in batch]
        buffer = partial(
            vector_store.buffer_vectors, job.document_id, planned_model(job), chunk_ids, vectors, user_id=job.user_id
        )
        if done == total:
            return _end_embedding(claim, buffer)
        with claim.transaction(durable=False):
            buffer()
            claim.save_progress(progress={"embeds_done": done}, total_pct=pending_chunks.progress_pct(done / total))
            if is_first:
                pending_chunks.log_first_vectors(claim)
            is_first = False
        if claim.should_yield():
            raise Wait(0.0, error_codes.GAVE_WAY)
        if not pending_chunks.is_model_wanted(claim):
            raise ModelChanged
    return None


def rewind_to_plan(claim: Claim) -> Moved:
    """Send the job back to ``chunked``, where its model is chosen again. Call inside ``claim.transaction()``."""
    planned = planned_model(claim.job)
    vector_store.delete_buffered_vectors(claim.job.document_id, planned)
    claim.move("rewind", stage=Stage.CHUNKED.value, code="MODEL_CHANGED", event={"embed_model": planned.model})
    return Moved(ended=True)


def commit_vectors(claim: Claim) -> Outcome:
    """embeddings_buffered: check completeness and copy the vectors into the chunks, under the document's lock.

    From here on search finds the chunks, and those of other chunkers are gone.
    """
    job, planned = claim.job, planned_model(claim.job)
    with claim.transaction(durable=False):
        lock_document(job.document_id, "vectors")
        broken = stage_invariants.buffer_covers([job.pk])
        if not broken:
            if not active_model.confirm_active_model(job.user_id, planned):
                return rewind_to_plan(claim)
            copied = vector_store.commit_vectors(job.document_id, planned)
            chunk_store.replace_other_chunks(job.document_id, chunks_version=job.chunks_version)
            bm25.index_document(job.document_id)
            return claim.advance(code="EMBED_COMMITTED", event={"vectors": copied})
        vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable(error_codes.VECTORS_NOT_SOUND, broken[job.pk])


def commit_shadow_vectors(claim: Claim) -> Outcome:
    """embeddings_buffered of a re-embedding: store the vectors in shadow_vectors, where no search looks yet."""
    job, planned = claim.job, planned_model(claim.job)
    with claim.transaction():
        lock_document(job.document_id, "vectors")
        broken = stage_invariants.buffer_covers([job.pk])
        if not broken:
            copied = shadow_vectors.commit_shadow_vectors(job.document_id, planned)
            return claim.advance(code="EMBED_SHADOWED", event={"vectors": copied})
        vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable(error_codes.VECTORS_NOT_SOUND, broken[job.pk])


def finish_document(claim: Claim) -> Outcome:
    """embedded: search once through the index; a slow search is logged and does not fail the document."""
    seconds = settings.INDEX_PROBE_SECONDS
    try:
        elapsed = probe_index(claim.job.document_id, user_id=claim.job.user_id, seconds=seconds)
    except TimeoutError:
        with claim.transaction():
            payload = {"probe_seconds": seconds}
            log_event(claim.job, "EMBED_INDEX_TIMEOUT", Event.Type.STAGE_DONE, Event.Severity.WARN, payload)
        return Advance()
    return Advance(payload={} if elapsed is None else {"probe_seconds": round(elapsed, 5)})
