"""What must hold of every row that connectors have written, as one statement each: they read indexes, not payloads."""

from __future__ import annotations

from integrations.sync.pgmq import TABLE

_ANOTHERS = """SELECT r.id, 'It belongs to another tenant than its source.'
    FROM {table} r JOIN connected_sources s ON s.id = r.source_id WHERE r.user_id <> s.user_id"""
_NOT_KEPT = """NOT EXISTS (SELECT 1 FROM vault_tokens v WHERE v.id = s.{column} AND v.source_id = s.id)"""
_OF_SYNC = "m.message ->> 'job_id' = j.id::text"

ROWS = {
    "record": _ANOTHERS.format(table="source_documents"),
    "client": _ANOTHERS.format(table="client_intelligence"),
    "sync": _ANOTHERS.format(table="ingestion_jobs"),
    "token": _ANOTHERS.format(table="vault_tokens"),
    "gone record": """SELECT d.id, 'The record is gone at its provider, and its text or vector is still here.'
        FROM source_documents d WHERE d.deleted_at IS NOT NULL
            AND (d.embedding IS NOT NULL OR d.text <> '' OR d.raw_payload <> '{}')""",
    "vector of a record": """SELECT d.id, 'The vector does not say which model made it, and of which text.'
        FROM source_documents d WHERE d.embedding IS NOT NULL
            AND (d.embedding_model IS NULL OR d.embedding_text_sha256 IS NULL)""",
    "vector of a client": """SELECT c.id, 'The vector does not say which model made it, and of which text.'
        FROM client_intelligence c WHERE c.embedding IS NOT NULL
            AND (c.embedding_model IS NULL OR c.embedding_text_sha256 IS NULL)""",
    # Of a source that is let go of the records are removed first.
    "client without a record": """SELECT c.id, 'The record that tells of this client is gone or was never there.'
        FROM client_intelligence c JOIN connected_sources s ON s.id = c.source_id
        WHERE c.external_id IS NOT NULL AND s.status <> 'disconnected' AND NOT EXISTS (
            SELECT 1 FROM source_documents d
            WHERE d.source_id = c.source_id AND d.external_id = c.external_id AND d.deleted_at IS NULL)""",
    "source without its token": f"""SELECT s.id, 'A token of this source is not in the vault.'
        FROM connected_sources s WHERE s.status = 'active' AND (
            (s.access_token_vault_id IS NOT NULL AND {_NOT_KEPT.format(column="access_token_vault_id")})
            OR (s.refresh_token_vault_id IS NOT NULL AND {_NOT_KEPT.format(column="refresh_token_vault_id")}))""",
    # A page is closed, and the next put into the queue, in one transaction: this is never so, not even for a moment.
    "sync without a page": f"""SELECT j.id, 'The sync is going on, and no page of it is in the queue.'
        FROM ingestion_jobs j WHERE j.status IN ('queued', 'running') AND NOT EXISTS (
            SELECT 1 FROM {TABLE} m WHERE {_OF_SYNC})""",
    "source that stays": """SELECT s.id, 'The source is disconnected, and nobody removes what it has brought.'
        FROM connected_sources s WHERE s.status = 'disconnected' AND NOT EXISTS (
            SELECT 1 FROM ingestion_jobs j WHERE j.source_id = s.id AND j.status IN ('queued', 'running'))""",
}
_OTHER_TEXT = """SELECT r.id, 'The vector was made of another text than the one that stands beside it.'
    FROM {table} r WHERE r.embedding_text_sha256 <> sha256(convert_to(r.text, 'UTF8'))"""
DEEP = {
    "text of a record": _OTHER_TEXT.format(table="source_documents"),
    "text of a client": _OTHER_TEXT.format(table="client_intelligence"),
}
