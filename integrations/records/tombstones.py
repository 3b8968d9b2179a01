"""Tombstones: records deleted at their provider, kept as empty rows so that no older page revives them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from integrations.models import ConnectedSource
from integrations.providers.interface import Provider, RawItem
from integrations.records import client_rollup
from integrations.records.prepared_sql import execute
from integrations.records.text_normalization import strip_unstorable
from integrations.sync import pgmq
from integrations.sync.pgmq import Message

SLICE = 500  # rows a transaction: the locks on a large source's rows are held for milliseconds

# Its version stays, not the time of the deletion: a record that is restored unchanged must not look older.
_EMPTY = """
gone AS MATERIALIZED ({which} ORDER BY d.external_id FOR NO KEY UPDATE OF d),
emptied AS (
    UPDATE source_documents d
    SET deleted_at = clock_timestamp(), updated_at = clock_timestamp(), seen_in = %(job)s, title = '', url = NULL,
        text = '', raw_payload = '{{}}', facts = '{{}}', parent_external_id = NULL,
        upload_document_id = NULL, embedding = NULL, embedding_model = NULL, embedding_text_sha256 = NULL
    FROM gone g WHERE d.id = g.id),
counted AS (
    UPDATE ingestion_jobs SET items_deleted = items_deleted + (SELECT count(*) FROM gone) WHERE id = %(job)s)
SELECT g.external_id, g.parent_external_id,
    EXISTS (SELECT FROM client_intelligence c
            WHERE c.source_id = %(source)s AND c.external_id = g.external_id) AS is_client,
    set_config('synchronous_commit', 'off', true)
FROM gone g"""
_ROW = "SELECT d.id, d.external_id, d.parent_external_id"
# A record that changed after its deletion was restored meanwhile.
NAMED = "WITH " + _EMPTY.format(
    which=f"""{_ROW}
    FROM unnest(%(ids)s::text[], %(times)s::timestamptz[]) AS deletions (external_id, at)
    JOIN source_documents d ON d.source_id = %(source)s AND d.external_id = deletions.external_id
    WHERE d.deleted_at IS NULL AND (d.source_updated_at > deletions.at) IS NOT TRUE"""
)
UNSEEN = "WITH " + _EMPTY.format(
    which=f"""{_ROW} FROM source_documents d
    WHERE d.source_id = %(source)s AND d.external_id > %(after)s AND d.external_id <= %(upto)s
      AND d.deleted_at IS NULL AND d.seen_in IS DISTINCT FROM %(job)s
      AND (%(types)s::text[] IS NULL OR d.document_type = ANY(%(types)s))"""
)
UPTO = """
    SELECT max(external_id) AS upto FROM (
        SELECT d.external_id FROM source_documents d WHERE d.source_id = %(source)s AND d.external_id > %(after)s
        ORDER BY d.external_id LIMIT %(most)s) slice"""


def mark_deleted(message: Message, source: ConnectedSource, provider: Provider, deletions: Sequence[RawItem]) -> None:
    """Empty the rows of records that the provider reports as deleted, and count them."""
    storable = [item for item in deletions if strip_unstorable(item.external_id) == item.external_id]
    for start in range(0, len(storable), SLICE):
        batch = storable[start : start + SLICE]
        ids, times = [item.external_id for item in batch], [item.source_updated_at for item in batch]
        _empty(message, source, provider, NAMED, {"ids": ids, "times": times})


def mark_unseen_deleted(
    message: Message, source: ConnectedSource, provider: Provider, types: Collection[str] | None
) -> None:
    """Empty the rows that a complete full sync has not seen, of these types or of all.

    Reads the source's rows once, by their index. Idempotent.
    """
    after, params = "", {"types": None if types is None else sorted(types)}
    while upto := execute(UPTO, {"source": source.pk, "after": after, "most": SLICE})[0].upto:
        pgmq.raise_if_stopping()
        _empty(message, source, provider, UNSEEN, params | {"after": after, "upto": upto})
        after = upto


def _empty(message: Message, source: ConnectedSource, provider: Provider, sql: str, params: Mapping[str, Any]) -> None:
    with pgmq.message_lease(message):
        rows = execute(sql, {"source": source.pk, "job": message.body.job_id, **params})
        keys = {row.parent_external_id for row in rows} | {row.external_id for row in rows if row.is_client}
        client_rollup.recompute_clients(source, provider, keys - {None})
