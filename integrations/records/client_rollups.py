"""What is known of a client, computed anew from the stored records: their order of arrival does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, cast

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers import Children, Client, Provider, Rollup
from integrations.records import json_codec, sql_arrays
from integrations.records.sql import BinaryVector, execute
from integrations.records.text import RecordText, strip_unstorable
from jobs.advisory_locks import transaction_lock_sql

# In order, so that two transactions never wait for each other crosswise; and by a statement before the one that reads:
# what whoever held the lock has committed must be seen.
LOCKED = transaction_lock_sql("'client:' || %(source)s::text || ':' || key")
LOCK = f"SELECT {LOCKED} FROM unnest(%(keys)s::text[]) AS key"
# The small facts only: a payload may be a megabyte. The children are counted, summed and ordered by the database: a
# customer may have twenty thousand invoices, and each of them that comes has its customer computed anew.
_CHILDREN = """FROM source_documents d
    WHERE d.source_id = %(source)s AND d.parent_external_id = own.external_id AND d.parent_external_id IS NOT NULL
      AND d.deleted_at IS NULL AND d.document_type = %(document_type)s"""
_IS_FIRST = "(d.facts ->> %(first)s::text) IS NOT DISTINCT FROM 'true'"
READ = f"""
    SELECT own.external_id AS key, own.document_type, own.title, own.facts, own.source_updated_at,
        told.count, told.total, shown.newest
    FROM source_documents own
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE {_IS_FIRST}) AS count,
            coalesce(sum((d.facts ->> %(total)s::text)::numeric), 0)::text AS total
        {_CHILDREN}) told
    CROSS JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_array(d.external_id, d.title, d.facts)) AS newest FROM (
            SELECT d.external_id, d.title, d.facts {_CHILDREN}
            ORDER BY {_IS_FIRST} DESC, coalesce(d.facts ->> %(newest)s::text, '') COLLATE "C" DESC,
                length(d.external_id) DESC, d.external_id COLLATE "C" DESC
            LIMIT %(most)s) d) shown
    WHERE own.source_id = %(source)s AND own.external_id = ANY(%(keys)s) AND own.deleted_at IS NULL"""
_WRITTEN = {
    "external_id": "text",
    "client_name": "text",
    "industry": "text",
    "summary": "text",
    "key_facts": "jsonb",
    "text": "text",
    "source_updated_at": "timestamptz",
    "embedding": "vector",
    "embedding_model": "text",
    "embedding_text_sha256": "bytea",
}
_VECTOR = ("embedding", "embedding_model", "embedding_text_sha256")
_KEPT = ", ".join(
    f"{name} = CASE WHEN EXCLUDED.embedding IS NULL AND c.text = EXCLUDED.text THEN c.{name} ELSE EXCLUDED.{name} END"
    for name in _VECTOR
)
_CHANGED = ", ".join(f"{name} = EXCLUDED.{name}" for name in _WRITTEN if name not in ("external_id", *_VECTOR))
# The conflict's condition leaves rows without a source, which are the tenant's own, out of all this.
WRITE = f"""
    INSERT INTO client_intelligence AS c (user_id, source_id, updated_at, {", ".join(_WRITTEN)})
    SELECT %(user)s, %(source)s, clock_timestamp(), {sql_arrays.cast_columns(_WRITTEN)}
    FROM {sql_arrays.unnest_rows(_WRITTEN)}
    ON CONFLICT (source_id, external_id) WHERE source_id IS NOT NULL AND external_id IS NOT NULL DO UPDATE SET
        {_CHANGED}, updated_at = EXCLUDED.updated_at, {_KEPT}"""
DROP = "DELETE FROM client_intelligence WHERE source_id = %(source)s AND external_id = ANY(%(keys)s)"

# Of a provider whose clients nothing counts for: no record is of this type.
_NOTHING = Rollup(document_type="", newest="", most=0)

EmbeddedTexts = Mapping[str, tuple[RecordText, BinaryVector] | None]


@dataclass(slots=True)
class RollupRecord:
    """What a provider's ``client`` reads of a record. Not a model: there is one for each record of a page."""

    document_type: str
    external_id: str
    title: str
    facts: Mapping[str, Any]


def recompute_clients(source: ConnectedSource, provider: Provider, keys: Iterable[str]) -> None:
    """Lock and write the clients whose own records have these ids, in the transaction that changed a record of theirs.

    Their vectors stay, while their texts do.
    """
    if ordered := sorted(set(keys)):
        execute(LOCK, {"source": source.pk, "keys": ordered})
        write_clients(source, provider, ordered, "", {})


def write_clients(
    source: ConnectedSource, provider: Provider, keys: Sequence[str], model: str, told: EmbeddedTexts
) -> None:
    """Write clients that are locked; ``told`` has the texts that were embedded by ``model`` just now, by client."""
    params = {"source": source.pk, "keys": list(keys), **rollup_params(provider)}
    own = {row.key: row for row in execute(READ, params)}
    found = {key: _client(provider, own[key]) for key in keys if key in own}
    rows = [_written(provider, own[key], client, model, told.get(key)) for key, client in found.items() if client]
    if rows:
        execute(WRITE, {"user": source.user_id, "source": source.pk, **sql_arrays.column_arrays(_WRITTEN, rows)})
    if lost := [key for key in keys if not found.get(key)]:
        execute(DROP, {"source": source.pk, "keys": lost})


def rollup_params(provider: Provider) -> dict[str, Any]:
    """Return what the statement is told of a provider's ``Rollup``."""
    return asdict(provider.ROLLUP or _NOTHING)


def _client(provider: Provider, row: Any) -> Client | None:
    own = RollupRecord(row.document_type, row.key, row.title, json_codec.load_json(row.facts))
    shown = json_codec.load_json(row.newest) if row.newest else []
    of = (provider.ROLLUP or _NOTHING).document_type
    newest = [cast(SourceDocument, RollupRecord(of, *each)) for each in shown]
    return provider.build_client(cast(SourceDocument, own), Children(newest, row.count, Decimal(row.total)))


def _written(
    provider: Provider, row: Any, client: Client, model: str, made: tuple[RecordText, BinaryVector] | None
) -> dict[str, Any]:
    text = RecordText.normalize(provider.client_text(client))
    vector = made[1] if made and made[0].sha == text.sha else None
    return {
        "external_id": row.key,
        "client_name": strip_unstorable(client.client_name),
        "industry": client.industry,
        "summary": client.summary,
        "key_facts": json_codec.dump_json(client.key_facts),
        "text": text.text,
        "source_updated_at": row.source_updated_at,
        "embedding": vector,
        "embedding_model": model if vector else None,
        "embedding_text_sha256": text.sha if vector else None,
    }
