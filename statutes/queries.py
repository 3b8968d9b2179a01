"""SQL and querysets of statutes: urgency, failures, expiry, consumers, publication, artifact import and export."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from statutes.invariants import CHUNKS_WITHOUT_VECTOR
from statutes.models import Law, LawVersion

MAX_VERSIONS = 1_000  # per law

# statutes.stages

# ix_law_versions_urgent gives the versions that are begun and not read; the subquery then looks up each one's job. All
# statutes belong to one user, whose jobs take 150 ms to scan at 100,000 statutes. A failed version that was withdrawn
# has no job. The inner LIMIT keeps the planner from joining.
_URGENT = """EXISTS (
        SELECT FROM law_versions v
        WHERE v.status = '{status}' AND v.job_id IS NOT NULL AND v.priority = ANY(%(before)s) AND (
            SELECT j.job_id FROM upload_jobs j
            WHERE j.document_id = v.document_id AND j.pipeline = %(pipeline)s AND j.stage = %(first)s
              AND j.state = 'queued' AND (j.run_after IS NULL OR j.wait_reason = 'MORE_URGENT_LAW')
            LIMIT 1) IS NOT NULL)"""
# Failed versions, which staff may have retried, can be many: they are scanned only where nothing else waits.
MORE_URGENT = f"""
    SELECT clock_timestamp() < %(since)s + make_interval(secs => %(aged)s) AND (
        {_URGENT.format(status="processing")} OR {_URGENT.format(status="failed")})"""
# Whether the live version has a passage that the new chunks would remove or change.
LOSES_PASSAGE = """
    SELECT EXISTS (
        SELECT FROM law_versions v JOIN laws w USING (law_id, document_id) JOIN document_chunks c USING (document_id)
        WHERE v.document_id = %(document)s AND c.chunker_name || '@' || c.chunker_version = %(chunker)s
          AND NOT EXISTS (
            SELECT FROM document_chunk_buffer b WHERE b.chunk_id = c.chunk_id AND b.chunk_sha = c.chunk_sha))"""
_WITHOUT_VECTOR = f"""
    SELECT c.chunk_id::text {CHUNKS_WITHOUT_VECTOR.format(wanted="j", committed="false")} ORDER BY c.chunk_ord"""
CHUNK_IDS_WITHOUT_VECTOR = f"SELECT array(({_WITHOUT_VECTOR})) FROM upload_jobs j WHERE j.job_id = %s"

# statutes.periodic

# A minute late: a redelivered message is recorded just before its dead job is retried.
_DEAD = """
    FROM law_versions v JOIN upload_jobs j ON j.job_id = v.job_id
    WHERE v.status IN ('processing', 'normalized') AND v.updated_at < clock_timestamp() - interval '1 minute'
      AND j.state = 'deadletter' AND j.finished_at < clock_timestamp() - interval '1 minute'"""
_IS_FATAL = """(coalesce(j.last_error -> 'permanent' = 'true', false)
                AND coalesce(j.last_error ->> 'code', '') <> ALL(%(let_go)s))"""
FATAL_FAILURES = f"SELECT v.document_id {_DEAD} AND {_IS_FATAL} ORDER BY v.updated_at LIMIT %(most)s"
MARK_FAILED = f"""
WITH dead AS (
    SELECT v.document_id, coalesce(j.last_error ->> 'code', 'internal') AS code {_DEAD}
      AND (v.document_id = ANY(%(archived)s) OR NOT {_IS_FATAL})
    ORDER BY v.document_id LIMIT 1000
), failed AS (
    UPDATE law_versions v SET status = 'failed', error_code = dead.code, updated_at = clock_timestamp()
    FROM dead WHERE v.document_id = dead.document_id AND v.status IN ('processing', 'normalized')
    RETURNING v.law_id, v.version
)
UPDATE laws l SET status = 'failed', updated_at = clock_timestamp() FROM failed
WHERE l.law_id = failed.law_id AND l.version = failed.version AND l.document_id IS NULL"""
_EXPIRED = """v.status = 'failed' AND v.updated_at < clock_timestamp() - make_interval(days => %(days)s)
              AND NOT EXISTS (SELECT FROM laws w WHERE w.document_id = v.document_id)"""
# Selected before any lock is taken, so that an expired version that cannot be deleted does not block the others.
EXPIRED_FAILURES = f"""
    SELECT v.document_id FROM law_versions v JOIN documents d USING (document_id)
    WHERE {_EXPIRED} ORDER BY v.updated_at LIMIT %(most)s"""
IS_EXPIRED = f"SELECT EXISTS (SELECT FROM law_versions v WHERE v.document_id = %(document_id)s AND {_EXPIRED})"

# statutes.consumer.status

# A consumer may reuse the name of an earlier one: in a container every main process has the same pid.
UPSERT_CONSUMER = """
WITH old AS (
    SELECT name FROM sqs_consumers WHERE seen_at < clock_timestamp() - interval '1 hour' AND name <> %(name)s
    FOR UPDATE SKIP LOCKED
), deleted AS (DELETE FROM sqs_consumers USING old WHERE sqs_consumers.name = old.name)
INSERT INTO sqs_consumers AS c (name, state, job_id, received, ended, failed, started_at, changed_at, seen_at)
VALUES (%(name)s, %(state)s, %(job)s, %(received)s, %(ended)s, %(failed)s,
        clock_timestamp(), clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE SET
    state = excluded.state, job_id = excluded.job_id, seen_at = excluded.seen_at,
    received = excluded.received, ended = excluded.ended, failed = excluded.failed,
    changed_at = CASE WHEN c.state = excluded.state THEN c.changed_at ELSE excluded.changed_at END,
    started_at = CASE WHEN %(first)s THEN excluded.started_at ELSE c.started_at END
"""

# statutes.s3.artifacts

# pgvector writes the shortest decimals that give the same float32 again, and always the same: valid JSON.
# The model's vector is committed already, or waits in the buffer or among the shadow vectors. Subqueries, because the
# planner has no statistics of a buffer that fills in seconds.
_PENDING_VECTOR = """(
    SELECT v.embedding::text FROM {table} v
    WHERE v.chunk_id = c.chunk_id AND v.embed_model = %(model)s AND v.embed_version = %(model_version)s LIMIT 1)"""
PASSAGES_WITH_VECTORS = f"""
    SELECT chunk_id, chunk_ord, chunk_sha, text, meta::text, coalesce(
        CASE WHEN embed_model = %(model)s AND embed_version = %(model_version)s THEN embedding::text END,
        {_PENDING_VECTOR.format(table="document_vector_buffer")}, {_PENDING_VECTOR.format(table="shadow_vectors")})
    FROM document_chunks c
    WHERE document_id = %(document)s AND chunker_name || '@' || chunker_version = %(chunker)s AND chunk_ord > %(after)s
    ORDER BY chunk_ord LIMIT %(most)s"""

# statutes.artifact_import

CREATE_IMPORT_TABLE = """
    CREATE TEMP TABLE IF NOT EXISTS arriving_passages (
        chunk_id uuid, chunk_ord int, chunk_sha text, text text, meta jsonb, vector_sha text,
        embedding vector(1536)) ON COMMIT DROP;
    DELETE FROM arriving_passages  -- of another law, in a transaction of the caller's"""
COPY_PASSAGES = """
    COPY arriving_passages (chunk_id, chunk_ord, chunk_sha, text, meta, vector_sha, embedding) FROM STDIN"""
DELETE_OTHER_PASSAGES = """
    DELETE FROM {table} c WHERE c.document_id = %(document)s
    AND NOT EXISTS (SELECT FROM arriving_passages a WHERE a.chunk_id = c.chunk_id)"""
UPSERT_PASSAGES = """
    INSERT INTO document_chunks AS c
        (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text, meta,
         embed_model, embed_version, vector_dim, vector_sha, embedding, embed_updated_at)
    SELECT chunk_id, %(user)s, %(document)s, %(chunker)s, %(chunker_version)s, chunk_ord, chunk_sha, text, meta,
           CASE WHEN embedding IS NOT NULL THEN %(model)s END, CASE WHEN embedding IS NOT NULL THEN %(version)s END,
           CASE WHEN embedding IS NOT NULL THEN %(dimensions)s END, vector_sha, embedding,
           CASE WHEN embedding IS NOT NULL THEN clock_timestamp() END
    FROM arriving_passages
    ON CONFLICT (chunk_id) DO UPDATE SET
        chunk_ord = excluded.chunk_ord, chunk_sha = excluded.chunk_sha, text = excluded.text, meta = excluded.meta,
        embed_model = excluded.embed_model, embed_version = excluded.embed_version, vector_dim = excluded.vector_dim,
        vector_sha = excluded.vector_sha, embedding = excluded.embedding, embed_updated_at = excluded.embed_updated_at,
        updated_at = clock_timestamp()
    WHERE (c.chunk_sha, c.chunk_ord, c.meta, c.vector_sha, c.embed_model, c.embed_version) IS DISTINCT FROM
        (excluded.chunk_sha, excluded.chunk_ord, excluded.meta, excluded.vector_sha, excluded.embed_model,
         excluded.embed_version)"""


def laws_with_error_codes() -> QuerySet[Law]:
    """Return the laws annotated with ``error_code``, that of the latest version: None where it has not failed."""
    latest = LawVersion.objects.filter(law_id=OuterRef("law_id")).order_by("-created_at")
    return Law.objects.annotate(error_code=Subquery(latest.values("error_code")[:1]))


def document_ids_of_law(law_id: str) -> Collection[UUID]:
    """Return the document ids of a law's versions, by which its jobs are found."""
    return list(LawVersion.objects.filter(law_id=law_id).values_list("document_id", flat=True)[:MAX_VERSIONS])
