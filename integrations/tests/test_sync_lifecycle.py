"""Lifecycle of a sync, records that it deletes, and the purge of a disconnected source."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.errors import ApiError
from integrations import disconnect
from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, SourceDocument, VaultToken
from integrations.providers.interface import Page
from integrations.records import tombstones
from integrations.sync import lifecycle, page_worker, pgmq
from integrations.tests.fake_provider.embedder import SpyEmbedder
from integrations.tests.fake_provider.rest import Account
from integrations.tests.sync_helpers import (
    DELTA,
    FORGET,
    FULL,
    client,
    item,
    row,
    run_page,
    run_sync,
    start_sync,
    stored_rows,
)
from jobs.cluster import shared_state
from jobs.outcomes import Wait
from testing.concurrency import run_concurrently

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(model: SpyEmbedder) -> None:
    """Each test asks the model that remembers."""


def test_a_source_has_one_sync_at_a_time(source: ConnectedSource) -> None:
    start_sync(source)

    with pytest.raises(ApiError) as refused:
        start_sync(source)

    assert (refused.value.code, refused.value.status) == ("SYNC_ALREADY_ACTIVE", 409)


@pytest.mark.parametrize("status", ["error", "disconnected"])
def test_nothing_is_fetched_from_a_source_that_is_not_active(source: ConnectedSource, status: str) -> None:
    ConnectedSource.objects.update(status=status)

    with pytest.raises(ApiError) as refused:
        start_sync(source)

    assert (refused.value.code, refused.value.status) == ("SOURCE_NOT_ACTIVE", 409)
    assert not pgmq.has_messages()


def test_the_first_sync_is_a_full_one(source: ConnectedSource) -> None:
    assert start_sync(source, DELTA).kind == FULL


def test_a_source_that_is_gone_is_not_found(source: ConnectedSource) -> None:
    ConnectedSource.objects.all().delete()

    with pytest.raises(ApiError) as refused:
        start_sync(source)

    assert refused.value.code == "NOT_FOUND"


@pytest.mark.django_db(transaction=True)
def test_of_two_concurrent_starts_one_is_refused(source: ConnectedSource) -> None:
    def attempt() -> str:
        try:
            return start_sync(source).kind
        except ApiError as refused:
            return refused.code

    assert sorted(run_concurrently(attempt, attempt)) == ["SYNC_ALREADY_ACTIVE", "full_sync"]


def test_a_failed_sync_stays_failed(account: Account, source: ConnectedSource) -> None:
    job = start_sync(source)

    assert lifecycle.fail_sync(job.pk, "SOME_CODE")
    assert not lifecycle.fail_sync(job.pk, "ANOTHER")

    run_page()
    job.refresh_from_db()
    assert (job.status, job.error_message) == ("failed", "SOME_CODE")
    assert job.finished_at is not None
    assert start_sync(source).status == "queued"


def test_a_full_sync_deletes_unseen_records(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"), item("company:2"))
    account.list("deals", item("deal:1", company="company:1", amount=3), item("deal:2", company="company:1", amount=4))
    run_sync(source)

    account.list("companies", item("company:1"))
    account.list("deals", item("deal:1", company="company:1", amount=3))
    job = run_sync(source)

    gone = row(source, "company:2")
    assert gone.deleted_at is not None
    assert (gone.text, gone.title, gone.raw_payload, gone.facts, gone.embedding) == ("", "", {}, {}, None)
    assert client(source).key_facts == {"deals": ["deal:1"], "total": 3}
    assert not ClientIntelligence.objects.filter(external_id="company:2").exists()
    assert job.items_deleted == 2


def test_a_large_source_is_checked_in_slices(
    account: Account, source: ConnectedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tombstones, "SLICE", 3)
    account.list("companies", *[item(f"company:{n}") for n in range(10)])
    run_sync(source)

    account.list("companies", item("company:4"))
    job = run_sync(source)

    assert {id for id, each in stored_rows(source).items() if each.deleted_at is None} == {"company:4"}
    assert job.items_deleted == 9


def test_a_capped_listing_deletes_nothing_of_its_type(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"), item("company:2"))
    account.list("deals", item("deal:1"), item("deal:2"))
    run_sync(source)

    account.list("companies", item("company:1"), capped=True)
    account.list("deals", item("deal:1"))
    run_sync(source)

    source.refresh_from_db()
    assert {id for id, each in stored_rows(source).items() if each.deleted_at} == {"deal:2"}
    assert source.cursor == {"companies": 1, "deals": 1}


def test_a_delta_deletes_reported_deletions_only(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"), item("company:2"))
    account.list("deals", item("deal:1", company="company:1", amount=3))
    run_sync(source)

    account.list("deals+", item("deal:1", 1, deleted=True), item("deal:9", 1, deleted=True))
    job = run_sync(source, DELTA)

    assert {id for id, each in stored_rows(source).items() if each.deleted_at} == {"deal:1"}
    assert client(source).key_facts == {"deals": [], "total": 0}
    assert job.items_deleted == 1


def test_a_deletion_older_than_the_record_is_ignored(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1", 5))
    run_sync(source)

    account.list("companies+", item("company:1", 4, deleted=True))
    run_sync(source, DELTA)

    assert row(source, "company:1").deleted_at is None


def test_only_a_newer_version_revives_a_tombstone(
    account: Account, source: ConnectedSource, model: SpyEmbedder
) -> None:
    account.list("companies", item("company:1", 1, name="Acme"))
    run_sync(source)
    account.pages["companies+"] = [
        Page([item("company:1", None, deleted=True)], next_page="1"),
        Page([item("company:1", 1, name="Acme")]),
    ]
    run_sync(source, DELTA)
    assert row(source, "company:1").deleted_at is not None
    assert not ClientIntelligence.objects.filter(source=source).exists()

    account.list("companies+", item("company:1", 2, name="Acme"))
    run_sync(source, DELTA)

    back = row(source, "company:1")
    assert (back.deleted_at, back.text) == (None, "invented.company Acme")
    assert back.embedding is not None
    assert client(source).client_name == "Acme"


def test_a_record_that_was_restored_unchanged_comes_back_with_the_next_sync(
    account: Account, source: ConnectedSource
) -> None:
    account.list("companies", item("company:1", 1))
    run_sync(source)
    account.list("companies")
    run_sync(source)
    assert row(source, "company:1").deleted_at is not None

    account.list("companies", item("company:1", 1))
    run_sync(source)

    assert row(source, "company:1").deleted_at is None


def test_an_interrupted_deletion_of_unseen_records_continues(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"))
    run_sync(source)
    account.list("companies")
    start_sync(source)
    run_page()
    run_page()
    message = pgmq.read_message()
    assert message is not None
    shared_state.request_stop()
    try:
        with pytest.raises(Wait):
            page_worker.run_page(message)
    finally:
        shared_state.start_cluster()

    page_worker.run_page(message)

    assert row(source, "company:1").deleted_at is not None
    assert IngestionJob.objects.order_by("created_at").last().status == "completed"  # type: ignore[union-attr]


def test_a_purge_deletes_everything_of_its_source_and_nothing_else(
    account: Account, source: ConnectedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnect, "PURGED_AT_ONCE", 2)
    other = ConnectedSource.objects.create(user_id=source.user_id, provider="hubspot", account="second")
    account.list("companies", *[item(f"company:{n}") for n in range(5)])
    run_sync(source)
    run_sync(other)
    VaultToken.objects.create(user_id=source.user_id, source_id=source.pk, kind="access", secret=b"x")
    ClientIntelligence.objects.create(user_id=source.user_id, client_name="Own")
    ConnectedSource.objects.filter(pk=source.pk).update(status="disconnected")

    start_sync(source, FORGET)
    rounds = 0
    while run_page():
        rounds += 1

    assert rounds == 4
    assert not ConnectedSource.objects.filter(pk=source.pk).exists()
    assert not IngestionJob.objects.filter(source_id=source.pk).exists()
    assert not VaultToken.objects.exists()
    assert SourceDocument.objects.count() == 5
    assert ClientIntelligence.objects.count() == 6
    assert not pgmq.has_messages()


def test_a_purge_ends_the_active_sync(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"))
    running = start_sync(source)
    ConnectedSource.objects.update(status="disconnected")

    start_sync(source, FORGET)

    running.refresh_from_db()
    assert (running.status, running.error_message) == ("failed", "SOURCE_DISCONNECTED")
    with pytest.raises(ApiError):
        start_sync(source, FORGET)
    while run_page():
        pass
    assert not SourceDocument.objects.exists()
    assert not ConnectedSource.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_row_of_a_purged_source_is_refused(source: ConnectedSource) -> None:
    ConnectedSource.objects.all().delete()

    with pytest.raises(IntegrityError), transaction.atomic():
        SourceDocument.objects.create(
            user_id=source.user_id, source_id=source.pk, external_id="company:1", document_type="x", raw_payload={}
        )


PLANS: list[tuple[str, dict[str, Any]]] = [
    (tombstones.UNSEEN, {"after": "", "upto": "x", "types": None}),
    (tombstones.UPTO, {"after": "", "most": 500}),
    (tombstones.NAMED, {"ids": ["company:1"], "times": [None]}),
    (disconnect.PURGE, {"most": 1000}),
]


@pytest.mark.parametrize(("sql", "params"), PLANS, ids=["unseen", "slice", "named", "forget"])
def test_a_source_is_read_by_its_index(
    source: ConnectedSource, never_vacuumed: None, sql: str, params: dict[str, Any]
) -> None:
    job = start_sync(source)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # as workers do
        cursor.execute(f"EXPLAIN {sql}", {"source": source.pk, "job": job.pk, **params})
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "Seq Scan" not in plan
    assert "uq_source_document" in plan
