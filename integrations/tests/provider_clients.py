"""Clients of a fake provider or of recorded responses; and rows as they would be stored."""

import json
from typing import Any
from uuid import UUID

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers.interface import McpClient, Page, RawItem
from integrations.records.jsonb_codec import dump_json
from integrations.transports import make_client
from testing.fakes.account_server import AccountServer

NOBODY = UUID("00000000-0000-4000-8000-000000000001")
TOKEN = "a-token"


def fixture_client(settings: Any, provider: str) -> McpClient:
    """Return a client of the answers that are recorded."""
    settings.INTEGRATIONS_USE_FIXTURES = True
    return make_client(ConnectedSource(user_id=NOBODY, provider=provider, account="recorded"), TOKEN)


def fake_client(settings: Any, server: AccountServer, account: str = "", **own: Any) -> McpClient:
    """Return a client that asks a fake; ``own`` replaces settings of its provider."""
    provider = server.name
    own = {"api_url": server.url, "transport": "rest", "requests_per_minute": 600_000, **own}
    settings.CONNECTORS = {**settings.CONNECTORS, provider: {**settings.CONNECTORS[provider], **own}}
    settings.INTEGRATIONS_USE_FIXTURES = False
    return make_client(ConnectedSource(user_id=NOBODY, provider=provider, account=account), TOKEN)


def pages_of(client: McpClient, provider: Any, stream: str, kind: str, since: str | None = None) -> list[Page]:
    """Follow a stream of a provider's module to its end."""
    chosen = next(each for each in provider.STREAMS if each.name == stream)
    pages = [client.page(chosen, kind, since, None)]
    while pages[-1].next_page is not None:
        assert len(pages) < 500, "a listing without end"
        pages.append(client.page(chosen, kind, since, pages[-1].next_page))
    return pages


def page_items(pages: list[Page]) -> list[RawItem]:
    return [item for page in pages for item in page.items]


def item_ids(pages: list[Page], *, deleted: bool = False) -> set[str]:
    return {item.external_id for item in page_items(pages) if item.deleted is deleted}


def stored_row(provider: Any, item: RawItem) -> SourceDocument:
    """Return the row that an item becomes, its facts as they come back from the database."""
    record = provider.map_record(item)
    return SourceDocument(
        external_id=item.external_id,
        document_type=item.document_type,
        title=record.title,
        parent_external_id=record.parent_external_id,
        facts=json.loads(dump_json(record.facts)),
    )
