"""Stage handlers of campaign jobs: the commit of a reparse; the last stage enqueues the campaign's next documents."""

from django.db import transaction

from documents import replacement_parses
from documents.locks import lock_document
from embeddings import active_model, chunk_store, error_codes, stage_invariants, vector_store
from embeddings.models import STAGED
from embeddings.pending_chunks import planned_model
from embeddings.reindexing import scheduler
from embeddings.search import bm25
from embeddings.stages import rewind_to_plan
from jobs import failpoints
from jobs.claims import Claim
from jobs.outcomes import Outcome, Retryable

MAX_STEPS = 5  # the tenants' own jobs wait for this worker; the periodic task does the rest


def commit_reparse(claim: Claim) -> Outcome:
    """embeddings_buffered of a reparse: the new parse, its chunks and their vectors replace the old, in one commit."""
    job, planned = claim.job, planned_model(claim.job)
    parse = replacement_parses.load_parse(job)
    with transaction.atomic():
        lock_document(job.document_id)  # before the job's row, as a deletion does
        with claim.transaction():
            lock_document(job.document_id, "vectors")
            broken = stage_invariants.buffer_covers([job.pk])
            if not broken:
                if not active_model.confirm_active_model(job.user_id, planned):
                    return rewind_to_plan(claim)
                copied = vector_store.commit_vectors(job.document_id, planned)
                chunks_version = job.chunks_version.removesuffix(STAGED)
                chunk_store.promote_chunks(job.document_id, staged=job.chunks_version, chunks_version=chunks_version)
                bm25.index_document(job.document_id)
                fields = replacement_parses.replace_parse(job.document, parse)
                fields["chunks_version"] = chunks_version
                return claim.advance(code="EMBED_COMMITTED", event={"vectors": copied}, **fields)
            vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable(error_codes.VECTORS_NOT_SOUND, broken[job.pk])


def finish_reindex_job(claim: Claim) -> Outcome:
    """embedded: finish the document and enqueue the next. After a kill in between, the periodic task does."""
    with claim.transaction():
        moved = claim.advance()
    failpoints.failpoint("feeding:begin")
    if claim.job.campaign_id:
        scheduler.enqueue_documents(claim.job.campaign_id, steps=MAX_STEPS)
    return moved
