"""Tenants' accounts at the four providers, each behind its REST API and its MCP server at once: fixtures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings

from integrations.models import ConnectedSource
from integrations.providers.interface import McpClient, RawItem, provider_module
from integrations.transports import make_client
from testing.fakes import mcp_tools
from testing.fakes.account_server import AccountServer
from testing.fakes.gmail import message
from testing.fakes.google import DriveServer, GmailServer
from testing.fakes.google_drive import SPREADSHEET
from testing.fakes.hubspot import HubSpotServer
from testing.fakes.mcp import TOKEN, McpServer, Tool
from testing.fakes.quickbooks import REALM, IntuitServer


@dataclass
class Account:
    """One tenant's records at a provider, asked by either transport."""

    provider: str
    records: Any
    server: McpServer

    def client(self, transport: str) -> McpClient:
        return make_client(self.source(transport), TOKEN)

    def source(self, transport: str) -> ConnectedSource:
        return ConnectedSource(id=uuid4(), provider=self.provider, transport=transport, account=REALM)


def _account(provider: str, records: AccountServer, tools: Mapping[str, Tool]) -> Iterator[Account]:
    with records, McpServer(tools) as server:
        yield Account(provider, records, server)


@pytest.fixture(scope="module")
def hubspot_running() -> Iterator[Account]:
    records = HubSpotServer(contacts=7, companies=5, deals=6)
    yield from _account("hubspot", records, mcp_tools.hubspot_tools(records))


@pytest.fixture(scope="module")
def quickbooks_running() -> Iterator[Account]:
    records = IntuitServer(customers=5, invoices=7)
    yield from _account("quickbooks", records, mcp_tools.quickbooks_tools(records))


@pytest.fixture(scope="module")
def drive_running() -> Iterator[Account]:
    records = DriveServer()
    records.drive.put("doc1", "The plan of Acme", name="Plan")
    records.drive.put("sheet1", "a,b\n1,2", name="Sheet", mime=SPREADSHEET)
    records.drive.put("pdf1", b"%PDF-1.4 policy", name="Policy", mime="application/pdf")
    records.drive.put("zip1", b"PK", name="Other", mime="application/zip")
    records.drive.put("doc2", "Gone", name="Trashed")
    records.drive.trash("doc2")
    yield from _account("google_drive", records, mcp_tools.google_drive_tools(records))


@pytest.fixture(scope="module")
def gmail_running() -> Iterator[Account]:
    records = GmailServer(threads=4)
    records.mail.put("18d1", message("Hello", "Renewal"), message("Again", "Re: Renewal", moment=1))
    yield from _account("gmail", records, mcp_tools.gmail_tools(records))


@pytest.fixture
def use(settings: LazySettings) -> Callable[[Account], Account]:
    def use(account: Account) -> Account:
        account.server.clear_faults()
        known = settings.CONNECTORS[account.provider]
        config = {**known, "api_url": account.records.url, "mcp_url": account.server.url, "requests_per_minute": 0}
        settings.CONNECTORS = {**settings.CONNECTORS, account.provider: config}
        settings.INGESTION_PAGE_SIZE = 3
        return account

    return use


@pytest.fixture
def hubspot(hubspot_running: Account, use: Callable[[Account], Account]) -> Account:
    return use(hubspot_running)


@pytest.fixture
def quickbooks(quickbooks_running: Account, use: Callable[[Account], Account]) -> Account:
    return use(quickbooks_running)


@pytest.fixture
def drive(drive_running: Account, use: Callable[[Account], Account]) -> Account:
    return use(drive_running)


@pytest.fixture
def gmail(gmail_running: Account, use: Callable[[Account], Account]) -> Account:
    return use(gmail_running)


def sync_items(client: McpClient, kind: str = "full_sync", since: Any = None) -> dict[str, RawItem]:
    items: dict[str, RawItem] = {}
    for stream in provider_module(client.provider).STREAMS:
        page_token = None
        while True:
            page = client.page(stream, kind, since, page_token)
            assert not page.failed
            assert not page.expired
            items.update({item.external_id: item for item in page.items})
            page_token = page.next_page
            if page_token is None:
                break
    client.close()
    return items
