"""A provider's MCP server returns the same records as its REST API."""

# ruff: noqa: F811

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from integrations.providers.interface import RawItem, provider_module
from integrations.tests.mcp_accounts import (  # noqa: F401
    Account,
    drive,
    drive_running,
    gmail,
    gmail_running,
    hubspot,
    hubspot_running,
    quickbooks,
    quickbooks_running,
    sync_items,
    use,
)
from testing.fakes import mcp_tools
from testing.fakes.gmail import message

pytestmark = pytest.mark.django_db


def without(items: dict[str, RawItem], *names: str) -> dict[str, RawItem]:
    return {
        id: replace(item, payload={name: value for name, value in item.payload.items() if name not in names})
        for id, item in items.items()
    }


def test_hubspots_records_are_the_same_by_either_transport(hubspot: Account) -> None:
    by_rest, by_mcp = sync_items(hubspot.client("rest")), sync_items(hubspot.client("mcp"))

    assert len(by_mcp) == 18
    assert by_mcp == by_rest
    assert by_mcp["deal:2"].payload["associations"]["companies"]["results"][0]["id"] == "2"


def test_quickbooks_records_are_the_same_by_either_transport(quickbooks: Account) -> None:
    quickbooks.records.change("Customer", 2, Active=False)

    by_rest, by_mcp = sync_items(quickbooks.client("rest")), sync_items(quickbooks.client("mcp"))

    assert len(by_mcp) == 12
    assert by_mcp == by_rest
    assert str(by_mcp["customer:3"].payload["Balance"]) == "4.11"


def test_drives_files_are_the_same_by_either_transport(drive: Account) -> None:
    by_rest, by_mcp = sync_items(drive.client("rest")), sync_items(drive.client("mcp"))

    assert set(by_mcp) == {"file:doc1", "file:sheet1", "file:pdf1"}
    assert by_mcp == without(by_rest, "md5Checksum")  # which Google's server does not tell


def test_gmails_threads_are_the_same_by_either_transport(gmail: Account) -> None:
    by_rest, by_mcp = sync_items(gmail.client("rest")), sync_items(gmail.client("mcp"))

    assert len(by_mcp) == 5
    assert by_mcp == by_rest


def test_a_message_with_a_date_only_is_read(gmail: Account) -> None:
    gmail.server.tools = mcp_tools.gmail_tools(gmail.records, days=True)

    by_rest, by_mcp = sync_items(gmail.client("rest")), sync_items(gmail.client("mcp"))

    day = timedelta(days=1)
    assert all(by_rest[id].source_updated_at - by_mcp[id].source_updated_at < day for id in by_rest)  # type: ignore[operator]


@pytest.mark.parametrize(("method", "id"), [("hubspot.crm.deals.list", "3"), ("hubspot.crm.contacts.list", "1")])
def test_one_record_of_hubspots_is_the_same(hubspot: Account, method: str, id: str) -> None:
    assert hubspot.client("mcp").get(method, id) == hubspot.client("rest").get(method, id)


def test_one_record_of_the_others_is_the_same(quickbooks: Account, drive: Account, gmail: Account) -> None:
    for account, method, id in (
        (quickbooks, "quickbooks.customers.list", "1"),
        (drive, "drive.files.get", "doc1"),
        (gmail, "gmail.threads.get", "18d1"),
    ):
        assert account.client("mcp").get(method, id) == account.client("rest").get(method, id)


def test_a_pdf_is_downloaded_by_either_transport(drive: Account) -> None:
    for transport in ("rest", "mcp"):
        client = drive.client(transport)
        item = sync_items(drive.client(transport))["file:pdf1"]

        assert b"".join(client.download(item)) == b"%PDF-1.4 policy"


# --- deltas ---------------------------------------------------------------------------------------------------------
def test_a_hubspot_delta_returns_changed_records(hubspot: Account) -> None:
    before = datetime.now(UTC).isoformat()
    hubspot.records.change("deals", 2, amount="900.00")

    by_rest = sync_items(hubspot.client("rest"), "delta_sync", before)
    by_mcp = sync_items(hubspot.client("mcp"), "delta_sync", before)

    assert set(by_mcp) == {"deal:2"}
    assert by_mcp == by_rest


def test_a_quickbooks_delta_returns_changed_records(quickbooks: Account) -> None:
    before = datetime.now(UTC).isoformat()
    quickbooks.records.change("Invoice", 4, Balance=0)

    by_mcp = sync_items(quickbooks.client("mcp"), "delta_sync", before)

    assert by_mcp["invoice:4"] == sync_items(quickbooks.client("rest"), "delta_sync", before)["invoice:4"]
    assert not [id for id in by_mcp if id.startswith("invoice:") and id != "invoice:4"]


def test_a_google_delta_goes_by_time(drive: Account, gmail: Account) -> None:
    newest = int(datetime.now(UTC).timestamp() * 1000) + 60_000
    cursors = {account.provider: account.client("mcp").begin("full_sync") for account in (drive, gmail)}
    drive.records.drive.put("doc3", "New", modifiedTime="2036-01-01T00:00:00.000Z")
    gmail.records.mail.put("18d2", message("News", moment=newest))

    files = sync_items(drive.client("mcp"), "delta_sync", cursors["google_drive"]["files"])
    threads = sync_items(gmail.client("mcp"), "delta_sync", cursors["gmail"]["threads"])

    drive.records.drive.remove("doc3")
    gmail.records.mail.remove("18d2")
    assert set(files) == {"file:doc3"}
    assert set(threads) == {"thread:18d2"}


def test_a_cursor_of_the_rest_api_asks_for_a_full_sync(drive: Account, gmail: Account) -> None:
    for account, cursor in ((drive, "4711"), (gmail, "4711")):
        stream = provider_module(account.provider).STREAMS[0]

        assert account.client("mcp").page(stream, "delta_sync", cursor, None).expired
