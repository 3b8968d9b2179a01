"""One record, in one transaction: its row with its vector, and what it tells of a client (spec 002 §3)."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from integrations import rollups
from integrations.drafts import Draft
from integrations.embedding import Vectors
from integrations.messages import Message
from integrations.models import ConnectedSource
from integrations.providers import Provider
from integrations.queue import TABLE
from integrations.statements import Wire, execute
from integrations.texts import Text
from jobs import crashpoints
from jobs.claims import Superseded

NEW, CHANGED, SAME, OLDER = "new", "changed", "same", "older"

_TYPES = {
    "document_type": "text",
    "title": "text",
    "url": "text",
    "text": "text",
    "raw_payload": "jsonb",
    "parent_external_id": "text",
    "facts": "jsonb",
    "upload_document_id": "uuid",
    "source_created_at": "timestamptz",
    "source_updated_at": "timestamptz",
}
_VECTOR = {"embedding": "vector", "embedding_model": "text", "embedding_text_sha256": "bytea"}
# A vector goes with its text: where none was made, because there was one, the stored one stays; while the text does.
_KEPT = ", ".join(
    f"{name} = CASE WHEN EXCLUDED.embedding IS NULL AND d.text = EXCLUDED.text THEN d.{name} ELSE EXCLUDED.{name} END"
    for name in _VECTOR
)
_STORED = ", ".join(f"b.{name}" for name in _TYPES)
# As text: to jsonb 1.0 and 1.00 are the same, and a client's row would show which of them came first.
_TELLS = "{0}.document_type, {0}.title, {0}.parent_external_id, {0}.facts::text, {0}.source_updated_at"

# An older version in a listing never replaces a newer. What was deleted in this very sync a listing brings back with a
# newer version only, for it may be older than the deletion; a later sync that lists it tells that it was restored.
# What was asked for by itself, ``current``, is newer than either.
# Counted with the record, not with its page: what an interrupted page has written it finds unchanged the next time.
# The message is locked as by ``messages.fenced``, here to spare a trip for each record. Clients are locked before the
# next statement reads their records, in the order of their ids, so that nobody waits crosswise.
# Not durable by itself: a server's crash that loses it loses the page's closing commit too, or never made it, and the
# page is read again. That commit waits for the disk, and so for all that was written before it.
_WRITE = f"""
WITH held AS (
    SELECT FROM {TABLE} q WHERE q.msg_id = %(message)s AND q.read_ct = %(read_ct)s FOR NO KEY UPDATE),
said AS (SELECT {", ".join(f"%({name})s::{type} AS {name}" for name, type in _TYPES.items())}),
stored AS (SELECT * FROM source_documents WHERE source_id = %(source)s AND external_id = %(id)s FOR UPDATE),
judged AS (
    SELECT b.id, b.parent_external_id AS old_parent,
        b.seen_in IS DISTINCT FROM %(job)s AS is_first,
        b.deleted_at IS NULL AND ({_TELLS.format("b")}) IS NOT DISTINCT FROM ({_TELLS.format("s")}) AS tells_same,
        CASE WHEN b.id IS NULL THEN '{NEW}'
             WHEN NOT %(current)s AND (s.source_updated_at < b.source_updated_at
                  OR b.deleted_at IS NOT NULL AND b.seen_in = %(job)s
                  AND (s.source_updated_at > b.source_updated_at) IS NOT TRUE) THEN '{OLDER}'
             WHEN b.deleted_at IS NULL AND %(embedding)s::vector IS NULL
                  AND ROW({_STORED}) IS NOT DISTINCT FROM ROW(s.*) THEN '{SAME}'
             ELSE '{CHANGED}' END AS verdict,
        EXISTS (SELECT FROM client_intelligence c
                WHERE c.source_id = %(source)s AND c.external_id = %(id)s) AS is_client
    FROM held CROSS JOIN ingestion_jobs j CROSS JOIN said s LEFT JOIN stored b ON true
    WHERE j.id = %(job)s AND j.status = 'running'),
touched AS (
    UPDATE source_documents d SET seen_in = %(job)s, updated_at = clock_timestamp()
    FROM judged j WHERE d.id = j.id AND j.verdict IN ('{SAME}', '{OLDER}')),
written AS (
    INSERT INTO source_documents AS d (user_id, source_id, external_id, seen_in, updated_at,
        {", ".join(_TYPES | _VECTOR)})
    SELECT %(user)s, %(source)s, %(id)s, %(job)s, clock_timestamp(), s.*,
        {", ".join(f"%({name})s::{type}" for name, type in _VECTOR.items())}
    FROM judged j CROSS JOIN said s WHERE j.verdict IN ('{NEW}', '{CHANGED}')
    ON CONFLICT (source_id, external_id) DO UPDATE SET
        seen_in = EXCLUDED.seen_in, updated_at = EXCLUDED.updated_at, deleted_at = NULL,
        ({", ".join(_TYPES)}) = (SELECT * FROM said), {_KEPT}),
counted AS (
    UPDATE ingestion_jobs i SET items_embedded = items_embedded + %(embedded)s,
        items_written = items_written + (verdict IN ('{NEW}', '{CHANGED}'))::int,
        items_unchanged = items_unchanged + (is_first AND verdict IN ('{SAME}', '{OLDER}'))::int
    FROM judged j WHERE i.id = %(job)s)
SELECT set_config('synchronous_commit', 'off', true), (
    SELECT array_agg(key) FROM (
        SELECT key, {rollups.LOCKED} FROM (
            SELECT DISTINCT key FROM unnest(CASE
                WHEN changes THEN ARRAY[old_parent, %(parent_external_id)s,
                    CASE WHEN is_client OR %(is_client)s THEN %(id)s END]
                WHEN %(is_embedded)s THEN ARRAY[%(id)s::text] END) key
            WHERE key IS NOT NULL ORDER BY key) ordered) locked) AS clients
FROM (SELECT j.*, verdict IN ('{NEW}', '{CHANGED}') AND NOT tells_same AS changes FROM judged j) judged"""
# Without its indentation: psycopg reads a statement of more than 4,096 characters anew each time, which takes longer
# than all else that it does.
WRITE = " ".join(_WRITE.split())


def write(message: Message, source: ConnectedSource, provider: Provider, draft: Draft, vectors: Vectors) -> None:
    """Write a draft and recompute the clients that it counts for, while the message is ours and its sync goes on.

    Raises ``Superseded``, and the database's errors.
    """
    with transaction.atomic():
        rows = execute(WRITE, _params(message, source, draft, vectors))
        if not rows:  # overtaken; or the sync has failed, its source was disconnected
            raise Superseded(str(message.body.job_id))
        row = rows[0]
        if row.clients:
            told = {draft.external_id: _embedded(draft, draft.client, vectors)}
            rollups.write(source, provider, row.clients, vectors.model, told)
        crashpoints.reach("item:before-commit")
    crashpoints.reach("item:after-commit")


def _embedded(draft: Draft, text: Text | None, vectors: Vectors) -> tuple[Text, Wire] | None:
    """Return a text's vector where it was made or found for this draft; None where the stored one is to stay."""
    if text is None or text not in draft.lacking or text.sha not in vectors.found:
        return None
    return text, vectors.found[text.sha]


def _params(message: Message, source: ConnectedSource, draft: Draft, vectors: Vectors) -> dict[str, Any]:
    item, record, made = draft.item, draft.record, _embedded(draft, draft.text, vectors)
    return {
        "message": message.msg_id,
        "read_ct": message.read_ct,
        "source": source.pk,
        "user": source.user_id,
        "job": message.body.job_id,
        "id": item.external_id,
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
        "embedding": made[1] if made else None,
        "embedding_model": vectors.model if made else None,
        "embedding_text_sha256": draft.text.sha if made else None,
        "current": item.current,
        "embedded": int(any(text.sha in vectors.found for text in draft.lacking)),
        "is_client": draft.client is not None,
        # Nothing else may have changed: the text is the same, and the model is not.
        "is_embedded": _embedded(draft, draft.client, vectors) is not None,
    }
