"""What is known of a client, computed anew from the stored records: their order of arrival does not matter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from integrations import payloads
from integrations.models import ConnectedSource, SourceDocument
from integrations.providers import Provider
from integrations.statements import Wire, execute
from integrations.texts import Text, plain

# In order, so that two transactions never wait for each other crosswise; and by a statement before the one that reads:
# what whoever held the lock has committed must be seen.
LOCKED = "pg_advisory_xact_lock(hashtextextended('client:' || %(source)s::text || ':' || key, 0))"
LOCK = f"SELECT {LOCKED} FROM unnest(%(keys)s::text[]) AS key"
_READ = """d.document_type, d.external_id, d.title, d.facts, d.source_updated_at
    FROM source_documents d WHERE d.source_id = %(source)s AND d.deleted_at IS NULL"""
# The small facts only: a payload may be a megabyte.
READ = f"""
    SELECT d.external_id AS key, true AS own, {_READ} AND d.external_id = ANY(%(keys)s)
    UNION ALL
    SELECT d.parent_external_id, false, {_READ} AND d.parent_external_id = ANY(%(keys)s)
        AND d.parent_external_id IS NOT NULL"""
_COLUMNS = ("client_name", "industry", "summary", "key_facts", "text", "source_updated_at")
_KEPT = ", ".join(
    f"{name} = CASE WHEN EXCLUDED.embedding IS NULL AND c.text = EXCLUDED.text THEN c.{name} ELSE EXCLUDED.{name} END"
    for name in ("embedding", "embedding_model", "embedding_text_sha256")
)
# The conflict's condition leaves rows without a source, which are the tenant's own, out of all this.
WRITE = f"""
    INSERT INTO client_intelligence AS c (user_id, source_id, external_id, {", ".join(_COLUMNS)},
        embedding, embedding_model, embedding_text_sha256, updated_at)
    VALUES (%(user)s, %(source)s, %(key)s, %(client_name)s, %(industry)s, %(summary)s, %(key_facts)s, %(text)s,
        %(updated)s, %(vector)s::vector, %(model)s, %(sha)s::bytea, clock_timestamp())
    ON CONFLICT (source_id, external_id) WHERE source_id IS NOT NULL AND external_id IS NOT NULL DO UPDATE SET
        {", ".join(f"{name} = EXCLUDED.{name}" for name in _COLUMNS)}, updated_at = EXCLUDED.updated_at, {_KEPT}"""
DROP = "DELETE FROM client_intelligence WHERE source_id = %(source)s AND external_id = ANY(%(keys)s)"

Told = Mapping[str, tuple[Text, Wire] | None]


@dataclass(slots=True)
class Counted:
    """What a provider's ``client`` reads of a record. Not a model: a customer may have a thousand invoices."""

    document_type: str
    external_id: str
    title: str
    facts: Mapping[str, Any]


def recompute(source: ConnectedSource, provider: Provider, keys: Iterable[str]) -> None:
    """Lock and write the clients whose own records have these ids, in the transaction that changed a record of theirs.

    Their vectors stay, while their texts do.
    """
    if ordered := sorted(set(keys)):
        execute(LOCK, {"source": source.pk, "keys": ordered})
        write(source, provider, ordered, "", {})


def write(source: ConnectedSource, provider: Provider, keys: Sequence[str], model: str, told: Told) -> None:
    """Write clients that are locked; ``told`` has the texts that were embedded by ``model`` just now, by client."""
    own, children = _read(source, keys)
    lost = [key for key in keys if not _write(source, provider, key, own.get(key), children[key], model, told)]
    if lost:
        execute(DROP, {"source": source.pk, "keys": lost})


def _read(
    source: ConnectedSource, keys: Sequence[str]
) -> tuple[dict[str, tuple[SourceDocument, datetime | None]], defaultdict[str, list[SourceDocument]]]:
    """Return the clients' own records, with the times of their versions, and those that count for them."""
    own, children = {}, defaultdict(list)
    for row in execute(READ, {"source": source.pk, "keys": list(keys)}):
        counted = Counted(row.document_type, row.external_id, row.title, payloads.loads(row.facts))
        document = cast(SourceDocument, counted)
        if row.own:
            own[row.key] = (document, row.source_updated_at)
        else:
            children[row.key].append(document)
    return own, children


def _write(
    source: ConnectedSource,
    provider: Provider,
    key: str,
    own: tuple[SourceDocument, datetime | None] | None,
    children: list[SourceDocument],
    model: str,
    told: Told,
) -> bool:
    document, changed = own or (None, None)
    client = provider.client(document, sorted(children, key=lambda each: each.external_id))
    if client is None:
        return False
    text, made = Text.of(provider.client_text(client)), told.get(key)
    vector = made[1] if made and made[0].sha == text.sha else None
    params = {
        "user": source.user_id,
        "source": source.pk,
        "key": key,
        "client_name": plain(client.client_name),
        "industry": client.industry,
        "summary": client.summary,
        "key_facts": payloads.dumps(client.key_facts),
        "text": text.text,
        "updated": changed,
        "vector": vector,
        "model": model if vector else None,
        "sha": text.sha if vector else None,
    }
    execute(WRITE, params)
    return True
