"""Google Drive: stored files, complete listings in full syncs and deltas, failures of single files."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from integrations.providers.google_drive import mapping as google_drive
from integrations.providers.id_listing_client import BATCH_SIZE
from integrations.providers.interface import CapabilityMissing, Provider, RawItem, TokenRefused
from integrations.records import drafts
from integrations.tests.provider_clients import TOKEN, fake_client, fixture_client, item_ids, page_items, pages_of
from jobs.outcomes import Retryable, Wait
from testing.fakes.faults import FAULTS, http_error
from testing.fakes.google import DriveServer
from testing.fakes.google_drive import MOST_EXPORTED, SPREADSHEET

FULL, DELTA = "full_sync", "delta_sync"
PDF = "application/pdf"
DOC = "file:1kQ7aPWYcT0mZlqXvB2nR8sJd5eHgUoFy"
SHEET = "file:1Zr5tNwHqLx9CkE3yVbM7uPiGd0sAfJo2"
AMENDMENT = "file:1PdFv8mBnXcZ4qWeRtYuIoPaSdFgHjKl6"
SLIDES = "file:1SlD2wQaZxSwEdCvFrTgBnHyUjMkIlOp9"
FILES = "GET /drive/v3/files"


@pytest.fixture
def recorded(settings: Any) -> dict[str, RawItem]:
    """Everything that is recorded, by our ids."""
    return {item.external_id: item for item in fixture_client(settings, "google_drive").list("drive.files.list")}


@pytest.fixture
def drive(db: None) -> Iterator[DriveServer]:
    with DriveServer(tokens={TOKEN}) as server:
        yield server


def fill(drive: DriveServer, number: int) -> None:
    """Put files f000, f001 … there, each newer than the one before."""
    for at in range(number):
        drive.drive.put(f"f{at:03}", f"The text of file {at}.")


def names(*numbers: int) -> set[str]:
    return {f"file:f{number:03}" for number in numbers}


# What is stored


def test_a_document_is_mapped_field_by_field(recorded: dict[str, RawItem]) -> None:
    item = recorded[DOC]

    record = google_drive.map_record(item)

    assert item.document_type == "google_drive.doc"
    assert item.source_created_at == datetime(2026, 8, 3, 9, 12, 44, 102000, UTC)
    assert item.source_updated_at == datetime(2026, 11, 18, 15, 40, 7, 551000, UTC)
    assert {name: item.payload[name] for name in ("id", "name", "mimeType", "modifiedTime")} == {
        "id": DOC.removeprefix("file:"),
        "name": "Benefits renewal checklist 2027",
        "mimeType": "application/vnd.google-apps.document",
        "modifiedTime": "2026-11-18T15:40:07.551Z",
    }
    assert item.payload["exported_text"].startswith("Benefits renewal checklist 2027\r\n")  # no byte order mark
    assert record.title == "Benefits renewal checklist 2027"
    assert record.url == f"https://docs.google.com/document/d/{DOC.removeprefix('file:')}/edit?usp=drivesdk"
    assert (record.parent_external_id, record.facts, record.is_pdf) == (None, {}, False)
    assert "\n1. Ask the broker for renewal rates of the gold PPO by 1 December.\n" in record.text
    assert "\r" not in record.text


def test_a_sheet_is_stored_as_its_rows(recorded: dict[str, RawItem]) -> None:
    assert recorded[SHEET].document_type == "google_drive.sheet"
    assert google_drive.map_record(recorded[SHEET]).text.splitlines()[:4] == [
        "Quote comparison Q1",
        "",
        "Carrier,Plan,Monthly premium,Deductible,Out-of-pocket maximum",
        "Bluestone Mutual,Gold PPO,612.40,1500,6000",
    ]


def test_slides_are_stored_as_documents(recorded: dict[str, RawItem]) -> None:
    assert recorded[SLIDES].document_type == "google_drive.doc"
    assert "Dental and vision move to one carrier." in google_drive.map_record(recorded[SLIDES]).text


def test_a_pdf_has_no_text_of_its_own(recorded: dict[str, RawItem]) -> None:
    record = google_drive.map_record(recorded[AMENDMENT])

    assert recorded[AMENDMENT].document_type == "google_drive.pdf"
    assert (record.is_pdf, record.text, record.title) == (True, "", "Amendment 2026-3.pdf")


def test_a_file_belongs_to_no_client(recorded: dict[str, RawItem]) -> None:
    assert drafts.make_draft(cast(Provider, google_drive), recorded[SHEET]).client is None


def test_the_stored_text_is_bounded() -> None:
    file = {"id": "1", "name": "long", "mimeType": "application/vnd.google-apps.document"}

    item = google_drive.file_item(file, "x" * 1_000_000)

    assert len(item.payload["exported_text"]) == len(google_drive.map_record(item).text) - len("long\n\n\n") == 200_000


@pytest.mark.parametrize(
    "wrong", [{"id": 7}, {"mimeType": "image/png"}, {"mimeType": []}, {"modifiedTime": "soon"}, {"modifiedTime": 7}]
)
def test_a_malformed_file_raises_value_error(wrong: dict[str, Any]) -> None:
    file = {"id": "1", "name": "a", "mimeType": "application/vnd.google-apps.document"}

    with pytest.raises(ValueError, match=r"file|isoformat"):
        google_drive.file_item({**file, **wrong}, "text")


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "http://docs.google.com/x", "https://evil.example.com/", 7, None]
)
def test_a_link_that_does_not_lead_to_google_is_not_kept(recorded: dict[str, RawItem], link: object) -> None:
    item = recorded[DOC]
    payload = {**item.payload, "webViewLink": link}

    assert google_drive.map_record(RawItem(item.external_id, item.document_type, payload)).url is None


# How they are listed


def test_recorded_pages_are_followed_and_a_delta_of_nothing_is_empty(settings: Any) -> None:
    client = fixture_client(settings, "google_drive")

    full = pages_of(client, google_drive, "files", FULL)
    delta = pages_of(client, google_drive, "files", DELTA, "48211")

    assert [len(page.items) for page in full] == [2, 2]
    assert client.begin(FULL) == {"files": "48211"}
    assert page_items(delta) == []
    assert delta[-1].cursor == "48211"


def test_every_supported_file_is_returned_once(drive: DriveServer, settings: Any) -> None:
    fill(drive, 60)
    drive.drive.put("picture", b"\x89PNG", mime="image/png")
    drive.drive.put("thrown", "away")
    drive.drive.trash("thrown")
    drive.drive.most = 40

    pages = pages_of(fake_client(settings, drive), google_drive, "files", FULL)

    assert item_ids(pages) == names(*range(60))
    assert len(page_items(pages)) == 60
    assert drive.ledger.repeated == 0
    assert not any(page.capped for page in pages)
    assert max(len(page.items) for page in pages) == BATCH_SIZE


@pytest.mark.parametrize(("cap", "is_capped"), [(20, True), (30, False), (31, False), (0, True)])
def test_the_cap_keeps_the_newest_across_pages(drive: DriveServer, settings: Any, cap: int, is_capped: bool) -> None:
    settings.DRIVE_INITIAL_SYNC_MAX_FILES = cap
    fill(drive, 30)
    drive.drive.most = 12

    pages = pages_of(fake_client(settings, drive), google_drive, "files", FULL)

    assert item_ids(pages) == names(*range(max(0, 30 - cap), 30))
    assert pages[-1].capped is is_capped


def test_an_incomplete_listing_deletes_no_records(drive: DriveServer, settings: Any) -> None:
    fill(drive, 2)
    drive.drive.incomplete = True

    assert pages_of(fake_client(settings, drive), google_drive, "files", FULL)[-1].capped


def test_a_file_that_changes_during_the_sync_is_not_missed(drive: DriveServer, settings: Any) -> None:
    fill(drive, 60)
    drive.schedule_change(f"{FILES}/*/export", lambda: drive.drive.put("f000", "Its newest text."), after=10)

    pages = pages_of(fake_client(settings, drive), google_drive, "files", FULL)

    (oldest,) = (item for item in page_items(pages) if item.external_id == "file:f000")
    assert oldest.payload["exported_text"] == "Its newest text."
    assert len(page_items(pages)) == 60


def test_a_file_deleted_during_the_sync_is_reported_as_deleted(drive: DriveServer, settings: Any) -> None:
    fill(drive, 3)
    drive.schedule_change(FILES, lambda: drive.drive.remove("f001"))

    pages = pages_of(fake_client(settings, drive), google_drive, "files", FULL)

    assert (item_ids(pages), item_ids(pages, deleted=True)) == (names(0, 2), names(1))


def test_a_delta_returns_new_changed_and_deleted_records(drive: DriveServer, settings: Any) -> None:
    fill(drive, 6)
    drive.drive.most = 2
    client = fake_client(settings, drive)
    since = client.begin(FULL)["files"]
    drive.drive.put("f006", "new")
    drive.drive.put("f000", "changed")
    drive.drive.put("rows", "a,b", mime=SPREADSHEET)
    drive.drive.put("picture", b"\x89PNG", mime="image/png")
    drive.drive.trash("f001")
    drive.drive.remove("f002")

    pages = pages_of(client, google_drive, "files", DELTA, since)

    assert item_ids(pages) == names(0, 6) | {"file:rows"}
    assert item_ids(pages, deleted=True) == names(1, 2)
    assert client.begin(DELTA) == {}
    assert page_items(pages_of(client, google_drive, "files", DELTA, pages[-1].cursor)) == []


def test_a_restored_file_is_returned(drive: DriveServer, settings: Any) -> None:
    fill(drive, 1)
    client = fake_client(settings, drive)
    drive.drive.trash("f000")
    since = client.begin(FULL)["files"]
    drive.drive.put("f000", "back again")

    assert item_ids(pages_of(client, google_drive, "files", DELTA, since)) == names(0)


@pytest.mark.parametrize("status", [400, 404, 410])
def test_a_page_token_that_drive_does_not_know_is_expired(drive: DriveServer, settings: Any, status: int) -> None:
    client = fake_client(settings, drive)
    since = client.begin(FULL)["files"]
    drive.inject_fault("GET /drive/v3/changes", http_error(status))

    (page,) = pages_of(client, google_drive, "files", DELTA, since)

    assert (page.expired, page.items, page.next_page) == (True, [], None)
    assert pages_of(client, google_drive, "files", DELTA, None)[0].expired  # and so is none


def test_changes_that_drive_has_forgotten_are_expired(drive: DriveServer, settings: Any) -> None:
    client = fake_client(settings, drive)
    since = client.begin(FULL)["files"]
    drive.drive.forget_changes()

    assert pages_of(client, google_drive, "files", DELTA, since)[0].expired


# What goes wrong


def test_a_file_that_cannot_be_fetched_fails_alone(drive: DriveServer, settings: Any) -> None:
    fill(drive, 6)
    drive.drive.put("f000", "x" * (MOST_EXPORTED + 1))
    drive.drive.put("f001", "x", modifiedTime="2026-01-01T00:00:00 o'clock")
    drive.inject_fault(f"{FILES}/f002/export", http_error(403, code="cannotExportFile"))
    drive.inject_fault(f"{FILES}/f003/export", FAULTS["reset-mid-body"], times=2)

    (page,) = pages_of(fake_client(settings, drive), google_drive, "files", FULL)

    assert {item.external_id for item in page.items} == names(4, 5)
    codes = {failed.external_id: failed.code for failed in page.failed}
    assert codes.pop("file:f003").startswith("VENDOR_")
    assert codes == {"file:f000": "ITEM_TOO_LARGE", "file:f001": "ITEM_UNREADABLE", "file:f002": "VENDOR_REFUSED"}


def test_an_export_that_is_not_utf_8_gets_replacement_characters(drive: DriveServer, settings: Any) -> None:
    drive.drive.put("f000", b"\xef\xbb\xbfGr\xfc\xdfe")

    (item,) = page_items(pages_of(fake_client(settings, drive), google_drive, "files", FULL))

    assert item.payload["exported_text"] == "Gr��e"


def test_an_unavailable_vendor_fails_the_page_and_no_file(drive: DriveServer, settings: Any) -> None:
    fill(drive, 4)
    drive.inject_fault(f"{FILES}/*", http_error(500), times=100)

    with pytest.raises((Retryable, Wait)):
        pages_of(fake_client(settings, drive), google_drive, "files", FULL)


@pytest.mark.parametrize("code", ["rateLimitExceeded", "userRateLimitExceeded"])
def test_files_fetched_before_a_wait_are_not_fetched_again(drive: DriveServer, settings: Any, code: str) -> None:
    fill(drive, 10)
    client = fake_client(settings, drive)
    drive.inject_fault(f"{FILES}/f005/export", http_error(403, code=code))

    page = client.page(google_drive.STREAMS[0], FULL, None, None)

    assert [item.external_id for item in page.items] == sorted(names(6, 7, 8, 9), reverse=True)
    assert page.next_page is not None
    assert page.failed == []
    with pytest.raises(Wait):  # and the next page waits
        client.page(google_drive.STREAMS[0], FULL, None, page.next_page)


def test_a_token_expiring_mid_page_is_refused_and_the_page_repeats(drive: DriveServer, settings: Any) -> None:
    fill(drive, 10)
    client = fake_client(settings, drive)
    drive.schedule_change(f"{FILES}/*", lambda: setattr(drive, "tokens", set()), after=3)

    with pytest.raises(TokenRefused):
        client.page(google_drive.STREAMS[0], FULL, None, None)


@pytest.mark.parametrize("kind", ["json-list", "html-200", "another-shape", "empty-200", "truncated-json"])
@pytest.mark.parametrize("route", ["files", "changes"])
def test_a_malformed_listing_is_never_an_empty_page(drive: DriveServer, settings: Any, route: str, kind: str) -> None:
    fill(drive, 1)
    drive.inject_fault(f"GET /drive/v3/{route}", FAULTS[kind])

    with pytest.raises(Retryable, match="VENDOR_ANSWER_INVALID"):
        pages_of(fake_client(settings, drive), google_drive, "files", FULL if route == "files" else DELTA, "0")


def test_the_client_has_the_methods_of_spec_002(drive: DriveServer, settings: Any) -> None:
    fill(drive, 30)
    client = fake_client(settings, drive)

    assert len(list(client.list("drive.files.list"))) == 30
    assert client.get("drive.files.get", "file:f001").external_id == "file:f001"
    calls: list[Callable[[], object]] = [
        lambda: client.list("drive.drives.list"),
        lambda: client.get("drive.comments.get", "1"),
    ]
    for call in calls:
        with pytest.raises(CapabilityMissing):
            call()
