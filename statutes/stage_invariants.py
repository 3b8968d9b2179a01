"""Invariants of the statute pipeline's stages. A passage that the model refused may lack a vector."""

from collections.abc import Sequence
from uuid import UUID

from documents import stage_invariants as documents
from embeddings import stage_invariants as embeddings
from jobs.choices import State
from jobs.models import UploadJob
from jobs.pipeline import all_invariants, sql_invariant

version_recorded = all_invariants(
    documents.tenant_matches,
    sql_invariant("""
        SELECT j.job_id, 'No row has the version of the statute.' FROM upload_jobs j
        WHERE j.job_id = ANY(%(jobs)s)
          AND NOT EXISTS (SELECT FROM law_versions v WHERE v.document_id = j.document_id)"""),
)
received = all_invariants(
    sql_invariant("""
        SELECT j.job_id, 'The file''s format or checksum is not known.'
        FROM upload_jobs j JOIN law_versions v USING (document_id)
        WHERE j.job_id = ANY(%(jobs)s) AND (v.format IS NULL OR v.raw_sha256 IS NULL)"""),
    documents.original_stored,
)
requested = all_invariants(received, documents.parse_requested)
normalized = all_invariants(
    sql_invariant("""
        SELECT j.job_id, 'The canonical form of the statute is missing.'
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
    SELECT j.job_id, 'A passage has no vector and is not recorded as refused.'
    FROM upload_jobs j JOIN law_versions v USING (document_id) LEFT JOIN active_models l ON l.user_id = j.user_id
    WHERE j.job_id = ANY(%(jobs)s)
      AND ({{wanted}}.embed_model IS NULL
           OR EXISTS (SELECT {CHUNKS_WITHOUT_VECTOR} AND NOT v.refused ? c.chunk_id::text))"""


vectors_complete = all_invariants(
    sql_invariant(_COVERED.format(wanted="j", committed="false")), embeddings.buffer_intact
)
vectors_buffered = all_invariants(vectors_complete, embeddings.vectors_planned)
_published = sql_invariant("""
    SELECT j.job_id, 'The version''s artifacts are not uploaded, or it is not the live version.'
    FROM upload_jobs j JOIN law_versions v USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (v.manifest_sha256 IS NULL OR NOT EXISTS (
        SELECT FROM laws w WHERE w.law_id = v.law_id AND w.document_id = v.document_id))""")
_live = all_invariants(sql_invariant(_COVERED.format(wanted="l", committed="true")), embeddings.searchable, _published)


def embedded(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Require a live version once the job is done, and none before: it replaces another."""
    done = set(UploadJob.objects.filter(pk__in=job_ids, state=State.DONE).values_list("pk", flat=True))
    return vectors_buffered([pk for pk in job_ids if pk not in done]) | _live([pk for pk in job_ids if pk in done])
