"""Gmail: stored threads, and complete listings in full syncs and deltas."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from integrations.models import ClientIntelligence, ConnectedSource
from integrations.providers.gmail import mapping as gmail
from integrations.providers.interface import CapabilityMissing, Provider, RawItem, TokenRefused
from integrations.records import drafts
from integrations.tests.provider_clients import TOKEN, fake_client, fixture_client, item_ids, page_items, pages_of
from integrations.tests.sync_helpers import run_sync
from jobs.cluster import shared_state
from jobs.outcomes import Retryable, Wait
from testing.fakes.faults import FAULTS, http_error
from testing.fakes.gmail import FIRST, message
from testing.fakes.google import GmailServer
from testing.personas import Person

FULL, DELTA = "full_sync", "delta_sync"
RENEWAL = "thread:18c4f2a9d07b31e5"
GET = "GET /gmail/v1/users/me/threads/"


@pytest.fixture
def recorded(settings: Any) -> dict[str, RawItem]:
    """Everything that is recorded, by our ids."""
    return {item.external_id: item for item in fixture_client(settings, "gmail").list("gmail.threads.list")}


@pytest.fixture
def box(db: None) -> Iterator[GmailServer]:
    with GmailServer(tokens={TOKEN}) as server:
        yield server


# What is stored


def test_a_thread_is_mapped_field_by_field(recorded: dict[str, RawItem]) -> None:
    item = recorded[RENEWAL]

    record = gmail.map_record(item)

    first, second = item.payload["messages"]
    assert (item.document_type, item.payload["id"]) == ("gmail.thread", "18c4f2a9d07b31e5")
    assert item.payload["snippet"].startswith("Rafael, thank you.")
    assert first | {"body_text": ""} == {
        "id": "18c4f2a9d07b31e5",
        "from": "Rafael Ortiz <rafael@ortizbrokers.example.com>",
        "to": "Dana Whitfield <dana@harborlight.example.com>",
        "subject": "Renewal of your group health insurance",
        "internalDate": "1795081200000",
        "body_text": "",
        "attachments": ["renewal-quote-2027.pdf"],
    }
    assert second["subject"] == "Re: Renewal of your group health insurance"
    assert item.source_created_at == datetime(2026, 11, 19, 9, 40, tzinfo=UTC)
    assert item.source_updated_at == datetime(2026, 11, 20, 10, 35, tzinfo=UTC)
    assert record.title == "Renewal of your group health insurance"
    assert record.url == "https://mail.google.com/mail/#all/18c4f2a9d07b31e5"
    assert (record.parent_external_id, record.facts, record.is_pdf) == (None, {}, False)
    assert record.text.splitlines()[:7] == [
        "Renewal of your group health insurance",
        "",
        "From: Rafael Ortiz <rafael@ortizbrokers.example.com>",
        "To: Dana Whitfield <dana@harborlight.example.com>",
        "Date: 2026-11-19",
        "Attachments: renewal-quote-2027.pdf",
        "",
    ]
    assert record.text.count("offers the gold PPO at 612.40 dollars") == 1  # not its HTML form as well
    assert "hold the deductible at 1,500 dollars?" in record.text


def test_html_and_non_ascii_letters_are_decoded(recorded: dict[str, RawItem]) -> None:
    record = gmail.map_record(recorded["thread:18c3e01b7a5590fd"])

    assert "From: Käthe Brandt <kaethe@brandt-druck.example.com>" in record.text  # an encoded word
    assert "Amount due € 362,07" in record.text
    assert "Fällig am 15. Dezember. Grüße, Käthe" in record.text  # ISO-8859-1
    assert "track()" not in record.text


def test_a_thread_belongs_to_no_client(recorded: dict[str, RawItem]) -> None:
    assert drafts.make_draft(cast(Provider, gmail), recorded["thread:18c3e01b7a5590fd"]).client is None


@pytest.mark.parametrize("name", ["id", "messages"])
def test_a_malformed_payload_raises_value_error(recorded: dict[str, RawItem], name: str) -> None:
    item = recorded[RENEWAL]
    spoiled = RawItem(item.external_id, item.document_type, {**item.payload, name: None})

    with pytest.raises(ValueError, match="thread"):
        gmail.map_record(spoiled)


def test_the_recorded_mail_is_synced_and_a_renewal_found(ana: Person, settings: Any) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True
    source = ConnectedSource.objects.create(user_id=ana.id, provider="gmail")

    job = run_sync(source)

    response = ana.post("/search", {"query": "when does our health insurance renew", "sources": ["gmail"]}).json()
    assert (job.status, job.items_seen, job.items_failed) == ("completed", 3, 0)
    assert response["records"][0]["external_id"] == RENEWAL
    assert not ClientIntelligence.objects.exists()
    again = run_sync(source)
    assert (again.items_written, again.items_unchanged, again.items_embedded) == (0, 3, 0)


# How they are listed


def test_recorded_pages_are_followed_and_a_delta_of_nothing_is_empty(settings: Any) -> None:
    client = fixture_client(settings, "gmail")

    full, delta = pages_of(client, gmail, "threads", FULL), pages_of(client, gmail, "threads", DELTA, "981400")

    assert [len(page.items) for page in full] == [2, 1]
    assert client.begin(FULL) == {"threads": "981400"}
    assert page_items(delta) == []
    assert delta[-1].cursor == "981400"


def test_every_thread_is_returned_once(box: GmailServer, settings: Any) -> None:
    box.mail.generated, box.mail.most = 60, 40

    pages = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    assert item_ids(pages) == {f"thread:{FIRST + number:x}" for number in range(60)}
    assert len(page_items(pages)) == 60
    assert [page.capped for page in pages] == [False] * len(pages)
    assert box.ledger.repeated == 0


def test_an_empty_mailbox_has_no_threads(box: GmailServer, settings: Any) -> None:
    assert page_items(pages_of(fake_client(settings, box), gmail, "threads", FULL)) == []


@pytest.mark.parametrize(
    ("cap", "there", "is_capped"), [(30, 100, True), (30, 30, False), (30, 29, False), (0, 5, True)]
)
def test_the_cap_keeps_the_newest_across_pages(
    box: GmailServer, settings: Any, cap: int, there: int, is_capped: bool
) -> None:
    settings.GMAIL_INITIAL_SYNC_MAX_THREADS = cap
    box.mail.generated, box.mail.most = there, 12

    pages = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    newest = range(max(0, there - cap), there)
    assert item_ids(pages) == {f"thread:{FIRST + number:x}" for number in newest}
    assert pages[-1].capped is is_capped


def test_a_hundred_thousand_threads_cost_no_more_than_the_cap(box: GmailServer, settings: Any) -> None:
    settings.GMAIL_INITIAL_SYNC_MAX_THREADS = 50
    box.mail.generated = 100_000

    pages = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    assert (len(page_items(pages)), pages[-1].capped, box.ledger.sold) == (50, True, 50)


def test_a_thread_that_gets_mail_during_the_sync_is_not_missed(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 60
    last = f"{FIRST:x}"
    box.schedule_change(f"{GET}*", lambda: box.mail.put(last, message("late mail")), after=10)

    pages = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    late = next(item for item in page_items(pages) if item.external_id == f"thread:{last}")
    assert len(page_items(pages)) == 60
    assert "late mail" in gmail.map_record(late).text


def test_a_thread_deleted_during_the_sync_is_reported_as_deleted(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 3
    last = f"{FIRST:x}"
    box.schedule_change("GET /gmail/v1/users/me/threads", lambda: box.mail.remove(last))

    pages = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    assert len(item_ids(pages)) == 2
    assert item_ids(pages, deleted=True) == {f"thread:{last}"}


def test_a_delta_returns_new_changed_and_deleted_records(box: GmailServer, settings: Any) -> None:
    box.mail.generated, box.mail.most = 6, 2
    client = fake_client(settings, box)
    since = client.begin(FULL)["threads"]
    a, b, c, d, e = (f"{FIRST + number:x}" for number in range(5))
    box.mail.put("new1", message("of a new thread"))
    box.mail.put(a, message("a reply"))
    box.mail.remove(b)
    box.mail.label(c, "TRASH")
    box.mail.label(d, "SPAM")
    box.mail.label(e, "STARRED")

    pages = pages_of(client, gmail, "threads", DELTA, since)

    assert item_ids(pages) == {"thread:new1", f"thread:{a}"}  # a star changes nothing of a thread
    assert item_ids(pages, deleted=True) == {f"thread:{b}", f"thread:{c}", f"thread:{d}"}
    assert client.begin(DELTA) == {}
    assert page_items(pages_of(client, gmail, "threads", DELTA, pages[-1].cursor)) == []


def test_mail_that_arrives_during_a_delta_is_in_the_next_one(box: GmailServer, settings: Any) -> None:
    box.mail.most = 1
    client = fake_client(settings, box)
    since = client.begin(FULL)["threads"]
    box.mail.put("a", message("first"))
    box.mail.put("b", message("second"))
    box.schedule_change("GET /gmail/v1/users/me/history", lambda: box.mail.put("c", message("meanwhile")))

    first = pages_of(client, gmail, "threads", DELTA, since)
    second = pages_of(client, gmail, "threads", DELTA, first[-1].cursor)

    assert item_ids(first) | item_ids(second) == {"thread:a", "thread:b", "thread:c"}


def test_drafts_are_skipped_and_a_thread_of_drafts_is_none(box: GmailServer, settings: Any) -> None:
    box.mail.put("t", message("sent"), message("unfinished", labelIds=["DRAFT"]))
    box.mail.put("d", message("only a draft", labelIds=["DRAFT"]))

    pages = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    (thread,) = (item for item in page_items(pages) if not item.deleted)
    assert "unfinished" not in gmail.map_record(thread).text
    assert item_ids(pages, deleted=True) == {"thread:d"}


def test_a_history_that_is_too_old_is_expired(box: GmailServer, settings: Any) -> None:
    client = fake_client(settings, box)
    since = client.begin(FULL)["threads"]
    box.mail.forget_history()

    (page,) = pages_of(client, gmail, "threads", DELTA, since)

    assert (page.expired, page.items, page.next_page) == (True, [], None)
    assert pages_of(client, gmail, "threads", DELTA, None)[0].expired  # and so is none


# What goes wrong


def test_a_thread_that_cannot_be_fetched_fails_alone(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 6
    refused, broken, odd = (f"{FIRST + number:x}" for number in range(3))
    box.mail.put(odd, message("x") | {"internalDate": "never"})
    box.inject_fault(f"{GET}{refused}", http_error(403, code="domainPolicy"))
    box.inject_fault(f"{GET}{broken}", FAULTS["truncated-json"], times=2)

    (page,) = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    assert len(page.items) == 3
    assert {(failed.external_id, failed.code) for failed in page.failed} == {
        (f"thread:{refused}", "VENDOR_REFUSED"),
        (f"thread:{broken}", "VENDOR_ANSWER_INVALID"),
        (f"thread:{odd}", "ITEM_UNREADABLE"),
    }


def test_a_thread_that_fails_once_is_fetched_by_the_second_try(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 4
    box.inject_fault(f"{GET}{FIRST:x}", http_error(500))

    (page,) = pages_of(fake_client(settings, box), gmail, "threads", FULL)

    assert (len(page.items), page.failed) == (4, [])


def test_an_unavailable_vendor_fails_the_page_and_no_thread(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 4
    box.inject_fault(f"{GET}*", http_error(503), times=100)

    with pytest.raises((Retryable, Wait)):
        pages_of(fake_client(settings, box), gmail, "threads", FULL)


@pytest.mark.parametrize("no", [http_error(429, retry_after="30"), http_error(403, code="userRateLimitExceeded")])
def test_threads_fetched_before_a_wait_are_not_fetched_again(box: GmailServer, settings: Any, no: Any) -> None:
    box.mail.generated = 10
    client = fake_client(settings, box)
    fifth = f"{FIRST + 5:x}"
    box.inject_fault(f"{GET}{fifth}", no)

    page = client.page(gmail.STREAMS[0], FULL, None, None)

    assert [item.external_id for item in page.items] == [f"thread:{FIRST + n:x}" for n in (9, 8, 7, 6)]
    assert page.next_page is not None
    assert fifth in page.next_page
    with pytest.raises(Wait):  # and the next page waits
        client.page(gmail.STREAMS[0], FULL, None, page.next_page)


def test_a_token_expiring_mid_page_is_refused_and_the_page_repeats(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 10
    client = fake_client(settings, box)
    box.schedule_change(f"{GET}*", lambda: setattr(box, "tokens", set()), after=3)

    with pytest.raises(TokenRefused):
        client.page(gmail.STREAMS[0], FULL, None, None)


@pytest.mark.parametrize("kind", ["json-list", "html-200", "another-shape", "empty-200"])
@pytest.mark.parametrize("route", ["threads", "history"])
def test_a_malformed_listing_is_never_an_empty_page(box: GmailServer, settings: Any, route: str, kind: str) -> None:
    box.inject_fault(f"GET /gmail/v1/users/me/{route}", FAULTS[kind])

    with pytest.raises(Retryable, match="VENDOR_ANSWER_INVALID"):
        pages_of(fake_client(settings, box), gmail, "threads", FULL if route == "threads" else DELTA, "1")


def test_the_client_has_the_methods_of_spec_002(box: GmailServer, settings: Any) -> None:
    box.mail.generated = 30
    client = fake_client(settings, box)

    assert len(list(client.list("gmail.threads.list"))) == 30
    assert client.get("gmail.threads.get", f"thread:{FIRST:x}").external_id == f"thread:{FIRST:x}"
    calls: list[Callable[[], object]] = [
        lambda: client.list("gmail.drafts.list"),
        lambda: client.get("gmail.drafts.get", "1"),
        lambda: client.download(RawItem("thread:1", "gmail.thread", {})),
    ]
    for call in calls:
        with pytest.raises(CapabilityMissing):
            call()


@pytest.mark.django_db
def test_a_stopping_worker_fetches_no_further_thread(settings: Any) -> None:
    with GmailServer(tokens={TOKEN}, threads=3) as box:
        client = fake_client(settings, box)
        shared_state.request_stop()
        try:
            with pytest.raises(Wait, match="STOPPING"):
                pages_of(client, gmail, "threads", FULL)
        finally:
            shared_state.start_cluster()

    assert box.routes == ["GET /gmail/v1/users/me/threads"]
