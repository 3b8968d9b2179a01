"""A page of a sync: requests, interruptions, and the sync's cursor afterwards."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from documents.models import Document
from embeddings.embedders import openai
from integrations.models import ConnectedSource, IngestionJob, SourceDocument
from integrations.providers.interface import FailedItem, Page, TokenRefused
from integrations.records import orphaned_imports
from integrations.records.prepared_sql import execute
from integrations.sync import lifecycle, page_worker, pgmq, pgmq_consumer
from integrations.sync.pgmq import TABLE
from integrations.tests.fake_provider.embedder import SpyEmbedder
from integrations.tests.fake_provider.mapping import BUG
from integrations.tests.fake_provider.rest import Account
from integrations.tests.sync_helpers import DELTA, FULL, client, item, row, run_page, run_sync, start_sync, stored_rows
from jobs import failpoints
from jobs.cluster import shared_state
from jobs.outcomes import Permanent, Retryable, Wait
from testing.error_codes import error_code
from testing.fakes.openai import KEY, OpenAIServer
from testing.pdfs import text_pdf

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(model: SpyEmbedder) -> None:
    """Each test asks the model that remembers, unless it names another."""


@pytest.fixture
def vendor(settings: Any) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        settings.EMBEDDER, settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = "openai", KEY, server.url
        yield server
        openai._client.cache_clear()


def test_embeds_only_when_text_changes(account: Account, source: ConnectedSource, vendor: OpenAIServer) -> None:
    """Spec 002 §8, against the vendor's own protocol: the same records twice are one call."""
    account.list("companies", item("company:1", name="Acme"))

    first = run_sync(source)
    calls = vendor.requests
    second = run_sync(source)

    assert (calls, vendor.requests) == (1, 1)
    assert (first.items_embedded, second.items_embedded) == (1, 0)
    assert row(source, "company:1").embedding_model == "text-embedding-3-small@1"


def test_a_full_sync_takes_its_cursor_then_reads_every_page(account: Account, source: ConnectedSource) -> None:
    account.begun = {"companies": "then", "deals": "then"}
    account.list("companies", *[item(f"company:{n}") for n in range(5)], size=2)
    account.list("deals", item("deal:1"))
    account.before = lambda: account.begun.update(companies="later")

    job = run_sync(source)

    source.refresh_from_db()
    assert [request[0] + (request[3] or "") for request in account.requests] == [
        "companies", "companies1", "companies2", "deals",
    ]  # fmt: skip
    assert source.cursor == {"companies": "then", "deals": "then"}
    assert (job.status, job.page, job.items_seen) == ("completed", 5, 6)
    assert source.last_synced_at is not None
    assert account.closed == 4
    assert not pgmq.has_messages()


def test_a_delta_asks_from_the_sources_cursor_on_and_moves_it(account: Account, source: ConnectedSource) -> None:
    account.begun = {"companies": 1, "deals": 1}
    run_sync(source)
    account.begun = {"companies": 2, "deals": 2}
    account.requests.clear()

    job = run_sync(source, DELTA)

    source.refresh_from_db()
    assert account.requests == [("companies", "delta_sync", 1, None), ("deals", "delta_sync", 1, None)]
    assert source.cursor == {"companies": 2, "deals": 2}
    assert job.kind == DELTA


def test_a_page_can_return_its_streams_cursor(account: Account, source: ConnectedSource) -> None:
    account.pages["companies"] = [Page([], next_page="1"), Page([], cursor="from the last page")]

    run_sync(source)

    source.refresh_from_db()
    assert source.cursor == {"companies": "from the last page", "deals": 1}


def test_an_incomplete_delta_keeps_its_streams_cursor(account: Account, source: ConnectedSource) -> None:
    run_sync(source)
    account.begun = {"companies": 2, "deals": 2}
    account.pages["companies+"] = [Page([item("company:1")], capped=True)]

    run_sync(source, DELTA)

    source.refresh_from_db()
    assert source.cursor == {"companies": 1, "deals": 2}


def test_the_message_of_a_page_is_deleted_only_after_its_commit(account: Account, source: ConnectedSource) -> None:
    """Spec 002 §8: what breaks in the middle of a write leaves the message, and the next delivery ends it."""
    account.list("companies", item("company:1"))
    account.list("deals", item("deal:1", company="company:1", name=BUG))
    start_sync(source)
    pgmq_consumer.drain(time.monotonic() + 60)
    assert pgmq.has_messages()
    assert stored_rows(source).keys() == {"company:1"}

    account.list("deals", item("deal:1", company="company:1"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgmq.q_ingestion_queue SET vt = clock_timestamp()")
    pgmq_consumer.drain(time.monotonic() + 60)

    job = IngestionJob.objects.get(source=source)
    assert (job.status, job.items_written) == ("completed", 2)
    assert stored_rows(source).keys() == {"company:1", "deal:1"}
    assert not pgmq.has_messages()


def test_the_cursor_stays_until_the_sync_has_ended_well(account: Account, source: ConnectedSource) -> None:
    run_sync(source)
    account.begun = {"companies": 2, "deals": 2}
    job = start_sync(source, DELTA)
    run_page()

    lifecycle.fail_sync(job.pk, "SOME_CODE")

    source.refresh_from_db()
    assert source.cursor == {"companies": 1, "deals": 1}
    assert run_page() is not None
    assert not pgmq.has_messages()


def test_a_closed_page_is_not_run_again(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"))
    start_sync(source)
    message = pgmq.read_message()
    assert message is not None
    page_worker.run_page(message)
    account.requests.clear()

    page_worker.run_page(message)

    assert not account.requests
    assert IngestionJob.objects.get(source=source).page == 1


def test_an_expired_cursor_starts_a_full_sync(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"), item("company:2"))
    run_sync(source)
    account.list("companies", item("company:2"))
    account.pages["companies+"] = [Page([], expired=True)]
    account.begun = {"companies": 9, "deals": 9}

    job = run_sync(source, DELTA)

    source.refresh_from_db()
    assert (job.kind, job.status) == (FULL, "completed")
    assert [each["code"] for each in job.error_details] == ["CURSOR_EXPIRED"]
    assert source.cursor == {"companies": 9, "deals": 9}
    assert row(source, "company:1").deleted_at is not None


def test_a_cursor_that_expires_twice_fails_the_sync(account: Account, source: ConnectedSource) -> None:
    account.pages["companies"] = [Page([], expired=True)]
    start_sync(source)
    run_page()

    with pytest.raises(Permanent) as never:
        run_page()

    assert never.value.code == "CURSOR_EXPIRED"


def test_a_page_that_names_itself_as_next_is_retried(account: Account, source: ConnectedSource) -> None:
    account.pages["companies"] = [Page([], next_page="1"), Page([], next_page="1")]
    start_sync(source)
    run_page()

    with pytest.raises(Retryable):
        run_page()


def test_a_refused_token_is_refreshed_before_the_next_delivery(
    account: Account, source: ConnectedSource, settings: Any
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE connected_sources SET token_expires_at = now() + interval '1 hour'")
    account.raises = [TokenRefused()]
    start_sync(source)

    with pytest.raises(TokenRefused):
        run_page()

    source.refresh_from_db()
    assert source.token_expires_at is None
    assert account.closed == 1


def test_unreadable_records_are_reported_and_not_deleted(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"), item("company:2"))
    run_sync(source)

    account.pages["companies"] = [
        Page([item("company:1")], failed=[FailedItem("company:2", error_code("ITEM_UNREADABLE"))])
    ]
    job = run_sync(source)

    assert row(source, "company:2").deleted_at is None
    assert (job.items_seen, job.items_failed, job.items_deleted) == (2, 1, 0)
    assert [(each["external_id"], each["code"]) for each in job.error_details] == [("company:2", "ITEM_UNREADABLE")]


def test_the_last_fifty_details_are_kept(account: Account, source: ConnectedSource) -> None:
    account.pages["companies"] = [
        Page([], failed=[FailedItem(f"company:{n}", error_code("ITEM_UNREADABLE")) for n in range(40)], next_page="1"),
        Page([], failed=[FailedItem(f"company:{n}", error_code("ITEM_UNREADABLE")) for n in range(40, 60)]),
    ]

    job = run_sync(source)

    assert job.items_failed == 60
    assert [each["external_id"] for each in job.error_details] == [f"company:{n}" for n in range(10, 60)]


def test_a_stopping_worker_writes_only_bought_vectors(
    account: Account, source: ConnectedSource, model: SpyEmbedder, settings: Any
) -> None:
    settings.EMBEDDING_BATCH_SIZE = 2
    account.list("companies")
    account.list("deals", *[item(f"deal:{n}", text=f"text {n}") for n in range(5)])
    start_sync(source)
    run_page()
    embed, message = model.embed, pgmq.read_message()
    assert message is not None

    def stopped_meanwhile(texts: Any) -> Any:
        shared_state.request_stop()
        return embed(texts)

    model.embed = stopped_meanwhile  # type: ignore[method-assign]
    try:
        with pytest.raises(Wait) as postponed:
            page_worker.run_page(message)
    finally:
        shared_state.start_cluster()
        del model.embed

    assert (postponed.value.seconds, postponed.value.reason) == (0, "STOPPING")
    assert len(stored_rows(source)) == 2
    page_worker.run_page(message)
    assert len(stored_rows(source)) == 5
    assert len(model.texts) == 5


def test_the_same_page_twice_leaves_the_same_rows(account: Account, source: ConnectedSource) -> None:
    shown = [item("company:1"), item("company:2")]
    account.pages["companies"] = [Page(shown, next_page="1"), Page(shown)]
    account.list("deals", item("deal:1", company="company:1", amount=2))

    run_sync(source)

    assert stored_rows(source).keys() == {"company:1", "company:2", "deal:1"}
    assert client(source).key_facts == {"deals": ["deal:1"], "total": 2}


def test_an_id_too_long_for_the_index_fails_its_record_alone(account: Account, source: ConnectedSource) -> None:
    account.list("deals", item(f"deal:{'9' * 5000}"), item("deal:1", company=f"company:{'x' * 5000}"), item("deal:2"))

    job = run_sync(source)

    assert stored_rows(source).keys() == {"deal:2"}
    assert (job.status, job.items_failed) == ("completed", 2)


class _Died(BaseException):
    """As SIGKILL: nothing catches it."""


@pytest.mark.parametrize(("point", "left"), [("page:before-commit", 1), ("page:after-commit", 2)])
@pytest.mark.django_db(transaction=True)
def test_the_next_page_is_committed_with_its_page(
    account: Account, source: ConnectedSource, monkeypatch: pytest.MonkeyPatch, point: str, left: int
) -> None:
    account.list("companies", item("company:1"), item("company:2"), size=1)
    job = start_sync(source)
    message = pgmq.read_message()
    assert message is not None

    def die(name: str) -> None:
        if name == point:
            raise _Died

    monkeypatch.setattr(failpoints, "failpoint", die)
    with pytest.raises(_Died):
        page_worker.run_page(message)

    job.refresh_from_db()
    assert (job.page, len(execute(f"SELECT 1 FROM {TABLE}", {}))) == (left - 1, left)


def _documents(source: ConnectedSource) -> set[Any]:
    return set(Document.objects.filter(user_id=source.user_id).values_list("pk", flat=True))


def test_a_pdf_is_imported_once_a_version_and_deleted_with_its_record(
    account: Account, source: ConnectedSource, model: SpyEmbedder
) -> None:
    account.files["deal:1"] = text_pdf("first")
    account.list("deals", item("deal:1", 1, is_pdf=True))
    run_sync(source)
    run_sync(source)
    first = _documents(source)
    assert account.downloads == ["deal:1"]
    assert first == {row(source, "deal:1").upload_document_id}
    assert model.texts == []

    account.files["deal:1"] = text_pdf("second")
    account.list("deals", item("deal:1", 2, is_pdf=True))
    run_sync(source)
    second = _documents(source)
    assert second == {row(source, "deal:1").upload_document_id}
    assert not first & second

    account.list("deals")
    run_sync(source)
    assert not _documents(source)


def test_an_interrupted_deletion_is_completed_by_the_periodic_task(account: Account, source: ConnectedSource) -> None:
    account.files["deal:1"] = text_pdf("first")
    account.list("deals", item("deal:1", is_pdf=True))
    run_sync(source)
    # What a worker leaves that dies between the tombstone's commit and the withdrawal.
    SourceDocument.objects.filter(source=source).update(deleted_at="2026-11-01T00:00Z")
    left = _documents(source)

    swept = [orphaned_imports.withdraw_due_orphans(), orphaned_imports.withdraw_due_orphans()]

    assert (len(left), _documents(source), swept) == (1, set(), [1, 0])
    run_sync(source)
    assert account.downloads == ["deal:1", "deal:1"]
    assert len(_documents(source)) == 1


def test_a_refused_pdf_fails_alone(account: Account, source: ConnectedSource, settings: Any) -> None:
    settings.MAX_FILE_BYTES = 10
    account.files["deal:1"] = text_pdf("first")
    account.list("deals", item("deal:1", is_pdf=True), item("deal:2"))

    job = run_sync(source)

    assert stored_rows(source).keys() == {"deal:2"}
    assert (job.items_failed, len(job.error_details)) == (1, 1)
