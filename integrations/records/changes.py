"""A page's records made ready to be written: mapped, compared with what is stored, before anything is bought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers import Children, Provider, RawItem, Record
from integrations.records import json_codec
from integrations.records.client_rollups import RollupRecord
from integrations.records.sql import execute
from integrations.records.text import RecordText, strip_unstorable

# What mapping a payload of another shape than the provider's documentation shows may raise: it costs that item only.
MAPPING_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

LONGEST_ID = 500  # characters: an index takes no more than 2,704 bytes

STORED = """
    SELECT external_id, source_updated_at, embedding_model, embedding_text_sha256,
        CASE WHEN deleted_at IS NULL THEN upload_document_id END AS upload_document_id
    FROM source_documents WHERE source_id = %(source)s AND external_id = ANY(%(ids)s)"""
CLIENTS = """
    SELECT external_id, embedding_model, embedding_text_sha256
    FROM client_intelligence WHERE source_id = %(source)s AND external_id = ANY(%(ids)s)"""


@dataclass(slots=True)
class Draft:
    """An item as it will be written. ``lacking`` are those of its texts that must be embedded first."""

    item: RawItem
    record: Record
    payload: str
    facts: str
    text: RecordText
    client: RecordText | None  # the text of the client that the record itself tells, if it tells one
    upload_document_id: UUID | None = None
    missing_texts: list[RecordText] = field(default_factory=list)

    @property
    def external_id(self) -> str:
        return self.item.external_id


def newest_versions(items: Sequence[RawItem]) -> list[RawItem]:
    """Return each record once: of a page that shows it twice the newer version, or else the later one."""
    found: dict[str, RawItem] = {}
    for item in items:
        known = found.get(item.external_id)
        if known is None or not _is_older(item, known):
            found[item.external_id] = item
    return list(found.values())


def _is_older(item: RawItem, known: RawItem) -> bool:
    if item.current or item.source_updated_at is None or known.source_updated_at is None:
        return False
    return item.source_updated_at < known.source_updated_at


def make_draft(provider: Provider, item: RawItem) -> Draft:
    """Map an item. Raises one of ``UNREADABLE``."""
    if strip_unstorable(item.external_id) != item.external_id or len(item.external_id) > LONGEST_ID:
        raise ValueError("an id that cannot be stored")
    record = provider.map_record(item)
    if len(record.parent_external_id or "") > LONGEST_ID:
        raise ValueError("a parent's id that cannot be stored")
    record = replace(
        record,
        title=strip_unstorable(record.title),
        url=None if record.url is None else strip_unstorable(record.url),
        parent_external_id=None if record.parent_external_id is None else strip_unstorable(record.parent_external_id),
    )
    text = RecordText.normalize("" if record.is_pdf else record.text)
    facts = json_codec.dump_json(record.facts)
    client = _client_text(provider, item, record, facts)
    return Draft(item, record, json_codec.dump_json(item.payload), facts, text, client)


def _client_text(provider: Provider, item: RawItem, record: Record, facts: str) -> RecordText | None:
    own = RollupRecord(item.document_type, item.external_id, record.title, json_codec.load_json(facts))
    client = provider.build_client(cast(SourceDocument, own), Children())
    return None if client is None else RecordText.normalize(provider.client_text(client))


class StoredRecords:
    """What is stored of a page's records, read once for all of them."""

    def __init__(self, source: ConnectedSource, ids: Sequence[str]) -> None:
        params = {"source": source.pk, "ids": list(ids)}
        self.documents = {row.external_id: row for row in execute(STORED, params)}
        self.clients = {row.external_id: row for row in execute(CLIENTS, params)}

    def missing_texts(self, draft: Draft, model: str) -> Iterator[RecordText]:
        """Yield the texts that ``model`` has not embedded for this record; none for one that a newer has replaced."""
        known = self.documents.get(draft.external_id)
        if known is not None and self._is_outdated(draft.item, known):
            return
        if draft.text.text and not _is_embedded(known, draft.text, model):
            yield draft.text
        client, row = draft.client, self.clients.get(draft.external_id)
        if client is not None and client.text and not _is_embedded(row, client, model):
            yield client

    def upload_id(self, item: RawItem) -> UUID | None:
        """Return the document that this very version of a PDF was passed on as, if it was."""
        known = self.documents.get(item.external_id)
        if known is None or item.source_updated_at is None or known.source_updated_at != item.source_updated_at:
            return None
        found: UUID | None = known.upload_document_id
        return found

    @staticmethod
    def _is_outdated(item: RawItem, known: Any) -> bool:
        said, stored = item.source_updated_at, known.source_updated_at
        return not item.current and said is not None and stored is not None and said < stored


def _is_embedded(row: Any, text: RecordText, model: str) -> bool:
    return row is not None and row.embedding_model == model and row.embedding_text_sha256 == text.sha
