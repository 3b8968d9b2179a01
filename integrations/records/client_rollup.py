"""Rollup of records to clients (``client_intelligence``), recomputed from the stored records in whatever order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, cast

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers.interface import Children, Client, Provider, Rollup
from integrations.records.jsonb_codec import dump_json, load_json
from integrations.records.prepared_sql import BinaryVector, cast_columns, column_arrays, execute, unnest_rows
from integrations.records.text_normalization import RecordText, strip_unstorable

# In order, so that two transactions never deadlock; and in a statement before the one that reads, which must see what
# the lock's last holder has committed.
LOCKED = "pg_advisory_xact_lock(hashtextextended('client:' || %(source)s::text || ':' || key, 0))"
LOCK = f"SELECT {LOCKED} FROM unnest(%(keys)s::text[]) AS key"
# The small facts only: a payload may be a megabyte. The database counts, sums and orders the children: a customer may
# have twenty thousand invoices, and each new one recomputes its customer.
_CHILDREN = """FROM source_documents d
    WHERE d.source_id = %(source)s AND d.parent_external_id = own.external_id AND d.parent_external_id IS NOT NULL
      AND d.deleted_at IS NULL AND d.document_type = %(document_type)s"""
_IS_FIRST = "(d.facts ->> %(first)s::text) IS NOT DISTINCT FROM 'true'"
READ = f"""
    SELECT own.external_id AS key, own.document_type, own.title, own.facts, own.source_updated_at,
        totals.count, totals.total, shown.newest
    FROM source_documents own
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE {_IS_FIRST}) AS count,
            coalesce(sum((d.facts ->> %(total)s::text)::numeric), 0)::text AS total
        {_CHILDREN}) totals
    CROSS JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_array(d.external_id, d.title, d.facts)) AS newest FROM (
            SELECT d.external_id, d.title, d.facts {_CHILDREN}
            ORDER BY {_IS_FIRST} DESC, coalesce(d.facts ->> %(newest)s::text, '') COLLATE "C" DESC,
                length(d.external_id) DESC, d.external_id COLLATE "C" DESC
            LIMIT %(most)s) d) shown
    WHERE own.source_id = %(source)s AND own.external_id = ANY(%(keys)s) AND own.deleted_at IS NULL"""
_VECTOR = {"embedding": "vector", "embedding_model": "text", "embedding_text_sha256": "bytea"}
_TEXTS = dict.fromkeys(("external_id", "client_name", "industry", "summary", "text"), "text")
_COLUMNS = {**_TEXTS, "key_facts": "jsonb", "source_updated_at": "timestamptz", **_VECTOR}
_KEPT = ", ".join(
    f"{name} = CASE WHEN EXCLUDED.embedding IS NULL AND c.text = EXCLUDED.text THEN c.{name} ELSE EXCLUDED.{name} END"
    for name in _VECTOR
)
_CHANGED = ", ".join(f"{name} = EXCLUDED.{name}" for name in _COLUMNS if name not in ("external_id", *_VECTOR))
# The conflict's condition excludes rows without a source, which are the tenant's own.
WRITE = f"""
    INSERT INTO client_intelligence AS c (user_id, source_id, updated_at, {", ".join(_COLUMNS)})
    SELECT %(user)s, %(source)s, clock_timestamp(), {cast_columns(_COLUMNS)} FROM {unnest_rows(_COLUMNS)}
    ON CONFLICT (source_id, external_id) WHERE source_id IS NOT NULL AND external_id IS NOT NULL DO UPDATE SET
        {_CHANGED}, updated_at = EXCLUDED.updated_at, {_KEPT}"""
DELETE = "DELETE FROM client_intelligence WHERE source_id = %(source)s AND external_id = ANY(%(keys)s)"

EmbeddedTexts = Mapping[str, tuple[RecordText, BinaryVector] | None]


@dataclass(slots=True)
class RollupRecord:
    """The fields of a record that a provider's ``build_client`` reads. Not a model: a page creates one a record."""

    document_type: str
    external_id: str
    title: str
    facts: Mapping[str, Any]


def recompute_clients(source: ConnectedSource, provider: Provider, keys: Iterable[str]) -> None:
    """Lock and write the clients whose own records have these ids, in the transaction that changed their records.

    Their vectors stay as long as their texts do.
    """
    if ordered := sorted(set(keys)):
        execute(LOCK, {"source": source.pk, "keys": ordered})
        write_clients(source, provider, ordered, "", {})


def write_clients(
    source: ConnectedSource, provider: Provider, keys: Sequence[str], model: str, embedded: EmbeddedTexts
) -> None:
    """Write locked clients; ``embedded`` has the texts and vectors that ``model`` has just made, by client."""
    if (rollup := provider.ROLLUP) is None:
        return
    params = {"source": source.pk, "keys": list(keys), **asdict(rollup)}
    own_rows = {row.key: row for row in execute(READ, params)}
    clients = {key: _build_client(provider, rollup, own_rows[key]) for key in keys if key in own_rows}
    rows = [
        _client_row(provider, own_rows[key], client, model, embedded.get(key))
        for key, client in clients.items()
        if client
    ]
    if rows:
        execute(WRITE, {"user": source.user_id, "source": source.pk, **column_arrays(_COLUMNS, rows)})
    if gone := [key for key in keys if not clients.get(key)]:
        execute(DELETE, {"source": source.pk, "keys": gone})


def _build_client(provider: Provider, rollup: Rollup, row: Any) -> Client | None:
    own = RollupRecord(row.document_type, row.key, row.title, load_json(row.facts))
    shown = load_json(row.newest) if row.newest else []
    newest = [cast(SourceDocument, RollupRecord(rollup.document_type, *child)) for child in shown]
    return provider.build_client(cast(SourceDocument, own), Children(newest, row.count, Decimal(row.total)))


def _client_row(
    provider: Provider, row: Any, client: Client, model: str, embedded: tuple[RecordText, BinaryVector] | None
) -> dict[str, Any]:
    text = RecordText.normalize(provider.client_text(client))
    vector = embedded[1] if embedded and embedded[0].sha == text.sha else None
    return {
        "external_id": row.key,
        "client_name": strip_unstorable(client.client_name),
        "industry": client.industry,
        "summary": client.summary,
        "key_facts": dump_json(client.key_facts),
        "text": text.text,
        "source_updated_at": row.source_updated_at,
        "embedding": vector,
        "embedding_model": model if vector else None,
        "embedding_text_sha256": text.sha if vector else None,
    }
