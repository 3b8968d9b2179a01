"""Writer of a page's drafts: the SQL upsert that counts them, in one transaction with their clients (spec 002 §3)."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import transaction

from integrations.models import ConnectedSource
from integrations.providers.interface import Provider
from integrations.records import client_rollup
from integrations.records.drafts import Draft
from integrations.records.prepared_sql import BinaryVector, cast_columns, column_arrays, execute, unnest_rows
from integrations.records.record_embedding import Vectors, size_batches
from integrations.records.text_normalization import RecordText
from integrations.sync.pgmq import TABLE, Message
from jobs import failpoints
from jobs.claims import ClaimLost


def transaction_groups(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    return size_batches(drafts, lambda each: len(each.payload) + len(each.text.text), most=MOST, room=MOST_CHARS)


NEW, CHANGED, SAME, OLDER = "new", "changed", "same", "older"
MOST = 32  # records a transaction: its locks are held for milliseconds
MOST_CHARS = 4_000_000  # of a transaction's records: memory stays flat

_TYPES = {
    **dict.fromkeys(("document_type", "title", "url", "text", "parent_external_id"), "text"),
    **dict.fromkeys(("raw_payload", "facts"), "jsonb"),
    **dict.fromkeys(("source_created_at", "source_updated_at"), "timestamptz"),
    "upload_document_id": "uuid",
}
_VECTOR = {"embedding": "vector", "embedding_model": "text", "embedding_text_sha256": "bytea"}
_COLUMNS = _TYPES | _VECTOR
_SENT = {"external_id": "text", **_COLUMNS, "current": "boolean", "is_client": "boolean", "is_embedded": "boolean"}
# A vector belongs to its text: where none was computed, the stored one stays as long as its text does.
_KEPT = ", ".join(
    f"{name} = CASE WHEN EXCLUDED.embedding IS NULL AND d.text = EXCLUDED.text THEN d.{name} ELSE EXCLUDED.{name} END"
    for name in _VECTOR
)


def _columns(alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in _TYPES)


# As text: to jsonb 1.0 and 1.00 are the same, and a client's row would show which of them came first.
_CLIENT_FIELDS = "{0}.document_type, {0}.title, {0}.parent_external_id, {0}.facts::text, {0}.source_updated_at"

# An older version in a listing never replaces a newer one. A record deleted in this very sync is restored by a listing
# only in a newer version, for the listed one may be older than the deletion; a later sync that lists it restores it.
# An item fetched by itself, ``current``, is newer than either.
# The counts are written with the records, not with their page: a repeated page finds its first run's records unchanged.
# The message is locked as by ``message_lease``, here to save a round trip; the sync, so that whoever ends it waits, and
# nobody else has the records' locks; and the source before the sync, the order of locks everywhere: a new record's
# foreign key locks it at the commit. Clients are locked before the next statement reads their records, in the order of
# their ids, as in ``recompute_clients``, so that no two transactions deadlock.
# Not durable by itself: a crash of the server that loses it loses the page's closing commit too, and the page is read
# again. That commit waits for the disk, and so for all that was written before it.
WRITE = f"""
WITH held AS (
    SELECT FROM {TABLE} q CROSS JOIN connected_sources c CROSS JOIN ingestion_jobs j
    WHERE q.msg_id = %(message)s AND q.read_ct = %(read_ct)s AND c.id = %(source)s
        AND j.id = %(job)s AND j.status = 'running'
    FOR NO KEY UPDATE OF q FOR KEY SHARE OF c FOR NO KEY UPDATE OF j),
sent AS (SELECT {cast_columns(_SENT)} FROM {unnest_rows(_SENT)}),
stored AS (
    SELECT d.* FROM held CROSS JOIN source_documents d
    WHERE d.source_id = %(source)s AND d.external_id = ANY(%(external_id)b::text[])
    ORDER BY d.external_id FOR UPDATE OF d),
judged AS (
    SELECT s.*, b.id, b.parent_external_id AS old_parent,
        b.seen_in IS DISTINCT FROM %(job)s AS is_first,
        b.deleted_at IS NULL
            AND ({_CLIENT_FIELDS.format("b")}) IS NOT DISTINCT FROM ({_CLIENT_FIELDS.format("s")}) AS same_for_client,
        CASE WHEN b.id IS NULL THEN '{NEW}'
             WHEN NOT s.current AND (s.source_updated_at < b.source_updated_at
                  OR b.deleted_at IS NOT NULL AND b.seen_in = %(job)s
                  AND (s.source_updated_at > b.source_updated_at) IS NOT TRUE) THEN '{OLDER}'
             WHEN b.deleted_at IS NULL AND s.embedding IS NULL
                  AND ROW({_columns("b")}) IS NOT DISTINCT FROM ROW({_columns("s")}) THEN '{SAME}'
             ELSE '{CHANGED}' END AS verdict,
        s.is_client OR (SELECT true FROM client_intelligence c
            WHERE c.source_id = %(source)s AND c.external_id = s.external_id) IS TRUE AS has_client
    FROM held CROSS JOIN sent s LEFT JOIN stored b USING (external_id)),
touched AS (
    UPDATE source_documents SET seen_in = %(job)s, updated_at = clock_timestamp()
    WHERE id = ANY(ARRAY(SELECT id FROM judged WHERE verdict IN ('{SAME}', '{OLDER}')))),
written AS (
    INSERT INTO source_documents AS d (user_id, source_id, external_id, seen_in, updated_at, {", ".join(_COLUMNS)})
    SELECT %(user)s, %(source)s, external_id, %(job)s, clock_timestamp(), {", ".join(_COLUMNS)}
    FROM judged WHERE verdict IN ('{NEW}', '{CHANGED}')
    ON CONFLICT (source_id, external_id) DO UPDATE SET
        seen_in = EXCLUDED.seen_in, updated_at = EXCLUDED.updated_at, deleted_at = NULL,
        ({", ".join(_TYPES)}) = ROW({_columns("EXCLUDED")}), {_KEPT}),
counted AS (
    UPDATE ingestion_jobs i SET items_embedded = items_embedded + %(embedded)s,
        items_written = items_written + (SELECT count(*) FROM judged WHERE verdict IN ('{NEW}', '{CHANGED}')),
        items_unchanged = items_unchanged + (
            SELECT count(*) FROM judged WHERE is_first AND verdict IN ('{SAME}', '{OLDER}'))
    FROM held WHERE i.id = %(job)s)
SELECT set_config('synchronous_commit', 'off', true), (
    SELECT array_agg(key) FROM (
        SELECT key, {client_rollup.LOCKED} FROM (
            SELECT DISTINCT key COLLATE "C" AS key FROM judged j, unnest(CASE
                WHEN verdict IN ('{NEW}', '{CHANGED}') AND NOT same_for_client
                    THEN ARRAY[old_parent, parent_external_id, CASE WHEN has_client THEN external_id END]
                WHEN is_embedded THEN ARRAY[external_id] END) key
            WHERE key IS NOT NULL ORDER BY key) ordered) locked) AS clients
FROM held"""


def write_records(
    message: Message, source: ConnectedSource, provider: Provider, drafts: Sequence[Draft], vectors: Vectors
) -> None:
    """Write drafts, each of another record, and recompute their clients, in one transaction.

    Raises ``ClaimLost`` when the message lease is lost or the sync has ended, the database's errors, and what a
    provider's ``build_client`` raises.
    """
    embedded_count = sum(any(text.sha in vectors.found for text in draft.missing_texts) for draft in drafts)
    params = {"message": message.msg_id, "read_ct": message.read_ct, "job": message.body.job_id}
    params |= {"source": source.pk, "user": source.user_id, "embedded": embedded_count}
    with transaction.atomic():
        rows = execute(WRITE, params | column_arrays(_SENT, [_row(draft, vectors) for draft in drafts]))
        if not rows:  # read by another worker; or the sync has failed, its source was disconnected
            raise ClaimLost(str(message.body.job_id))
        if clients := rows[0].clients:
            embedded = {draft.external_id: _embedded(draft, draft.client, vectors) for draft in drafts}
            client_rollup.write_clients(source, provider, clients, vectors.model, embedded)
        failpoints.failpoint("items:before-commit")
    failpoints.failpoint("items:after-commit")


def _embedded(draft: Draft, text: RecordText | None, vectors: Vectors) -> tuple[RecordText, BinaryVector] | None:
    if text is None or text not in draft.missing_texts or text.sha not in vectors.found:
        return None
    return text, vectors.found[text.sha]


def _row(draft: Draft, vectors: Vectors) -> dict[str, Any]:
    item, record, embedded = draft.item, draft.record, _embedded(draft, draft.text, vectors)
    return {
        "external_id": item.external_id,
        "document_type": item.document_type,
        "title": record.title,
        "url": record.url,
        "text": draft.text.text,
        "raw_payload": draft.payload,
        "parent_external_id": record.parent_external_id,
        "facts": draft.facts,
        "upload_document_id": draft.upload_document_id,
        "source_created_at": item.source_created_at,
        "source_updated_at": item.source_updated_at,
        "embedding": embedded[1] if embedded else None,
        "embedding_model": vectors.model if embedded else None,
        "embedding_text_sha256": draft.text.sha if embedded else None,
        "current": item.current,
        "is_client": draft.client is not None,
        # Perhaps the only change: the text is the same, and the model is not.
        "is_embedded": _embedded(draft, draft.client, vectors) is not None,
    }
