"""Syncs of an account at the fake provider, page by page."""

from datetime import UTC, datetime, timedelta
from typing import Any

from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, SourceDocument
from integrations.providers.interface import RawItem
from integrations.sync import lifecycle, page_worker, pgmq

FULL, DELTA, FORGET = IngestionJob.Kind
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def item(external_id: str, at: int | None = 0, *, deleted: bool = False, **payload: Any) -> RawItem:
    """Return a record as of hour ``at``; "company:1" is a company."""
    changed = None if at is None else BEGAN + timedelta(hours=at)
    stored_payload = {"name": external_id, **payload}
    kind = f"invented.{external_id.partition(':')[0]}"
    return RawItem(external_id, kind, stored_payload, BEGAN, changed, deleted=deleted)


def start_sync(source: ConnectedSource, kind: str = FULL) -> IngestionJob:
    return lifecycle.start_sync(source, kind, by="a test")


def run_page() -> pgmq.Message | None:
    """Work on the next page and delete its message, as the consumer does."""
    message = pgmq.read_message()
    if message is not None:
        page_worker.run_page(message)
        pgmq.delete_message(message)
    return message


def run_sync(source: ConnectedSource, kind: str = FULL) -> IngestionJob:
    """Run a sync to its end."""
    job = start_sync(source, kind)
    while run_page():
        pass
    job.refresh_from_db()
    return job


def row(source: ConnectedSource, external_id: str) -> SourceDocument:
    return SourceDocument.objects.get(source=source, external_id=external_id)


def stored_rows(source: ConnectedSource) -> dict[str, SourceDocument]:
    return {each.external_id: each for each in SourceDocument.objects.filter(source=source)}


def client(source: ConnectedSource, external_id: str = "company:1") -> ClientIntelligence:
    return ClientIntelligence.objects.get(source=source, external_id=external_id)


def client_values(source: ConnectedSource) -> list[tuple[Any, ...]]:
    """Return what is known of the source's clients, as it may be compared."""
    rows = ClientIntelligence.objects.filter(source=source).order_by("external_id")
    return list(rows.values_list("external_id", "client_name", "summary", "key_facts", "text", "embedding_text_sha256"))
