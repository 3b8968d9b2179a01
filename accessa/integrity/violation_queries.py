"""SQL of the integrity checks: one statement per invariant, which selects the subject and the reason of each violation.

The keys are the kinds that `manage.py audit_jobs` prints. The statements read indexes, not payloads, except
``CONNECTOR_TEXTS``.
"""

from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.buffer_cleanup import WAITS_FOR_RETRY
from integrations.sync.pgmq import TABLE
from jobs.choices import ACTIVE

_NO_ACTIVE_JOB = """NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = b.document_id AND (j.state IN ('queued', 'working', 'retryable')
                OR j.finished_at > clock_timestamp() - interval '2 minutes'))"""

# Chunks of a statute that were imported as artifacts.
_IMPORTED = """EXISTS (SELECT 1 FROM law_versions v
            WHERE v.document_id = {}.document_id AND v.job_id IS NULL AND v.manifest_sha256 IS NOT NULL)"""

# Rows of another tenant than their parents, and buffers of documents without an active job.
DOCUMENTS = {
    "chunk": """SELECT c.chunk_id, 'The chunk belongs to another tenant than its document.'
        FROM document_chunks c JOIN documents d USING (document_id) WHERE c.user_id <> d.user_id""",
    "chunk of no job": """SELECT c.chunk_id, 'The chunk was cut by a chunker that no job of its document used.'
        FROM document_chunks c WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = c.document_id AND j.chunks_version = c.chunker_name || '@' || c.chunker_version)
            AND NOT """
    + _IMPORTED.format("c"),
    "vector": """SELECT b.buffer_id, 'A vector waits in the buffer though its document is not being worked on.'
        FROM document_vector_buffer b WHERE """
    + f"{_NO_ACTIVE_JOB} AND NOT {WAITS_FOR_RETRY}",
    "buffered chunk": """SELECT b.chunk_id, 'A chunk waits in the buffer though its document is not being worked on.'
        FROM document_chunk_buffer b WHERE """
    + _NO_ACTIVE_JOB,
    "document": """SELECT d.document_id, 'The document has another status than its job.'
        FROM documents d JOIN LATERAL (SELECT status FROM upload_jobs j
            WHERE j.document_id = d.document_id AND j.campaign_id IS NULL
            ORDER BY created_at DESC, job_id DESC LIMIT 1) j ON true
        WHERE d.processing_status IS DISTINCT FROM j.status""",
    "document without a job": """SELECT d.document_id, 'No job was ever made for the document.'
        FROM documents d WHERE NOT EXISTS (
            SELECT 1 FROM upload_jobs j WHERE j.document_id = d.document_id AND j.campaign_id IS NULL)
            AND NOT """
    + _IMPORTED.format("d"),
    "passage": """SELECT c.chunk_id, 'The passage is searchable, and its document uses another chunker version.'
        FROM document_chunks c JOIN documents d USING (document_id)
        WHERE c.embed_model IS NOT NULL AND d.chunks_version <> c.chunker_name || '@' || c.chunker_version""",
    "shadow vector": """SELECT s.chunk_id, 'The vector belongs to another tenant or document than its chunk.'
        FROM shadow_vectors s JOIN document_chunks c USING (chunk_id)
        WHERE s.user_id <> c.user_id OR s.document_id <> c.document_id""",
    "words": """SELECT DISTINCT d.document_id, 'Words of the document belong to another tenant.'
        FROM document_terms t JOIN documents d USING (document_id) WHERE t.user_id <> d.user_id""",
    "merged words": """SELECT t.document_id, 'The segment of the document''s words is missing, or another tenant''s.'
        FROM document_terms t WHERE t.segment_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM posting_segments s WHERE s.segment_id = t.segment_id AND s.user_id = t.user_id)""",
}

# Documents whose object belongs between two others in a listing. A store with another order costs more single lookups.
EXPECTED_FILES = {
    "raw": """SELECT document_id, raw_path FROM documents WHERE stored_at IS NOT NULL
        AND (user_id, document_id) > (%s, %s) AND (user_id, document_id) <= (%s, %s)""",
    "parsed": """SELECT document_id, parsed_path FROM documents WHERE parsed_path IS NOT NULL
        AND (user_id, document_id) > (%s, %s) AND (user_id, document_id) <= (%s, %s)""",
}

_OTHER_TENANT = """SELECT r.id, 'It belongs to another tenant than its source.'
    FROM {table} r JOIN connected_sources s ON s.id = r.source_id WHERE r.user_id <> s.user_id"""
_NOT_IN_VAULT = """NOT EXISTS (SELECT 1 FROM vault_tokens v WHERE v.id = s.{column} AND v.source_id = s.id)"""
_OF_SYNC = "m.message ->> 'job_id' = j.id::text"

CONNECTORS = {
    "record": _OTHER_TENANT.format(table="source_documents"),
    "client": _OTHER_TENANT.format(table="client_intelligence"),
    "sync": _OTHER_TENANT.format(table="ingestion_jobs"),
    "token": _OTHER_TENANT.format(table="vault_tokens"),
    "gone record": """SELECT d.id, 'The record was deleted at its provider, and its text or vector is kept.'
        FROM source_documents d WHERE d.deleted_at IS NOT NULL
            AND (d.embedding IS NOT NULL OR d.text <> '' OR d.raw_payload <> '{}')""",
    "vector of a record": """SELECT d.id, 'The vector has no model, or no digest of its text.'
        FROM source_documents d WHERE d.embedding IS NOT NULL
            AND (d.embedding_model IS NULL OR d.embedding_text_sha256 IS NULL)""",
    "vector of a client": """SELECT c.id, 'The vector has no model, or no digest of its text.'
        FROM client_intelligence c WHERE c.embedding IS NOT NULL
            AND (c.embedding_model IS NULL OR c.embedding_text_sha256 IS NULL)""",
    # Disconnecting a source removes its records first.
    "client without a record": """SELECT c.id, 'The client has no record.'
        FROM client_intelligence c JOIN connected_sources s ON s.id = c.source_id
        WHERE c.external_id IS NOT NULL AND s.status <> 'disconnected' AND NOT EXISTS (
            SELECT 1 FROM source_documents d
            WHERE d.source_id = c.source_id AND d.external_id = c.external_id AND d.deleted_at IS NULL)""",
    "source without its token": f"""SELECT s.id, 'A token of this source is not in the vault.'
        FROM connected_sources s WHERE s.status = 'active' AND (
            (s.access_token_vault_id IS NOT NULL AND {_NOT_IN_VAULT.format(column="access_token_vault_id")})
            OR (s.refresh_token_vault_id IS NOT NULL AND {_NOT_IN_VAULT.format(column="refresh_token_vault_id")}))""",
    # A page is closed and the next one enqueued in one transaction: this never holds, not even for a moment.
    "sync without a page": f"""SELECT j.id, 'The sync is running, and no page of it is queued.'
        FROM ingestion_jobs j WHERE j.status IN ('queued', 'running') AND NOT EXISTS (
            SELECT 1 FROM {TABLE} m WHERE {_OF_SYNC})""",
    "source that stays": """SELECT s.id, 'The source is disconnected, and no job deletes its records.'
        FROM connected_sources s WHERE s.status = 'disconnected' AND NOT EXISTS (
            SELECT 1 FROM ingestion_jobs j WHERE j.source_id = s.id AND j.status IN ('queued', 'running'))""",
}
_OTHER_TEXT = """SELECT r.id, 'The vector was made of another text than the stored one.'
    FROM {table} r WHERE r.embedding_text_sha256 <> sha256(convert_to(r.text, 'UTF8'))"""
CONNECTOR_TEXTS = {
    "text of a record": _OTHER_TEXT.format(table="source_documents"),
    "text of a client": _OTHER_TEXT.format(table="client_intelligence"),
}

# A version's status is "processing" from its message on: some checks apply to versions without an active job alone.
_AT_REST = "v.status IN ('embedded', 'partial_failed')"
_IDLE = f"""NOT EXISTS (
            SELECT FROM upload_jobs j WHERE j.document_id = v.document_id
              AND j.state IN ({", ".join(f"'{state}'" for state in sorted(ACTIVE))}))"""
_INCOMPLETE = """FROM laws w JOIN law_versions v USING (document_id) JOIN documents d USING (document_id)
        CROSS JOIN LATERAL (
            SELECT count(*) AS passages,
                   count(*) FILTER (WHERE c.embed_model IS NULL AND NOT v.refused ? c.chunk_id::text) AS lost
            FROM document_chunks c WHERE c.document_id = w.document_id
              AND c.chunker_name || '@' || c.chunker_version = d.chunks_version) c
        WHERE (c.passages <> w.chunk_count OR c.lost > 0)"""

STATUTES = {
    "law": f"""SELECT w.law_id, 'The searchable document of the statute is another version, or another tenant''s.'
        FROM laws w LEFT JOIN law_versions v USING (document_id) LEFT JOIN documents d USING (document_id)
        WHERE w.document_id IS NOT NULL
          AND (v.law_id, v.version, d.user_id) IS DISTINCT FROM (w.law_id, w.version, '{SYSTEM_TENANT_ID}'::uuid)""",
    "law's status": """SELECT w.law_id, 'The status of the statute contradicts whether it is searchable.'
        FROM laws w WHERE (w.document_id IS NOT NULL) <> (w.status IN ('embedded', 'partial_failed'))""",
    "law's passages": f"""SELECT w.law_id, 'Passages of the statute are missing, or are neither searchable nor refused.'
        {_INCOMPLETE} AND ({_AT_REST} OR {_IDLE})""",
    "law without artifacts": f"""SELECT w.law_id, 'The statute is searchable, and no manifest of it was uploaded.'
        FROM laws w JOIN law_versions v USING (document_id) WHERE {_AT_REST} AND v.manifest_sha256 IS NULL""",
    "version without a job": """SELECT v.document_id, 'The version waits for processing, and has no job.'
        FROM law_versions v WHERE v.status IN ('processing', 'normalized') AND NOT EXISTS (
            SELECT FROM upload_jobs j WHERE j.job_id = v.job_id AND j.document_id = v.document_id)""",
    "version beside another": """SELECT v.document_id, 'The version is searchable, and its statute names another one.'
        FROM law_versions v LEFT JOIN laws w USING (law_id)
        WHERE w.document_id IS DISTINCT FROM v.document_id AND EXISTS (
            SELECT FROM document_chunks c WHERE c.document_id = v.document_id AND c.embed_model IS NOT NULL)""",
    "version that stays": """SELECT v.document_id, 'The text of the version is kept, and its document was deleted.'
        FROM law_versions v WHERE v.canonical IS NOT NULL AND NOT EXISTS (
            SELECT FROM documents d WHERE d.document_id = v.document_id)""",
    "document of no law": f"""SELECT d.document_id, 'The document belongs to the system tenant, and to no statute.'
        FROM documents d WHERE d.user_id = '{SYSTEM_TENANT_ID}' AND NOT EXISTS (
            SELECT FROM law_versions v WHERE v.document_id = d.document_id)""",
}
