"""From checked markdown to searchable passages: the handlers of the last six stages."""

from __future__ import annotations

from django.conf import settings
from django.db.utils import OperationalError

from documents import parsed
from documents.locks import lock
from embeddings import chunking, chunks, embedders, flights, missing, proofs, search, vectors
from embeddings.embedders import DIMENSIONS, Embedder
from embeddings.embedders.hosted import Hosted
from jobs import crashpoints
from jobs.claims import Claim
from jobs.journal import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Moved, Outcome, Permanent, Retryable


def plan_chunks(claim: Claim) -> Outcome:
    """parse_validated: choose the chunker."""
    plan = {"chunker_name": chunking.NAME, "chunker_version": chunking.VERSION}
    return Advance(fields={"chunks_version": chunks.CHUNKS_VERSION, "payload": plan})


def buffer_chunks(claim: Claim) -> Outcome:
    """chunking: cut the parsed text. Writes the same rows however often it runs."""
    document = claim.job.document
    cut = chunking.cut(parsed.text_of(document), document.page_starts or (), last_page=document.pages or 1)
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


def plan_vectors(claim: Claim) -> Outcome:
    """chunked: choose the model; vectors that are there already are not bought again."""
    embedder = embedders.get(settings.EMBEDDER)
    total = claim.job.progress["chunks_total"]
    left = missing.count(claim, embedder)
    plan = {
        "embed_model": embedder.model,
        "embed_version": embedder.version,
        "vector_dim": DIMENSIONS,
        "num_vectors": total,
        **_price(claim, embedder),
    }
    progress = {"embeds_total": total, "embeds_done": total - left}
    fields = {"embed_model": embedder.model, "embed_version": embedder.version, "payload": plan, "progress": progress}
    return Advance(fields=fields, payload={"missing": left})


def _price(claim: Claim, embedder: Embedder) -> dict[str, float]:
    """What the document will have cost, now that its passages are counted: known before the first of them is paid."""
    if not isinstance(embedder, Hosted):
        return {}
    tokens = missing.count_tokens(claim, embedder)
    return {"planned_tokens": tokens, "planned_cents": float(claim.job.cost_cents + embedder.cents(tokens))}


def embed(claim: Claim) -> Outcome:
    """embedding: embed batch by batch, each kept the moment it returns; a later try goes on where this one ended."""
    embedder = _planned_embedder(claim)
    total = claim.job.progress["embeds_total"]
    if isinstance(embedder, Hosted):
        flights.embed(claim, embedder)
    elif moved := _embed_here(claim, embedder, total):
        return moved
    with claim.held():
        return claim.advance(code="EMBED_BUFFERED", event={"vectors": total}, progress={"embeds_done": total})


def _embed_here(claim: Claim, embedder: Embedder, total: int) -> Moved | None:
    done = claim.job.progress["embeds_done"]
    while batch := missing.batch(claim, embedder, min(settings.EMBED_BATCH, embedder.batch_size)):
        found = embedder.embed([text for _, text in batch])
        crashpoints.reach("embedding:answered")
        done = min(done + len(batch), total)
        with claim.held():
            missing.keep(claim, embedder, [chunk_id for chunk_id, _ in batch], found)
            claim.save(progress={"embeds_done": done}, total_pct=missing.pct(done / total))
            if done == total:
                return claim.advance(code="EMBED_BUFFERED", event={"vectors": total}, progress={"embeds_done": total})
    return None


def _planned_embedder(claim: Claim) -> Embedder:
    embedder = embedders.get(settings.EMBEDDER)
    if (embedder.model, embedder.version) != (claim.job.embed_model, claim.job.embed_version):
        raise Permanent("MODEL_CHANGED", "The embedding model was changed while this document was being embedded.")
    return embedder


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
