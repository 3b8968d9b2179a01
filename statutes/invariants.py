"""Invariants of the statute pipeline's stages. A passage that the model refused may lack a vector."""

from collections.abc import Sequence
from uuid import UUID

from documents import invariants as documents
from embeddings import invariants as embeddings
from embeddings import vector_store
from jobs.choices import State
from jobs.models import UploadJob
from jobs.pipeline import Invariant, all_invariants, sql_invariant

version_recorded = all_invariants(
    documents.tenant_matches,
    sql_invariant("""
        SELECT j.job_id, 'The version of the law is not noted.' FROM upload_jobs j
        WHERE j.job_id = ANY(%(jobs)s)
          AND NOT EXISTS (SELECT FROM law_versions v WHERE v.document_id = j.document_id)"""),
)
received = all_invariants(
    sql_invariant("""
        SELECT j.job_id, 'The file''s format or sum is not known.'
        FROM upload_jobs j JOIN law_versions v USING (document_id)
        WHERE j.job_id = ANY(%(jobs)s) AND (v.format IS NULL OR v.raw_sha256 IS NULL)"""),
    documents.original_stored,
)
requested = all_invariants(received, documents.parse_requested)
normalized = all_invariants(
    sql_invariant("""
        SELECT j.job_id, 'The law is not there in its canonical form.'
        FROM upload_jobs j JOIN law_versions v USING (document_id)
        WHERE j.job_id = ANY(%(jobs)s) AND v.canonical IS NULL"""),
    documents.parse_stored,
)

# Passages without a vector of the model, committed or buffered.
CHUNKS_WITHOUT_VECTOR = """
    FROM document_chunks c
    WHERE c.document_id = j.document_id AND c.chunker_name || '@' || c.chunker_version = j.chunks_version
      AND (c.embed_model IS DISTINCT FROM {wanted}.embed_model
           OR c.embed_version IS DISTINCT FROM {wanted}.embed_version)
      AND NOT EXISTS (
          SELECT FROM document_vector_buffer b WHERE b.chunk_id = c.chunk_id AND NOT {committed}
            AND b.embed_model = {wanted}.embed_model AND b.embed_version = {wanted}.embed_version)
      AND NOT EXISTS (
          SELECT FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id
            AND s.embed_model = {wanted}.embed_model AND s.embed_version = {wanted}.embed_version)"""
_COVERED = f"""
    SELECT j.job_id, 'A passage has no vector, and is not noted as refused.'
    FROM upload_jobs j JOIN law_versions v USING (document_id) LEFT JOIN active_models l ON l.user_id = j.user_id
    WHERE j.job_id = ANY(%(jobs)s)
      AND ({{wanted}}.embed_model IS NULL
           OR EXISTS (SELECT {CHUNKS_WITHOUT_VECTOR} AND NOT v.refused ? c.chunk_id::text))"""


def _sound(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    jobs = UploadJob.objects.filter(pk__in=job_ids).values_list("pk", "document_id")
    reason = "A buffered vector does not have its sha."
    return {job_id: reason for job_id, document_id in jobs if any(vector_store.corrupt_buffered_vectors(document_id))}


vectors_complete = all_invariants(sql_invariant(_COVERED.format(wanted="j", committed="false")), _sound)
vectors_buffered = all_invariants(vectors_complete, embeddings.vectors_planned)
_published = sql_invariant("""
    SELECT j.job_id, 'The version''s artifacts are not uploaded, or nothing names it as the one that is found.'
    FROM upload_jobs j JOIN law_versions v USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (v.manifest_sha256 IS NULL OR NOT EXISTS (
        SELECT FROM laws w WHERE w.law_id = v.law_id AND w.document_id = v.document_id))""")
_live = all_invariants(sql_invariant(_COVERED.format(wanted="l", committed="true")), embeddings.searchable, _published)


def _by_state(*, done: Invariant, before: Invariant) -> Invariant:
    def check(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        ended = set(UploadJob.objects.filter(pk__in=job_ids, state=State.DONE).values_list("pk", flat=True))
        return before([pk for pk in job_ids if pk not in ended]) | done([pk for pk in job_ids if pk in ended])

    return check


# A version is live once its job is done, and not before: it replaces another.
embedded = _by_state(done=_live, before=vectors_buffered)
