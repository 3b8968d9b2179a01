"""HubSpot: hubspot, rollup, and complete listings in full syncs and deltas."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers.hubspot import mapping as hubspot
from integrations.providers.hubspot.rest import SearchCursor
from integrations.providers.interface import CapabilityMissing, Children, Client, RawItem, TokenRefused
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
from testing.fakes.hubspot import HubSpotServer
from testing.personas import Person

FULL, DELTA = "full_sync", "delta_sync"
CONTACTS, COMPANIES, DEALS = (stream.method for stream in hubspot.STREAMS)
SINCE = "2026-06-01T00:00:00Z"
SINCE_MS = 1_780_272_000_000
KIND = {kind.document_type: kind for kind in hubspot.OBJECT_TYPES.values()}


@pytest.fixture
def recorded(settings: Any) -> dict[str, RawItem]:
    """Everything that is recorded, by our ids."""
    client = fixture_client(settings, "hubspot")
    return {item.external_id: item for stream in hubspot.STREAMS for item in client.list(stream.method)}


@pytest.fixture
def crm(db: None) -> Iterator[HubSpotServer]:
    with HubSpotServer(tokens={TOKEN}) as server:
        yield server


def client_of(recorded: dict[str, RawItem], own: str, *children: str) -> Client | None:
    deals = python_rollup.rollup_children(hubspot.ROLLUP, [stored_row(hubspot, recorded[child]) for child in children])
    return hubspot.build_client(stored_row(hubspot, recorded[own]), deals)


def with_properties(item: RawItem, **properties: Any) -> RawItem:
    return replace(item, payload={**item.payload, "properties": {**item.payload["properties"], **properties}})


def test_a_contact_is_mapped_field_by_field(recorded: dict[str, RawItem]) -> None:
    item = recorded["contact:512"]

    record = hubspot.map_record(item)

    assert item.document_type == "hubspot.contact"
    assert item.source_created_at == datetime(2025, 10, 30, 3, 30, 17, 883000, UTC)
    assert item.source_updated_at == datetime(2025, 12, 7, 16, 50, 6, 678000, UTC)
    assert record.title == "Bryn Cooper"
    assert record.url == "https://app.hubspot.com/contacts/44512345/record/0-1/512"
    assert record.parent_external_id is None
    assert record.text.splitlines() == [
        "Contact: Bryn Cooper",
        "E-mail: bryn.cooper@biglytics.example.com",
        "Company: Biglytics",
        "Role: Head of Operations",
        "Lifecycle stage: customer",
        "Industry: COMPUTER_SOFTWARE",
    ]
    assert client_of(recorded, "contact:512") == Client(
        "Biglytics",
        industry="COMPUTER_SOFTWARE",
        summary=None,
        key_facts={"contact_role": "Head of Operations", "lifecycle": "customer"},
    )


def test_a_company_is_mapped_field_by_field(recorded: dict[str, RawItem]) -> None:
    item, summary = (
        recorded["company:9001"],
        "Dashboards for hospital networks. Renews its employees' health plan every",
    )

    record, client = hubspot.map_record(item), client_of(recorded, "company:9001")

    assert item.document_type == "hubspot.company"
    assert (record.title, record.parent_external_id) == ("Biglytics", None)
    assert record.text.splitlines() == [
        "Company: Biglytics",
        "Domain: biglytics.example.com",
        "Industry: COMPUTER_SOFTWARE",
        "Employees: 250",
        "Annual revenue: 18500000",
        f"Description: {summary} January and asks for dental cover.",
    ]
    assert client == Client(
        "Biglytics",
        industry="COMPUTER_SOFTWARE",
        summary=f"{summary} January and asks for dental cover.",
        key_facts={
            "employees": "250",
            "revenue": "18500000",
            "domain": "biglytics.example.com",
            "open_deals": [],
        },
    )


def test_a_deal_is_mapped_field_by_field_and_counts_for_its_primary_company(recorded: dict[str, RawItem]) -> None:
    item = recorded["deal:70012"]

    record = hubspot.map_record(item)

    assert item.document_type == "hubspot.deal"
    assert (record.title, record.parent_external_id) == ("Biglytics dental add-on", "company:9001")
    assert record.text.splitlines() == [
        "Deal: Biglytics dental add-on",
        "Amount: 7250.75",
        "Stage: presentationscheduled",
        "Pipeline: default",
        "Close date: 2026-11-30",
    ]


def test_a_company_knows_its_open_deals_in_whichever_order_they_came(recorded: dict[str, RawItem]) -> None:
    deals = ("deal:70011", "deal:70012", "deal:70013")

    actual = [client_of(recorded, "company:9001", *order) for order in permutations(deals)]

    assert all(client == actual[0] for client in actual)
    assert actual[0] is not None
    assert actual[0].key_facts["open_deals"] == [
        {
            "name": "Biglytics dental add-on",
            "stage": "presentationscheduled",
            "amount": "7250.75",
            "close_date": "2026-11-30",
        },
        {
            "name": "Biglytics health plan 2027",
            "stage": "contractsent",
            "amount": "48000.00",
            "close_date": "2026-12-15",
        },
    ]
    # Of the open one that changed last, though the one that was won changed later.
    assert (actual[0].key_facts["deal_stage"], actual[0].key_facts["deal_amount"]) == (
        "presentationscheduled",
        "7250.75",
    )


def test_without_open_deals_the_last_deal_sets_the_stage(recorded: dict[str, RawItem]) -> None:
    client = client_of(recorded, "company:9003", "deal:70015")

    assert client is not None
    assert client.key_facts["open_deals"] == []
    assert (client.key_facts["deal_stage"], client.key_facts["deal_amount"]) == ("closedlost", "3100.10")


def test_deals_do_not_change_a_companys_text(recorded: dict[str, RawItem]) -> None:
    alone, busy = client_of(recorded, "company:9001"), client_of(recorded, "company:9001", "deal:70011", "deal:70012")

    assert alone is not None
    assert busy is not None
    assert hubspot.client_text(alone) == hubspot.client_text(busy)
    assert "Client: Biglytics" in hubspot.client_text(busy)
    assert "dental cover" in hubspot.client_text(busy)


@pytest.mark.parametrize(
    ("stage", "flag", "is_open"),
    [
        ("closedwon", None, False),
        ("closedlost", None, False),
        ("decisionmakerboughtin", None, True),
        ("81420356", "true", False),  # a stage of the tenant's own pipeline
        ("81420356", "false", True),
    ],
)
def test_hubspots_own_flag_decides_whether_a_deal_is_open(
    recorded: dict[str, RawItem], stage: str, flag: str | None, is_open: bool
) -> None:
    item = with_properties(recorded["deal:70011"], dealstage=stage, hs_is_closed=flag)

    assert hubspot.map_record(item).facts["open"] is is_open


def test_a_deal_with_unlabeled_companies_counts_for_the_lowest_id(recorded: dict[str, RawItem]) -> None:
    unlabeled = [{"id": id, "type": "deal_to_company_unlabeled"} for id in ("9010", "9002", "9003")]

    parents = {
        hubspot.map_record(
            replace(
                recorded["deal:70011"],
                payload={**recorded["deal:70011"].payload, "associations": {"companies": {"results": list(order)}}},
            )
        ).parent_external_id
        for order in permutations(unlabeled)
    }

    assert parents == {"company:9002"}


def test_a_record_without_a_company_name_makes_no_client(recorded: dict[str, RawItem]) -> None:
    assert client_of(recorded, "contact:530") is None
    assert client_of(recorded, "deal:70016") is None
    assert hubspot.build_client(None, Children([stored_row(hubspot, recorded["deal:70011"])])) is None
    assert hubspot.map_record(recorded["deal:70016"]).parent_external_id is None


def test_a_company_without_a_name_is_called_by_its_domain(recorded: dict[str, RawItem]) -> None:
    client = client_of(recorded, "company:9007")

    assert client is not None
    assert client.client_name == "unnamed-prospect.example.com"


@pytest.mark.parametrize("id", ["contact:512", "company:9001", "deal:70011"])
def test_a_record_of_null_properties_is_accepted(recorded: dict[str, RawItem], id: str) -> None:
    empty = with_properties(recorded[id], **dict.fromkeys(recorded[id].payload["properties"]))

    record = hubspot.map_record(empty)

    assert (record.text, record.title) == ("", "")
    assert hubspot.build_client(stored_row(hubspot, empty), Children()) is None


def test_letters_of_any_script_stay_as_they_are_and_nuls_go(recorded: dict[str, RawItem]) -> None:
    assert "Contact: 由美 佐藤" in hubspot.map_record(recorded["contact:534"]).text
    assert hubspot.map_record(recorded["company:9003"]).title == "Nordlys Café & Rösterei"
    assert (
        hubspot.map_record(with_properties(recorded["company:9003"], name="Nord\x00lys\n\ud83d 1")).title == "Nordlys 1"
    )


@pytest.mark.parametrize("payload", [{}, {"id": "1"}, {"properties": {}}, {"id": "1", "properties": []}, {"id": {}}])
@pytest.mark.parametrize("document_type", [*KIND, "hubspot.ticket"])
def test_a_malformed_payload_raises_value_error(document_type: str, payload: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"record|is no text"):
        hubspot.map_record(RawItem("x:1", document_type, payload))


@pytest.mark.parametrize("document_type", list(KIND))
def test_a_property_that_is_not_text_raises_value_error(document_type: str) -> None:
    params = {name: {"value": "x"} for name in KIND[document_type].properties}

    with pytest.raises(ValueError, match="is no text"):
        hubspot.map_record(RawItem("x:1", document_type, {"id": "1", "properties": params}))


def test_the_methods_of_the_spec_list_every_recorded_page_and_get_one(settings: Any) -> None:
    client = fixture_client(settings, "hubspot")

    listed = {method: [item.external_id for item in client.list(method)] for method in (CONTACTS, COMPANIES, DEALS)}

    assert listed[CONTACTS] == [f"contact:{id}" for id in (512, 513, 518, 521, 530, 534, 540)]
    assert len(listed[COMPANIES]) == 7
    assert len(listed[DEALS]) == 6
    assert client.get(CONTACTS, "512").external_id == "contact:512"
    assert client.get(COMPANIES, "company:9001").external_id == "company:9001"
    assert client.get(DEALS, "70012").payload["associations"]["companies"]["results"][0]["id"] == "9001"
    assert set(client.begin(FULL)) == {"contacts", "companies", "deals"}
    with pytest.raises(CapabilityMissing):
        client.get("hubspot.crm.tickets.list", "1")


def test_a_recorded_delta_ends(settings: Any) -> None:
    client = fixture_client(settings, "hubspot")

    pages = {s.name: item_ids(pages_of(client, hubspot, s.name, DELTA, SINCE)) for s in hubspot.STREAMS}

    assert pages == {"contacts": set(), "companies": {"company:9001"}, "deals": set()}


def test_a_full_listing_is_complete_despite_concurrent_changes(crm: HubSpotServer, settings: Any) -> None:
    settings.INGESTION_PAGE_SIZE = 10
    client = fake_client(settings, crm)
    for number in range(35):
        crm.add("companies", {"name": f"Company {number}"})
    before = [f"company:{id}" for id in crm.stores["companies"].modified]
    crm.schedule_change("GET */companies", lambda: crm.change("companies", 2, name="Renamed"))
    crm.schedule_change("GET */companies", lambda: crm.archive("companies", 9), after=2)

    pages = pages_of(client, hubspot, "companies", FULL)

    assert len(pages) == 4
    assert [item.external_id for item in page_items(pages)] == before


def test_a_delta_returns_changes_since_its_cursor_with_an_overlap(crm: HubSpotServer, settings: Any) -> None:
    settings.INGESTION_OVERLAP_SECONDS = 60
    ages = [crm.add("contacts", {"email": "a@example.com"}, at=SINCE_MS + ms) for ms in (-60_001, -60_000, 0, 1)]
    client = fake_client(settings, crm)

    pages = pages_of(client, hubspot, "contacts", DELTA, SINCE)

    assert item_ids(pages) == {f"contact:{id}" for id in ages[1:]}
    assert all(item.payload["properties"]["lastmodifieddate"] for item in page_items(pages))


@pytest.mark.parametrize("crowd", [0, 3, 9, 10, 11, 35])
def test_a_delta_past_the_search_cap_loses_no_record(crm: HubSpotServer, settings: Any, crowd: int) -> None:
    settings.INGESTION_PAGE_SIZE, crm.cap = 5, 10
    times = (
        [SINCE_MS + number for number in range(12)] + [SINCE_MS + 100] * crowd + [SINCE_MS + 200 + n for n in range(7)]
    )
    for at in times:
        crm.add("companies", {"name": "Company"}, at=at)
    client = fake_client(settings, crm)

    pages = pages_of(client, hubspot, "companies", DELTA, SINCE)

    assert item_ids(pages) == {f"company:{id}" for id in crm.stores["companies"].modified}


def test_a_delta_loses_no_record_when_one_changes_again(crm: HubSpotServer, settings: Any) -> None:
    settings.INGESTION_PAGE_SIZE = 5
    first, *others = [crm.add("companies", {"name": "Company"}, at=SINCE_MS + number * 1000) for number in range(20)]
    crm.schedule_change("POST */search", lambda: crm.change("companies", first, name="Again", at=SINCE_MS + 60_000))

    pages = pages_of(fake_client(settings, crm), hubspot, "companies", DELTA, SINCE)

    assert item_ids(pages) == {f"company:{id}" for id in (first, *others)}
    names = [item.payload["properties"]["name"] for item in page_items(pages) if item.external_id == f"company:{first}"]
    assert names == ["Company", "Again"]


def test_a_delta_returns_deals_with_their_associations(crm: HubSpotServer, settings: Any) -> None:
    company = crm.add("companies", {"name": "Company"})
    deals = [crm.add("deals", {"dealname": "Deal"}, at=SINCE_MS + n, company=company) for n in range(3)]
    crm.associations[deals[1]] = [(company, False), (company + 90, True)]
    del crm.associations[deals[2]]
    client = fake_client(settings, crm)

    delta, full = (page_items(pages_of(client, hubspot, "deals", kind, SINCE)) for kind in (DELTA, FULL))

    assert delta == full
    parents = [hubspot.map_record(item).parent_external_id for item in delta]
    assert parents == [f"company:{company}", f"company:{company + 90}", None]


def test_associations_that_were_not_returned_fail_the_page(crm: HubSpotServer, settings: Any) -> None:
    crm.add("deals", {"dealname": "Deal"})
    params = {"status": "COMPLETE", "results": [], "errors": [{"category": "INTERNAL_ERROR"}], "numErrors": 1}
    crm.inject_fault("POST */read", replace(FAULTS["json-null"], change=lambda *_: json_response(params, 207)))

    with pytest.raises(Retryable):
        pages_of(fake_client(settings, crm), hubspot, "deals", DELTA, SINCE)


def test_a_delta_reports_archived_and_merged_records_as_deleted(crm: HubSpotServer, settings: Any) -> None:
    settings.INGESTION_PAGE_SIZE = 2
    created = [crm.add("contacts", {"email": "a@example.com"}, at=SINCE_MS - 10**9) for _ in range(9)]
    for id in created[:3]:
        crm.archive("contacts", id, at=SINCE_MS - 10**8)
    for id in created[3:6]:
        crm.archive("contacts", id, at=SINCE_MS + 5)
    crm.merge("contacts", winner=created[6], loser=created[7])

    pages = pages_of(fake_client(settings, crm), hubspot, "contacts", DELTA, SINCE)

    assert item_ids(pages) == {f"contact:{created[6]}"}
    assert item_ids(pages, deleted=True) == {f"contact:{id}" for id in (*created[3:6], created[7])}
    gone = {item.external_id: item.source_updated_at for item in page_items(pages) if item.deleted}
    assert gone[f"contact:{created[3]}"] == datetime.fromtimestamp((SINCE_MS + 5) / 1000, UTC)


def test_a_delta_without_a_cursor_asks_for_a_full_sync(crm: HubSpotServer, settings: Any) -> None:
    (page,) = pages_of(fake_client(settings, crm), hubspot, "deals", DELTA, None)

    assert page.expired


def test_a_dated_api_version_has_its_own_paths(db: None, settings: Any) -> None:
    where: dict[str, Any] = {"objects_path": "/crm/objects/2026-03", "associations_path": "/crm/associations/2026-03"}

    with HubSpotServer(companies=1, deals=1, **where) as server:
        pages = pages_of(fake_client(settings, server, **where), hubspot, "deals", DELTA, "2026-01-01T00:00:00Z")

    assert [hubspot.map_record(item).parent_external_id for item in page_items(pages)] == ["company:1"]


SHAPELESS = (
    "another-shape",
    "json-list",
    "json-null",
    "empty-200",
    "html-200",
    "truncated-json",
    "garbage",
    "status-204",
)


@pytest.mark.parametrize("kind", SHAPELESS)
@pytest.mark.parametrize("route", ["GET */deals", "POST */search", "POST */read"])
def test_a_malformed_response_is_never_an_empty_page(crm: HubSpotServer, settings: Any, route: str, kind: str) -> None:
    crm.add("deals", {"dealname": "Deal"}, company=1)
    crm.inject_fault(route, kind)

    with pytest.raises(Retryable, match="VENDOR_ANSWER_INVALID"):
        pages_of(fake_client(settings, crm), hubspot, "deals", FULL if route.startswith("GET") else DELTA, SINCE)


def test_errors_in_the_middle_of_a_listing_are_distinguished(crm: HubSpotServer, settings: Any) -> None:
    settings.INGESTION_PAGE_SIZE = 1
    for _ in range(3):
        crm.add("contacts", {})
    client, (contacts, *_) = fake_client(settings, crm), hubspot.STREAMS
    first = client.page(contacts, FULL, None, None)

    assert crm.tokens is not None
    crm.tokens.clear()
    with pytest.raises(TokenRefused):
        client.page(contacts, FULL, None, first.next_page)
    crm.tokens.add(TOKEN)
    crm.inject_fault("GET */contacts", http_error(429, retry_after="7"))
    with pytest.raises(Wait) as postponed:
        client.page(contacts, FULL, None, first.next_page)

    assert postponed.value.seconds == 7


def test_the_fake_enforces_its_rate_limit(db: None, settings: Any) -> None:
    with HubSpotServer(companies=500, limit=2, window=600) as server, pytest.raises(Wait):
        pages_of(fake_client(settings, server), hubspot, "companies", FULL)

    assert (server.refused, server.requests) == (1, 3)


def test_an_unreadable_record_does_not_fail_its_page(crm: HubSpotServer, settings: Any) -> None:
    good = [crm.add("companies", {"name": "Company"}) for _ in range(3)]
    broken = {"results": [*({"id": str(id), "properties": {}} for id in good), {"id": "7"}, "?"]}
    crm.inject_fault("GET */companies", replace(FAULTS["json-null"], change=lambda *_: json_response(broken)))

    (page,) = pages_of(fake_client(settings, crm), hubspot, "companies", FULL)

    assert [item.external_id for item in page.items] == [f"company:{id}" for id in good]
    assert [(each.external_id, each.code) for each in page.failed] == [
        ("company:7", "ITEM_UNREADABLE"),
        ("company:?", "ITEM_UNREADABLE"),
    ]


@pytest.mark.parametrize("broken", ["?", {"id": "x"}, {"id": None, "properties": {"hs_lastmodifieddate": "soon"}}])
def test_a_delta_continues_past_an_unreadable_record(broken: Any) -> None:
    good = {"id": "8", "properties": {"hs_lastmodifieddate": "2026-06-01T00:00:00.000Z"}}

    by_time = SearchCursor(5).next_cursor(hubspot.DEALS, [good, broken], more=True)
    by_id = SearchCursor(5, "7").next_cursor(hubspot.DEALS, [good, broken], more=True)

    assert (by_time, by_id) == (SearchCursor(SINCE_MS), SearchCursor(5, "8"))
    for place in (SearchCursor(5), SearchCursor(5, "8")):
        with pytest.raises(Retryable):
            place.next_cursor(hubspot.DEALS, [broken], more=True)


def test_recorded_data_fills_both_tables_and_a_second_sync_changes_nothing(
    ana: Person, model: SpyEmbedder, settings: Any
) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", account="recorded")

    first, calls = run_sync(source), len(model.texts)
    rows, clients = everything(source), sync_helpers.client_values(source)
    second, delta = run_sync(source), run_sync(source, DELTA)

    assert (first.status, first.items_written, first.items_failed) == ("completed", 20, 0)
    assert {kind: len(rows[kind]) for kind in rows} == {"hubspot.contact": 7, "hubspot.company": 7, "hubspot.deal": 6}
    named = {key: (name, facts.get("deal_amount")) for key, name, _, facts, *_ in clients}
    assert len(named) == 5 + 7  # two contacts name no company
    assert named["company:9001"] == ("Biglytics", "7250.75")
    assert named["contact:513"] == ("Harbor Street Clinic", None)
    assert (second.items_written, second.items_unchanged, second.items_deleted) == (0, 20, 0)
    assert (delta.status, delta.items_seen, delta.items_written) == ("completed", 1, 0)
    assert len(model.texts) == calls
    assert (everything(source), sync_helpers.client_values(source)) == (rows, clients)


def everything(source: ConnectedSource) -> dict[str, list[tuple[str, str]]]:
    actual: dict[str, list[tuple[str, str]]] = {}
    for row in SourceDocument.objects.filter(source=source, deleted_at=None).order_by("external_id"):
        actual.setdefault(row.document_type, []).append((row.external_id, row.text))
    return actual
