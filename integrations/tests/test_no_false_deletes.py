"""A sync deletes no record that exists at the provider, and misses none."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from integrations.models import ConnectedSource
from integrations.oauth import token_vault
from integrations.providers.google_drive import rest
from integrations.providers.interface import FailedItem, Page
from integrations.sync import page_worker, pgmq_consumer
from integrations.tests.fake_provider.embedder import SpyEmbedder
from integrations.tests.fake_provider.rest import Account
from integrations.tests.provider_clients import TOKEN, fake_client
from integrations.tests.sync_helpers import DELTA, FULL, item, row, run_page, run_sync, start_sync, stored_rows
from testing.error_codes import error_code
from testing.fakes.faults import http_error
from testing.fakes.gmail import FIRST, NEWEST, message
from testing.fakes.google import DriveServer, GmailServer
from testing.pdfs import text_pdf
from testing.personas import Person
from vendors.models import Breaker

pytestmark = pytest.mark.django_db
PDF = "application/pdf"
THREADS = "GET /gmail/v1/users/me/threads/"


@pytest.fixture(autouse=True)
def _model(model: SpyEmbedder) -> None:
    """Each test asks the model that remembers."""


@pytest.fixture
def drive(settings: Any) -> Iterator[DriveServer]:
    with DriveServer(tokens={TOKEN}) as server:
        fake_client(settings, server)
        yield server


@pytest.fixture
def box(settings: Any) -> Iterator[GmailServer]:
    with GmailServer(tokens={TOKEN}) as server:
        fake_client(settings, server)
        yield server


@pytest.fixture
def files(drive: DriveServer, ana: Person) -> ConnectedSource:
    return _connected(ana, "google_drive")


@pytest.fixture
def mails(box: GmailServer, ana: Person) -> ConnectedSource:
    return _connected(ana, "gmail")


def _connected(person: Person, provider: str) -> ConnectedSource:
    source: ConnectedSource = ConnectedSource.objects.create(user_id=person.id, provider=provider)
    source.access_token_vault_id = token_vault.store_token(source, "access", TOKEN)
    source.token_expires_at = timezone.now() + timedelta(hours=1)
    source.save()
    return source


def _there(source: ConnectedSource) -> set[str]:
    return {external_id for external_id, each in stored_rows(source).items() if each.deleted_at is None}


def _be_due() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgmq.q_ingestion_queue SET vt = clock_timestamp()")


# What is asked for by itself is newer than what is stored, whatever its time says


@pytest.mark.parametrize("kind", [DELTA, FULL])
def test_a_deleted_message_is_removed_from_its_thread(box: GmailServer, mails: ConnectedSource, kind: str) -> None:
    box.mail.put("t", message("old words", moment=NEWEST), message("my secret salary", moment=NEWEST + 1000))
    run_sync(mails)
    assert "salary" in row(mails, "thread:t").text

    box.mail.threads["t"]["messages"][-1]["labelIds"] = ["TRASH"]
    box.mail.label("t")
    box.mail.history[-1] |= {"labelsAdded": [{"message": {"threadId": "t"}, "labelIds": ["TRASH"]}]}
    run_sync(mails, kind)

    assert "old words" in row(mails, "thread:t").text
    assert "salary" not in row(mails, "thread:t").text


def test_a_restored_older_revision_is_stored(drive: DriveServer, files: ConnectedSource) -> None:
    drive.drive.put("other")
    drive.drive.put("a", "the second wording")
    run_sync(files)

    drive.drive.put("a", "the first wording", modifiedTime="2024-01-01T00:00:00.000Z")
    run_sync(files, DELTA)

    assert "the first wording" in row(files, "file:a").text
    assert row(files, "file:a").embedding is not None


def test_a_file_restored_during_a_delta_is_kept(
    drive: DriveServer, files: ConnectedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "CHANGES", 2)
    for name in "abc":
        drive.drive.put(name)
    run_sync(files)
    drive.drive.trash("a")
    drive.drive.put("b", "new")
    drive.drive.put("c", "new")

    start_sync(files, DELTA)
    run_page()
    buried = row(files, "file:a").deleted_at
    drive.drive.files["a"]["trashed"] = False  # its modifiedTime stays
    drive.drive.changes.append("a")
    while run_page():
        pass

    assert buried is not None
    assert _there(files) == {"file:a", "file:b", "file:c"}


def test_records_deleted_by_a_delta_that_becomes_full_can_come_back(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1", 1), item("company:2"))
    run_sync(source)
    account.list("companies+", replace(item("company:1", deleted=True), source_updated_at=None))
    account.pages["deals+"] = [Page([], expired=True)]
    account.list("companies", item("company:1", 1))  # restored as it was; the other one is gone

    job = run_sync(source, DELTA)

    assert job.kind == FULL
    assert _there(source) == {"company:1"}


def test_records_seen_by_a_delta_that_becomes_full_can_be_deleted(account: Account, source: ConnectedSource) -> None:
    account.list("companies+", item("company:1"))
    run_sync(source)
    account.pages["deals+"] = [Page([], expired=True)]

    run_sync(source, DELTA)

    assert row(source, "company:1").deleted_at is not None


# What failed for a moment comes again


def test_a_failed_thread_is_fetched_by_a_later_delta(box: GmailServer, mails: ConnectedSource) -> None:
    box.mail.put("a", message("first"))
    run_sync(mails)
    box.mail.put("b", message("second"))
    box.mail.put("c", message("third"))
    box.inject_fault(f"{THREADS}b", http_error(503), times=3)

    failed = [run_sync(mails, DELTA).items_failed for _ in range(3)]

    mails.refresh_from_db()
    assert failed == [1, 1, 0]
    assert _there(mails) == {"thread:a", "thread:b", "thread:c"}
    assert mails.cursor.keys() == {"threads"}


def test_retries_come_before_changes_and_survive_a_full_sync(
    box: GmailServer, mails: ConnectedSource, settings: Any
) -> None:
    box.mail.generated = 5
    bad = f"{FIRST:x}"
    box.inject_fault(f"{THREADS}{bad}", http_error(503), times=100)
    run_sync(mails)
    settings.GMAIL_INITIAL_SYNC_MAX_THREADS = 2  # the oldest is listed no more
    run_sync(mails)
    box.mail.put("new", message("x"))

    job = run_sync(mails, DELTA)

    mails.refresh_from_db()
    assert (job.status, job.items_failed) == ("completed", 1)
    assert mails.cursor["retry"] == {"threads": [f"thread:{bad}"]}
    assert "thread:new" in _there(mails)


def test_a_thread_that_always_fails_does_not_block_a_delta(box: GmailServer, mails: ConnectedSource) -> None:
    run_sync(mails)
    box.mail.put("b", message("second"))
    box.inject_fault(f"{THREADS}b", http_error(503), times=100)

    jobs = [run_sync(mails, DELTA)]
    jobs.append(start_sync(mails, DELTA))
    for _ in range(5):  # the third fault opens the breaker: the page waits, and is not the thread's any more
        pgmq_consumer.drain(time.monotonic() + 60)
        _be_due()
        Breaker.objects.update(opened_at=timezone.now() - timedelta(hours=1))
    jobs[1].refresh_from_db()

    assert [(job.status, job.items_failed) for job in jobs] == [("completed", 1)] * 2


def test_a_delta_with_too_many_retries_keeps_its_cursor(
    box: GmailServer, mails: ConnectedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_worker, "MOST_RETRIES", 1)
    run_sync(mails)
    mails.refresh_from_db()
    stood = mails.cursor["threads"]
    for name in "abc":
        box.mail.put(name, message("x"))
    for name in "ab":
        box.inject_fault(f"{THREADS}{name}", http_error(503), times=2)

    run_sync(mails, DELTA)

    mails.refresh_from_db()
    assert (mails.cursor["threads"], len(mails.cursor["retry"]["threads"])) == (stood, 1)
    run_sync(mails, DELTA)
    assert _there(mails) == {"thread:a", "thread:b", "thread:c"}


def test_a_pdf_over_the_daily_limit_is_imported_by_a_later_delta(
    drive: DriveServer, files: ConnectedSource, settings: Any
) -> None:
    settings.IMPORTS_PER_DAY = 1
    run_sync(files)
    for name in "ab":
        drive.drive.put(name, text_pdf(name), mime=PDF)

    job = run_sync(files, DELTA)
    settings.IMPORTS_PER_DAY = 100
    run_sync(files, DELTA)

    assert [detail["code"] for detail in job.error_details] == ["IMPORT_LIMIT_REACHED"]
    assert _there(files) == {"file:a", "file:b"}


def test_a_pdf_that_always_fails_fails_alone(drive: DriveServer, files: ConnectedSource) -> None:
    for name in "ab":
        drive.drive.put(name, text_pdf(name), mime=PDF)
    drive.drive.put("c", "text")
    drive.inject_fault("GET /drive/v3/files/b", http_error(500), times=100)

    job = run_sync(files)

    files.refresh_from_db()
    assert (job.status, job.items_failed) == ("completed", 1)
    assert _there(files) == {"file:a", "file:c"}
    assert files.cursor["retry"] == {"files": ["file:b"]}


def test_other_records_do_not_wait_for_a_pdf(drive: DriveServer, files: ConnectedSource) -> None:
    drive.drive.put("c", "text")
    drive.drive.put("a", text_pdf("a"), mime=PDF)
    drive.inject_fault("GET /drive/v3/files/a", http_error(429, retry_after="600"))

    job = start_sync(files)
    pgmq_consumer.drain(time.monotonic() + 60)

    job.refresh_from_db()
    assert (job.status, job.page) == ("running", 0)
    assert _there(files) == {"file:c"}


# Nothing that exists is buried


def test_a_thread_that_moves_to_the_listings_front_is_not_deleted(box: GmailServer, mails: ConnectedSource) -> None:
    box.mail.most = 3
    box.mail.generated = 6
    run_sync(mails)
    gone, oldest = f"{FIRST + 1:x}", f"{FIRST:x}"
    began: list[Any] = []

    start_sync(mails)
    run_page()
    box.mail.remove(gone)
    box.mail.put(oldest, message("late mail", moment=NEWEST + 5000))
    while run_page():
        began.append(row(mails, f"thread:{oldest}").deleted_at)

    assert set(began) == {None}
    assert "late mail" in row(mails, f"thread:{oldest}").text
    assert row(mails, f"thread:{gone}").deleted_at is not None


def test_a_file_that_moves_to_the_listings_front_is_not_deleted(drive: DriveServer, files: ConnectedSource) -> None:
    drive.drive.most = 2
    for name in "abcd":
        drive.drive.put(name, name)
    run_sync(files)

    start_sync(files)
    run_page()
    drive.drive.put("a", "late", modifiedTime="2026-01-01T00:00:00.000Z")
    while run_page():
        pass

    assert _there(files) == {f"file:{name}" for name in "abcd"}


def test_a_cursor_that_expires_during_a_full_sync_deletes_nothing(box: GmailServer, mails: ConnectedSource) -> None:
    box.mail.generated = 2
    run_sync(mails)
    box.mail.remove(f"{FIRST:x}")

    start_sync(mails)
    run_page()
    box.mail.forget_history()
    while run_page():
        pass

    job = mails.jobs.latest("created_at")
    assert (job.status, job.kind) == ("completed", FULL)
    assert len(_there(mails)) == 2


def test_a_record_without_id_keeps_a_full_sync_from_deleting_its_type(
    account: Account, source: ConnectedSource
) -> None:
    account.list("companies", item("company:1"), item("company:2"))
    account.list("deals", item("deal:1"), item("deal:2"))
    run_sync(source)

    account.pages["companies"] = [
        Page([item("company:1")], failed=[FailedItem("company:?", error_code("ITEM_UNREADABLE"))])
    ]
    account.list("deals", item("deal:1"))
    run_sync(source)

    assert _there(source) == {"company:1", "company:2", "deal:1"}


# What was counted stays counted


def test_an_interrupted_page_counts_each_record_once(
    account: Account, source: ConnectedSource, model: SpyEmbedder, settings: Any
) -> None:
    account.list("deals", item("deal:4"))
    run_sync(source)
    settings.EMBEDDING_BATCH_SIZE = 1
    account.list("companies")
    account.list("deals", *[item(f"deal:{n}") for n in range(5)])

    job = start_sync(source)
    model.calls_left = 2
    pgmq_consumer.drain(time.monotonic() + 60)
    job.refresh_from_db()
    halfway = (job.items_written, job.items_unchanged, job.items_embedded)
    model.calls_left = None
    _be_due()
    pgmq_consumer.drain(time.monotonic() + 60)

    job.refresh_from_db()
    assert halfway == (2, 0, 2)
    assert (job.status, job.items_seen) == ("completed", 5)
    assert (job.items_written, job.items_unchanged, job.items_embedded) == (4, 1, 4)
