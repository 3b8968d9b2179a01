"""QuickBooks: mapping, rollup with exact money, and complete listings in full syncs and deltas."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers.interface import CapabilityMissing, Client, RawItem, TokenRefused
from integrations.providers.quickbooks import mapping, rest
from integrations.tests import python_rollup, sync_helpers
from integrations.tests.fake_provider.embedder import SpyEmbedder
from integrations.tests.provider_clients import (
    TOKEN,
    fake_client,
    fixture_client,
    item_ids,
    page_items,
    pages_of,
    stored_row,
)
from integrations.tests.sync_helpers import run_sync
from jobs.outcomes import Retryable, Wait
from testing.fakes.faults import FAULTS, http_error
from testing.fakes.http_messages import json_response
from testing.fakes.quickbooks import REALM, IntuitServer
from testing.personas import Person
from vendors.calls import VendorRefused

FULL, DELTA = "full_sync", "delta_sync"
CUSTOMERS, INVOICES = (stream.method for stream in mapping.STREAMS)
OF_SONNENSCHEIN = tuple(f"invoice:{id}" for id in (60, 71, 82, 95, 104, 118, 130))


@pytest.fixture
def recorded(settings: Any) -> dict[str, RawItem]:
    """Everything that is recorded, by our ids."""
    client = fixture_client(settings, "quickbooks")
    return {item.external_id: item for stream in mapping.STREAMS for item in client.list(stream.method)}


@pytest.fixture
def books(db: None) -> Iterator[IntuitServer]:
    with IntuitServer(tokens={TOKEN}) as server:
        yield server


def client_of(recorded: dict[str, RawItem], own: str, *children: str) -> Client | None:
    return rolled(stored_row(mapping, recorded[own]), *[stored_row(mapping, recorded[each]) for each in children])


def rolled(own: SourceDocument | None, *documents: SourceDocument) -> Client | None:
    return mapping.build_client(own, python_rollup.rollup_children(mapping.ROLLUP, documents))


def invoice(id: int, total: str | None, date: str = "2026-01-01") -> SourceDocument:
    facts = {"number": str(id), "date": date, "due_date": None, "total": total, "balance": "0"}
    return SourceDocument(external_id=f"invoice:{id}", document_type="quickbooks.invoice", facts=facts)


def ago(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat()


def test_a_customer_is_mapped_field_by_field(recorded: dict[str, RawItem]) -> None:
    item = recorded["customer:3"]

    record = mapping.map_record(item)

    assert item.document_type == "quickbooks.customer"
    assert item.source_created_at == datetime(2025, 9, 11, 23, 48, 43, tzinfo=UTC)
    assert item.source_updated_at == datetime(2026, 5, 11, 16, 0, tzinfo=UTC)
    assert (record.title, record.parent_external_id) == ("Cool Cars", None)
    assert record.url == "https://app.qbo.intuit.com/app/customerdetail?nameId=3"
    assert record.text.splitlines() == [
        "Customer: Cool Cars",
        "Company: Cool Cars Leasing LLC",
        "Contact: Grace Pariente",
        "E-mail: cool_cars@example.com",
        "Phone: (415) 555-0199",
        "Website: https://coolcars.example.com",
        "Billing address: 65 Ocean Dr., Unit 4, Half Moon Bay, CA 94213",
    ]
    assert client_of(recorded, "customer:3") == Client(
        "Cool Cars Leasing LLC",
        key_facts={
            "ar_balance": Decimal(0),
            "billing_address": "65 Ocean Dr., Unit 4, Half Moon Bay, CA 94213",
            "invoice_history": [],
            "total_lifetime_value": Decimal(0),
        },
    )


def test_an_invoice_is_mapped_field_by_field_and_counts_for_its_customer(recorded: dict[str, RawItem]) -> None:
    item = recorded["invoice:130"]

    record = mapping.map_record(item)

    assert item.document_type == "quickbooks.invoice"
    assert (record.title, record.parent_external_id) == ("Invoice 1037", "customer:24")
    assert record.url == "https://app.qbo.intuit.com/app/invoice?txnId=130"
    assert record.text.splitlines() == [
        "Invoice: 1037",
        "Customer: Sonnenschein Family Store",
        "Date: 2026-09-19",
        "Due: 2026-10-19",
        "Total: 362.07 USD",
        "Balance: 362.07",
        "Line: Rock Fountain 275.00",
        "Line: Fountain pump 12.75",
        "Line: Installation of the fountain 47.50",
        "Billing address: 5647 Cypress Hill Ave., Middlefield, CA 94303",
        "E-mail: familystore@sonnenschein.example.com",
        "Message: Thank you for your business and have a great day!",
    ]


def test_a_customer_without_a_company_is_called_by_its_own_name(recorded: dict[str, RawItem]) -> None:
    blank = replace(recorded["customer:3"], payload={**recorded["customer:3"].payload, "CompanyName": " "})
    clients = client_of(recorded, "customer:2"), rolled(stored_row(mapping, blank))

    assert [client and client.client_name for client in clients] == ["Bill's Windsurf Rentals", "Cool Cars"]


def test_a_customer_knows_its_last_five_invoices_and_the_sum_of_all(recorded: dict[str, RawItem]) -> None:
    client = client_of(recorded, "customer:24", *OF_SONNENSCHEIN)

    assert client is not None
    assert [each["number"] for each in client.key_facts["invoice_history"]] == ["1037", "1031", "1024", "1019", "1011"]
    assert client.key_facts["invoice_history"][0] == {
        "number": "1037",
        "date": "2026-09-19",
        "due_date": "2026-10-19",
        "total": Decimal("362.07"),
        "balance": Decimal("362.07"),
    }
    assert client.key_facts["ar_balance"] == Decimal("362.07")
    assert client.key_facts["total_lifetime_value"] == Decimal("931.77")


def test_the_order_in_which_invoices_came_does_not_matter(recorded: dict[str, RawItem]) -> None:
    actual = [client_of(recorded, "customer:24", *order) for order in permutations(OF_SONNENSCHEIN[2:])]

    assert all(client == actual[0] for client in actual)


def test_of_invoices_of_one_day_the_higher_number_is_the_later(recorded: dict[str, RawItem]) -> None:
    invoices = [invoice(id, "1") for id in (9, 10, 100, 99, 11, 8)]

    for _ in range(5):
        random.shuffle(invoices)
        client = rolled(stored_row(mapping, recorded["customer:1"]), *invoices)
        assert client is not None
        assert [each["number"] for each in client.key_facts["invoice_history"]] == ["100", "99", "11", "10", "9"]


def test_money_is_summed_to_the_last_digit(recorded: dict[str, RawItem]) -> None:
    totals = ["0.1"] * 1000 + ["0.2", "99999999999999999999.01", None, "-5.30", "1E+2"]
    invoices = [invoice(id, total) for id, total in enumerate(totals)]

    client = rolled(stored_row(mapping, recorded["customer:1"]), *invoices)

    assert client is not None
    assert client.key_facts["total_lifetime_value"] == Decimal("100000000000000000193.91")


def test_money_keeps_the_digits_it_came_with(recorded: dict[str, RawItem]) -> None:
    assert recorded["invoice:60"].payload["TotalAmt"] == Decimal("100.10")
    assert mapping.map_record(recorded["invoice:60"]).facts["total"] == "100.10"


def test_invoices_and_payments_do_not_change_a_customers_text(recorded: dict[str, RawItem]) -> None:
    item = recorded["customer:24"]
    paid = replace(item, payload={**item.payload, "Balance": Decimal("0.00")})
    owing, client = client_of(recorded, "customer:24"), rolled(stored_row(mapping, paid), invoice(1, "5"))

    assert owing is not None
    assert client is not None
    assert mapping.client_text(owing) == mapping.client_text(client)
    assert mapping.client_text(client).splitlines() == [
        "Client: Sonnenschein Family Store",
        "Billing address: 5647 Cypress Hill Ave., Middlefield, CA 94303",
    ]
    assert mapping.map_record(item).text == mapping.map_record(paid).text


def test_an_invoice_alone_makes_no_client(recorded: dict[str, RawItem]) -> None:
    assert client_of(recorded, "invoice:130") is None
    assert rolled(None, stored_row(mapping, recorded["invoice:130"])) is None


@pytest.mark.parametrize("id", ["customer:24", "invoice:130"])
def test_an_entity_of_null_or_absent_fields_is_accepted(recorded: dict[str, RawItem], id: str) -> None:
    for payload in ({"Id": "1"}, {**dict.fromkeys(recorded[id].payload), "Id": "1"}):
        empty = replace(recorded[id], payload=payload)

        assert mapping.map_record(empty).text == ""
        assert rolled(stored_row(mapping, empty)) is None


def test_letters_of_any_script_stay_as_they_are(recorded: dict[str, RawItem]) -> None:
    text = mapping.map_record(recorded["customer:8"]).text

    assert "Customer: Kōdō Taiko Schule\n" in text
    assert "Contact: Jürgen Weiß" in text
    assert "Lindenstraße 7, Köln, NW 50674, Germany" in text


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"Id": None},
        {"Id": {}},
        {"Id": "1", "BillAddr": "Main Street"},
        {"Id": "1", "Balance": "much"},
        {"Id": "1", "TotalAmt": {}, "DisplayName": []},
        {"Id": "1", "Line": ["x"], "PrimaryPhone": 1},
    ],
)
@pytest.mark.parametrize("document_type", ["quickbooks.customer", "quickbooks.invoice"])
def test_a_malformed_payload_raises_value_error(document_type: str, payload: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"record|is no"):
        mapping.map_record(RawItem("x:1", document_type, payload))


def test_an_unknown_entity_raises_value_error() -> None:
    with pytest.raises(ValueError, match="another kind"):
        mapping.map_record(RawItem("vendor:1", "quickbooks.vendor", {"Id": "1"}))


def test_the_specs_methods_list_recorded_entities_and_get_one(settings: Any) -> None:
    client = fixture_client(settings, "quickbooks")

    customers = [item.external_id for item in client.list(CUSTOMERS)]

    assert customers == [f"customer:{id}" for id in (1, 2, 3, 5, 8, 24, 29)]  # 5 and 29 are inactive
    assert len(list(client.list(INVOICES))) == 9
    assert client.get(CUSTOMERS, "1").external_id == "customer:1"
    assert client.get(INVOICES, "invoice:130").payload["DocNumber"] == "1037"
    assert set(client.begin(FULL)) == {"customers", "invoices"}
    with pytest.raises(CapabilityMissing):
        list(client.list("quickbooks.vendors.list"))


def test_a_recorded_delta_has_a_change_and_a_deletion(settings: Any) -> None:
    client = fixture_client(settings, "quickbooks")

    customers, invoices = (pages_of(client, mapping, s.name, DELTA, ago(days=1)) for s in mapping.STREAMS)

    assert item_ids(customers) == {"customer:24"}
    assert item_ids(invoices, deleted=True) == {"invoice:999"}
    assert customers[0].cursor is None  # a recorded time would make every later delta one of the past


@pytest.mark.parametrize("by_letters", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 25, 100])
def test_a_full_listing_returns_all_in_any_order_of_ids(
    books: IntuitServer, settings: Any, size: int, by_letters: bool
) -> None:
    settings.INGESTION_PAGE_SIZE, books.by_letters = size, by_letters
    for number in range(25):
        books.add("Customer", {"DisplayName": f"Customer {number}", "Active": number % 5 > 0})

    pages = pages_of(fake_client(settings, books, REALM), mapping, "customers", FULL)

    assert item_ids(pages) == {f"customer:{id}" for id in range(1, 26)}


@pytest.mark.parametrize("deletions", [1, 10, 11, 30])
def test_a_full_listing_loses_none_when_others_are_deleted_meanwhile(
    books: IntuitServer, settings: Any, deletions: int
) -> None:
    settings.INGESTION_PAGE_SIZE = 20
    created = [books.add("Invoice", {"DocNumber": str(number)}) for number in range(100)]

    def delete() -> None:
        for id in created[30 - deletions : 30]:
            books.delete("Invoice", id)

    books.schedule_change("GET */query", delete, after=2)

    pages = pages_of(fake_client(settings, books, REALM), mapping, "invoices", FULL)

    assert item_ids(pages) == {f"invoice:{id}" for id in created}


def test_a_delta_returns_changed_and_deleted_entities(books: IntuitServer, settings: Any) -> None:
    settings.INGESTION_OVERLAP_SECONDS = 60
    now = datetime.now(UTC).timestamp()
    old, late, new, gone = (books.add("Invoice", {}, at=int((now - age) * 1000)) for age in (3700, 3630, 5, 9000))
    books.delete("Invoice", gone)
    books.add("Customer", {"DisplayName": "Another stream's"})

    (page,) = pages_of(fake_client(settings, books, REALM), mapping, "invoices", DELTA, ago(hours=1))

    assert item_ids([page]) == {f"invoice:{late}", f"invoice:{new}"}
    assert f"invoice:{old}" not in item_ids([page])
    assert item_ids([page], deleted=True) == {f"invoice:{gone}"}


@pytest.mark.parametrize("kind", [FULL, DELTA])
def test_the_next_delta_begins_at_quickbooks_own_time(books: IntuitServer, settings: Any, kind: str) -> None:
    settings.INGESTION_PAGE_SIZE = 4
    for _ in range(9):
        books.add("Customer", {})

    pages = pages_of(fake_client(settings, books, REALM), mapping, "customers", kind, ago(minutes=1))

    assert abs(datetime.fromisoformat(pages[0].cursor) - datetime.now(UTC)) < timedelta(minutes=1)
    assert [page.cursor for page in pages[1:]] == [None] * (len(pages) - 1)  # what changed since the first page counts


def test_a_delta_that_may_be_incomplete_is_expired(books: IntuitServer, settings: Any) -> None:
    client = fake_client(settings, books, REALM)
    for _ in range(3):
        books.add("Customer", {})

    whole = pages_of(client, mapping, "customers", DELTA, ago(minutes=1))
    too_old = pages_of(client, mapping, "customers", DELTA, ago(days=29))
    never = pages_of(client, mapping, "customers", DELTA, None)

    assert [page.expired for page in (*whole, *too_old, *never)] == [False, True, True]


def test_a_full_page_of_changes_is_expired(db: None, settings: Any) -> None:
    with IntuitServer() as server:
        for _ in range(rest.MOST + 1):
            server.add("Customer", {})
        (page,) = pages_of(fake_client(settings, server, REALM), mapping, "customers", DELTA, ago(minutes=1))

    assert page.expired
    assert page.items == []


SHAPELESS = {
    **{name: FAULTS[name] for name in ("another-shape", "json-list", "json-null", "empty-200", "html-200", "garbage")},
    "fault-200": replace(FAULTS["json-null"], change=lambda *_: json_response({"Fault": {"Error": []}})),
    "null": replace(
        FAULTS["json-null"], change=lambda *_: json_response({"QueryResponse": None, "CDCResponse": [None]})
    ),
    "half": replace(FAULTS["json-null"], change=lambda *_: json_response({"QueryResponse": {"Customer": None}})),
}


@pytest.mark.parametrize("name", list(SHAPELESS))
@pytest.mark.parametrize("kind", [FULL, DELTA])
def test_a_malformed_response_is_never_an_empty_page(books: IntuitServer, settings: Any, kind: str, name: str) -> None:
    books.add("Customer", {})
    books.inject_fault("GET *", SHAPELESS[name])

    with pytest.raises(Retryable, match="VENDOR_ANSWER_INVALID"):
        pages_of(fake_client(settings, books, REALM), mapping, "customers", kind, ago(minutes=1))


def test_recorded_data_fills_both_tables_and_a_second_sync_changes_nothing(
    ana: Person, model: SpyEmbedder, settings: Any
) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True
    source = ConnectedSource.objects.create(user_id=ana.id, provider="quickbooks", account="recorded")

    first, calls = run_sync(source), len(model.texts)
    clients = sync_helpers.client_values(source)
    second, delta = run_sync(source), run_sync(source, DELTA)

    assert (first.status, first.items_written, first.items_failed) == ("completed", 16, 0)
    facts = {key: facts for key, _, _, facts, *_ in clients}
    assert len(facts) == 7
    assert facts["customer:24"]["total_lifetime_value"] == 931.77
    assert facts["customer:24"]["ar_balance"] == 362.07
    assert [each["number"] for each in facts["customer:24"]["invoice_history"]] == [
        *("1037", "1031", "1024", "1019", "1011"),
    ]
    assert SourceDocument.objects.get(source=source, external_id="invoice:130").parent_external_id == "customer:24"
    assert (second.items_written, second.items_unchanged, second.items_deleted) == (0, 16, 0)
    assert (delta.status, delta.items_written, delta.items_deleted) == ("completed", 0, 0)
    assert len(model.texts) == calls
    assert sync_helpers.client_values(source) == clients


def test_an_empty_company_is_empty(books: IntuitServer, settings: Any) -> None:
    client = fake_client(settings, books, REALM)

    assert page_items(pages_of(client, mapping, "customers", FULL)) == []
    assert page_items(pages_of(client, mapping, "customers", DELTA, ago(minutes=1))) == []


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (401, None, TokenRefused),
        (429, None, Wait),
        (403, "003001", Wait),  # a throttle, whatever its status
        (403, None, VendorRefused),
        (400, None, VendorRefused),
        (500, None, Retryable),
    ],
)
def test_errors_of_the_provider_are_distinguished(
    books: IntuitServer, settings: Any, status: int, code: str | None, outcome: type[Exception]
) -> None:
    books.inject_fault("GET *", http_error(status, code=code))

    with pytest.raises(outcome):
        pages_of(fake_client(settings, books, REALM), mapping, "customers", FULL)


def test_an_unreadable_entity_does_not_fail_its_page(books: IntuitServer, settings: Any) -> None:
    rows = [{"Id": "1"}, {"DisplayName": "x"}, "?", {"Id": "2", "MetaData": {"LastUpdatedTime": "soon"}}]
    answer = json_response({"QueryResponse": {"Customer": rows}})
    books.inject_fault("GET *", replace(FAULTS["json-null"], change=lambda *_: answer))

    (page,) = pages_of(fake_client(settings, books, REALM), mapping, "customers", FULL)

    assert [item.external_id for item in page.items] == ["customer:1"]
    assert [each.external_id for each in page.failed] == ["customer:?", "customer:?", "customer:2"]
