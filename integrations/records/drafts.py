"""Drafts of a page's records: items mapped by the provider, compared with the stored rows, grouped for embedding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers.interface import Children, Provider, RawItem, Record
from integrations.records import client_rollup
from integrations.records.jsonb_codec import dump_json, load_json
from integrations.records.prepared_sql import execute
from integrations.records.record_embedding import Vectors
from integrations.records.text_normalization import RecordText, strip_unstorable

# Exceptions of mapping a payload that differs from the provider's documentation: only that item fails.
MAPPING_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

LONGEST_ID = 500  # characters: an index entry has at most 2,704 bytes

STORED = """
    SELECT external_id, source_updated_at, embedding_model, embedding_text_sha256,
        CASE WHEN deleted_at IS NULL THEN upload_document_id END AS upload_document_id
    FROM source_documents WHERE source_id = %(source)s AND external_id = ANY(%(ids)s)"""

CLIENTS = """
    SELECT external_id, embedding_model, embedding_text_sha256
    FROM client_intelligence WHERE source_id = %(source)s AND external_id = ANY(%(ids)s)"""


@dataclass(slots=True)
class Draft:
    """An item as it will be written. ``missing_texts`` are those of its texts that must be embedded first."""

    item: RawItem
    record: Record
    payload: str
    facts: str
    text: RecordText
    client: RecordText | None = None  # the text of the record's own client, if it is one
    upload_document_id: UUID | None = None
    missing_texts: list[RecordText] = field(default_factory=list)

    @property
    def external_id(self) -> str:
        return self.item.external_id


def newest_versions(items: Sequence[RawItem]) -> list[RawItem]:
    """Return each record once: of two versions in a page the newer, or else the later one."""
    newest: dict[str, RawItem] = {}
    for item in items:
        known = newest.get(item.external_id)
        if known is None or not _is_older(item, known.source_updated_at):
            newest[item.external_id] = item
    return list(newest.values())


def make_draft(provider: Provider, item: RawItem) -> Draft:
    """Map an item. Raises one of ``MAPPING_ERRORS``."""
    if strip_unstorable(item.external_id) != item.external_id or len(item.external_id) > LONGEST_ID:
        raise ValueError("an id that cannot be stored")
    record = provider.map_record(item)
    parent_id = record.parent_external_id
    if len(parent_id or "") > LONGEST_ID:
        raise ValueError("a parent's id that cannot be stored")
    record = replace(
        record,
        title=strip_unstorable(record.title),
        url=None if record.url is None else strip_unstorable(record.url),
        parent_external_id=None if parent_id is None else strip_unstorable(parent_id),
    )
    text = RecordText.normalize("" if record.is_pdf else record.text)
    facts = dump_json(record.facts)
    draft = Draft(item, record, dump_json(item.payload), facts, text)
    if provider.ROLLUP:
        own = client_rollup.RollupRecord(item.document_type, item.external_id, record.title, load_json(facts))
        if client := provider.build_client(cast(SourceDocument, own), Children()):
            draft.client = RecordText.normalize(provider.client_text(client))
    return draft


class StoredRecords:
    """The stored rows of a page's records, read once for all of them."""

    def __init__(self, source: ConnectedSource, ids: Sequence[str]) -> None:
        params = {"source": source.pk, "ids": list(ids)}
        self.documents = {row.external_id: row for row in execute(STORED, params)}
        self.clients = {row.external_id: row for row in execute(CLIENTS, params)}

    def missing_texts(self, draft: Draft, model: str) -> Iterator[RecordText]:
        """Yield the texts that ``model`` has not embedded for this record; none for an outdated version."""
        row = self.documents.get(draft.external_id)
        if row is not None and _is_older(draft.item, row.source_updated_at):
            return
        if draft.text.text and not _is_embedded(row, draft.text, model):
            yield draft.text
        client_row = self.clients.get(draft.external_id)
        if draft.client is not None and draft.client.text and not _is_embedded(client_row, draft.client, model):
            yield draft.client

    def upload_id(self, item: RawItem) -> UUID | None:
        """Return the document that this very version of a PDF was imported as, if it was."""
        row = self.documents.get(item.external_id)
        if row is None or item.source_updated_at is None or row.source_updated_at != item.source_updated_at:
            return None
        document_id: UUID | None = row.upload_document_id
        return document_id


def _is_older(item: RawItem, other_updated_at: Any) -> bool:
    if item.current or item.source_updated_at is None or other_updated_at is None:
        return False
    return bool(item.source_updated_at < other_updated_at)


def _is_embedded(row: Any, text: RecordText, model: str) -> bool:
    return row is not None and row.embedding_model == model and row.embedding_text_sha256 == text.sha


def embedding_batches(drafts: Sequence[Draft], vectors: Vectors) -> Iterator[list[Draft]]:
    """Yield the drafts in groups whose missing texts make one call; last, all that need none.

    Each group is written before the next is bought: what a budget or a fault holds up in the middle of a page is not
    bought again, and a crash costs one call.
    """
    batch: list[Draft] = []
    lacking: set[bytes] = set()
    idle = []
    for draft in drafts:
        new = {text.sha for text in vectors.missing(draft.missing_texts)}
        if not new:
            idle.append(draft)
            continue
        if batch and len(lacking | new) > vectors.batch_size:
            yield batch
            batch, lacking = [], set()
        batch.append(draft)
        lacking |= new
    yield batch
    yield idle
