"""The writer of records: texts embedded once, clients in any order, never an older version."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from itertools import permutations
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pytest
from django.db import OperationalError, connection, connections, transaction

from integrations import disconnect
from integrations.disconnect import GrantOutcome
from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, SourceDocument
from integrations.providers.interface import Page, RawItem, provider_module
from integrations.records import drafts, writer
from integrations.records.jsonb_codec import load_json
from integrations.sync import lifecycle, page_worker, pgmq
from integrations.sync.pgmq import Message
from integrations.tests.fake_provider.embedder import SpyEmbedder
from integrations.tests.fake_provider.mapping import BUG, UNREADABLE
from integrations.tests.fake_provider.rest import Account
from integrations.tests.sync_helpers import (
    BEGAN,
    DELTA,
    client,
    client_values,
    item,
    row,
    run_page,
    run_sync,
    start_sync,
    stored_rows,
)
from jobs.claims import ClaimLost
from jobs.outcomes import Wait
from testing.cluster import wait_until
from testing.personas import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(model: SpyEmbedder) -> None:
    """Each test asks the model that remembers."""


def test_a_record_is_stored_verbatim_with_its_text_and_vector(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1", name="Acme", nested={"a": [1, None, "x\x00y"]}, amount=2))

    run_sync(source)

    actual = row(source, "company:1")
    assert (actual.document_type, actual.title, actual.text) == ("invented.company", "Acme", "invented.company Acme")
    assert actual.raw_payload == {"name": "Acme", "nested": {"a": [1, None, "xy"]}, "amount": 2}
    assert actual.user_id == source.user_id
    assert actual.embedding is not None
    assert actual.embedding_model == "remembering@1"
    assert actual.source_updated_at == BEGAN


def test_text_is_embedded_only_when_it_changes(account: Account, source: ConnectedSource, model: SpyEmbedder) -> None:
    account.list("companies", item("company:1", 0, name="Acme", text="one"))
    run_sync(source)
    run_sync(source)
    assert sorted(model.texts) == ["Client: Acme.", "one"]

    account.list("companies", item("company:1", 1, name="Acme", text="two"))
    changed = run_sync(source)
    account.list("companies", item("company:1", 2, name="Acme", text="  two\x00 \n", more="of another kind"))
    touched = run_sync(source)

    assert sorted(model.texts) == ["Client: Acme.", "one", "two"]
    assert (changed.items_embedded, touched.items_embedded) == (1, 0)
    assert touched.items_written == 1
    assert row(source, "company:1").raw_payload["more"] == "of another kind"


def test_another_model_reembeds(account: Account, source: ConnectedSource, settings: Any) -> None:
    account.list("companies", item("company:1", name="Acme"))
    run_sync(source)

    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    job = run_sync(source)

    assert row(source, "company:1").embedding_model == "instant@1"
    assert client(source).embedding_model == "instant@1"
    assert job.items_embedded == 1


def test_equal_texts_are_bought_once_for_each_tenant(
    account: Account, source: ConnectedSource, ben: Person, model: SpyEmbedder
) -> None:
    account.list("deals", item("deal:1", text="same"), item("deal:2", text="same "))
    run_sync(source)
    account.list("deals", *account.pages["deals"][0].items, item("deal:3", text="same"))
    run_sync(source)
    assert model.texts == ["same"]
    vectors = {each.embedding_text_sha256: tuple(each.embedding) for each in stored_rows(source).values()}
    assert len(vectors) == 1

    other = ConnectedSource.objects.create(user_id=ben.id, provider="hubspot")
    run_sync(other)

    assert model.texts == ["same", "same"]


def test_texts_are_truncated_and_embedded_in_batches(
    account: Account, source: ConnectedSource, model: SpyEmbedder, settings: Any
) -> None:
    settings.EMBEDDING_BATCH_SIZE = 3
    long = "word " * 20_000
    account.list("deals", *[item(f"deal:{n}", text=f"text {n}") for n in range(7)], item("deal:7", text=long))

    run_sync(source)

    assert [len(call) for call in model.calls] == [3, 3, 2]
    assert row(source, "deal:7").text == long.strip()
    assert max(map(len, model.texts)) <= 32_000


def test_a_second_sync_adds_no_row_and_advances_updated_at(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1", name="Acme"))
    account.list("deals", item("deal:1", company="company:1", amount=5))
    run_sync(source)
    before, clients = stored_rows(source), client_values(source)

    job = run_sync(source)

    after = stored_rows(source)
    assert after.keys() == before.keys()
    assert all(after[id].updated_at > before[id].updated_at and after[id].pk == before[id].pk for id in before)
    assert client_values(source) == clients
    assert (job.items_seen, job.items_unchanged, job.items_written, job.items_embedded) == (2, 2, 0, 0)


def test_an_older_version_never_overwrites_a_newer_one(
    account: Account, source: ConnectedSource, model: SpyEmbedder
) -> None:
    account.list("companies", item("company:1", 5, name="New"))
    run_sync(source)

    account.list("companies", item("company:1", 4, name="Old"))
    job = run_sync(source)

    assert row(source, "company:1").title == client(source).client_name == "New"
    assert row(source, "company:1").seen_in == job.pk
    assert not any("Old" in text for text in model.texts)


def test_a_record_that_changes_during_the_sync_ends_as_its_newest_version(
    account: Account, source: ConnectedSource
) -> None:
    account.pages["companies"] = [
        Page([item("company:1", 0, name="One"), item("company:2", 0)], next_page="1"),
        Page([item("company:1", 2, name="Three"), item("company:1", 1, name="Two")], next_page="2"),
        Page([item("company:1", 1, name="Two")]),
    ]

    job = run_sync(source)

    assert row(source, "company:1").title == client(source).client_name == "Three"
    assert job.items_seen == 5


def _versions() -> list[RawItem]:
    return [
        item("company:1", 1, name="Acme", note="first"),
        item("company:1", 2, name="Acme Inc", note="second"),
        item("company:2", 1, name="Other"),
        item("deal:1", 1, company="company:1", amount=10),
        item("deal:1", 2, company="company:2", amount=11),  # it has moved
        item("deal:2", 1, company="company:1", amount=5),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_clients_are_the_same_whatever_order_the_records_come_in(
    account: Account, source: ConnectedSource, seed: int
) -> None:
    orders = list(permutations(range(6)))
    order = orders[seed * len(orders) // 12 + seed]

    account.list("companies", *[_versions()[at] for at in order], size=1)
    run_sync(source)

    first, second = client_values(source)
    assert first[:4] == ("company:1", "Acme Inc", "second", {"deals": ["deal:2"], "total": 5})
    assert second[:4] == ("company:2", "Other", None, {"deals": ["deal:1"], "total": 11})
    assert None not in (first[5], second[5])


def test_a_deal_does_not_embed_its_company_again(account: Account, source: ConnectedSource, model: SpyEmbedder) -> None:
    account.list("companies", item("company:1", name="Acme"))
    run_sync(source)
    model.clear()

    account.list("deals", item("deal:1", company="company:1", amount=5))
    run_sync(source)

    assert model.texts == ["invented.deal deal:1"]
    assert client(source).key_facts == {"deals": ["deal:1"], "total": 5}
    assert client(source).embedding is not None


def test_a_tenants_own_rows_are_never_touched(account: Account, source: ConnectedSource) -> None:
    own = ClientIntelligence.objects.create(user_id=source.user_id, client_name="Acme", external_id="company:1")
    before = ClientIntelligence.objects.get(pk=own.pk).updated_at
    account.list("companies", item("company:1", name="Acme Inc"))

    run_sync(source)
    account.list("companies")
    run_sync(source)

    assert not ClientIntelligence.objects.filter(source=source).exists()
    left = ClientIntelligence.objects.get(pk=own.pk)
    assert (left.source_id, left.client_name, left.text, left.key_facts) == (None, "Acme", "", {})
    assert left.updated_at == before


def test_an_unreadable_or_unstorable_record_fails_alone(account: Account, source: ConnectedSource) -> None:
    bad = RawItem("company:2", "invented.company", {"no": "name"}, BEGAN, BEGAN)
    odd = item("company:3", amount=Decimal("NaN"))
    account.list("companies", item("company:1"), bad, odd, item("company:\x00"), item("company:4"))

    job = run_sync(source)

    assert stored_rows(source).keys() == {"company:1", "company:4"}
    assert (job.status, job.items_seen, job.items_written, job.items_failed) == ("completed", 5, 2, 3)
    assert {(each["external_id"], each["code"]) for each in job.error_details} == {
        ("company:2", "ITEM_UNREADABLE"), ("company:3", "ITEM_UNREADABLE"), ("company:", "ITEM_UNREADABLE"),
    }  # fmt: skip


def test_a_number_refused_by_the_database_fails_its_record_alone(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1", weight=load_json("1.5E+200000")), item("company:2"))

    job = run_sync(source)

    assert stored_rows(source).keys() == {"company:2"}
    assert [each["code"] for each in job.error_details] == ["ITEM_NOT_STORED"]


def test_each_record_of_a_batch_has_the_vector_of_its_text(
    account: Account, source: ConnectedSource, model: SpyEmbedder
) -> None:
    account.list("companies", *[item(f"company:{n}", text=f"{n}" if n % 3 else "") for n in range(40)])

    run_sync(source)

    actual: list[Any] = [*stored_rows(source).values(), *ClientIntelligence.objects.filter(source=source)]
    assert len(actual) == 80
    assert [each.embedding is None for each in actual] == [each.text == "" for each in actual]
    for each in (each for each in actual if each.text):
        assert np.allclose(each.embedding, model.embed([each.text])[0], atol=1e-6)


@pytest.mark.parametrize("at", [0, 7, 18, 39])
def test_a_bad_record_of_a_batch_fails_alone(account: Account, source: ConnectedSource, at: int) -> None:
    """Whoever refuses it: the database, or the provider's own module when it is told of its children."""
    items = [item(f"company:{n}") for n in range(40)]
    items[at] = item(f"company:{at}", weight=load_json("1.5E+200000"))
    account.list("companies", *items)
    deals = [item(f"deal:{n}", company=f"company:{(at + 1) % 40}", amount=1) for n in range(40)]
    deals[at] = item(f"deal:{at}", company=f"company:{(at + 1) % 40}", name=UNREADABLE, amount=1000)
    account.list("deals", *deals)

    job = run_sync(source)

    expected = {each.external_id for each in [*items, *deals]} - {f"company:{at}", f"deal:{at}"}
    assert stored_rows(source).keys() == expected
    assert client(source, f"company:{(at + 1) % 40}").key_facts["total"] == 39
    assert (job.items_seen, job.items_written, job.items_failed) == (80, 78, 2)
    assert {(each["external_id"], each["code"]) for each in job.error_details} == {
        (f"company:{at}", "ITEM_NOT_STORED"), (f"deal:{at}", "ITEM_UNREADABLE"),
    }  # fmt: skip


def test_few_large_records_are_written_together(account: Account, source: ConnectedSource, monkeypatch: Any) -> None:
    provider = provider_module(source.provider)
    sizes = enumerate((1, 900, 90, 5_000, 1, 1))
    created = [drafts.make_draft(provider, item(f"deal:{n}", text="t" * size)) for n, size in sizes]
    monkeypatch.setattr(writer, "MOST_CHARS", 3_000)

    groups = [[each.external_id for each in group] for group in writer.transaction_groups(created)]

    assert groups == [["deal:0", "deal:1", "deal:2"], ["deal:3"], ["deal:4", "deal:5"]]


def test_a_text_refused_by_the_model_lacks_only_its_vector(
    account: Account, source: ConnectedSource, model: SpyEmbedder
) -> None:
    model.poison = "poison"
    account.list("deals", *[item(f"deal:{n}", text="poison" if n == 3 else f"text {n}") for n in range(8)])

    job = run_sync(source)

    lacking = {id for id, each in stored_rows(source).items() if each.embedding is None}
    assert lacking == {"deal:3"}
    assert (job.items_written, job.items_failed) == (8, 0)
    assert [(each["external_id"], each["code"]) for each in job.error_details] == [("deal:3", "TEXT_REFUSED")]


def test_vectors_bought_before_the_budget_ended_are_kept(
    account: Account, source: ConnectedSource, model: SpyEmbedder, settings: Any
) -> None:
    settings.EMBEDDING_BATCH_SIZE = 2
    account.list("companies")
    account.list("deals", *[item(f"deal:{n}", text=f"text {n}") for n in range(6)])
    start_sync(source)
    run_page()
    model.calls_left = 2
    message = pgmq.read_message()
    assert message is not None

    with pytest.raises(Wait):
        page_worker.run_page(message)

    assert len(stored_rows(source)) == 4
    model.calls_left = None
    page_worker.run_page(message)
    assert sorted(model.texts) == [f"text {n}" for n in range(6)]


def test_a_record_and_its_client_are_written_together_or_not_at_all(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"))
    account.list("deals", item("deal:1"), item("deal:2", company="company:1", name=BUG))
    start_sync(source)
    run_page()
    message = pgmq.read_message()
    assert message is not None

    with pytest.raises(RuntimeError):
        page_worker.run_page(message)

    assert stored_rows(source).keys() == {"company:1"}  # of the records that are written together none
    assert client(source).key_facts["deals"] == []
    assert pgmq.has_messages()


def test_a_lost_message_lease_writes_nothing(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"))
    start_sync(source)
    message = pgmq.read_message()
    assert message is not None

    def overtake() -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pgmq.q_ingestion_queue SET read_ct = read_ct + 1")

    account.before = overtake

    with pytest.raises(ClaimLost):
        page_worker.run_page(message)

    assert not stored_rows(source)


def test_a_sync_that_was_given_up_writes_nothing_more(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1"))
    job = start_sync(source)
    account.before = lambda: lifecycle.fail_sync(job.pk, "SOME_CODE")

    with pytest.raises(ClaimLost):
        run_page()

    assert not stored_rows(source)


@pytest.mark.django_db(transaction=True)
def test_ending_a_sync_waits_for_its_writes(account: Account, source: ConnectedSource) -> None:
    """Forgetting begins with ending the sync: it never deletes rows that a worker is about to write, or has locked."""
    account.list("companies", item("company:1"), item("company:2"))
    run_sync(source)
    start_sync(source)

    with ThreadPoolExecutor(1) as elsewhere, transaction.atomic():
        SourceDocument.objects.select_for_update().get(external_id="company:2")
        working = elsewhere.submit(_on_a_connection_of_its_own)
        wait_until(_somebody_waits, seconds=30)
        with pytest.raises(OperationalError), transaction.atomic():
            IngestionJob.objects.select_for_update(nowait=True, no_key=True).get(status="running")
        transaction.set_rollback(True)

    assert working.result() is not None


@pytest.mark.django_db(transaction=True)
def test_a_disconnect_waits_for_writes_in_progress(account: Account, source: ConnectedSource) -> None:
    """A new record's foreign key asks for the source at the commit: by then it must not be somebody else's."""
    account.list("companies", item("company:1"), item("company:2"))
    run_sync(source)
    account.list("companies", item("company:2", text="z"), item("company:3", text="q"))
    job = start_sync(source)

    with ThreadPoolExecutor(2) as elsewhere, transaction.atomic():
        SourceDocument.objects.select_for_update().get(external_id="company:2")
        working = elsewhere.submit(_on_a_connection_of_its_own)
        wait_until(_somebody_waits, seconds=30)
        ending = elsewhere.submit(_disconnect, source)
        wait_until(lambda: ending.done() or _waiting() == 2, seconds=30)
        transaction.set_rollback(True)

    assert working.result() is not None
    assert ending.result()
    source.refresh_from_db()
    job.refresh_from_db()
    assert (source.status, job.status, job.error_message) == ("disconnected", "failed", "SOURCE_DISCONNECTED")
    assert row(source, "company:3").text == "q"


@pytest.mark.django_db(transaction=True)
def test_records_are_written_with_the_source_locked_before_the_sync(account: Account, source: ConnectedSource) -> None:
    """So do those who end a sync."""
    account.list("companies", item("company:1"))
    start_sync(source)

    with ThreadPoolExecutor(1) as elsewhere, transaction.atomic():
        ConnectedSource.objects.select_for_update().get(pk=source.pk)
        working = elsewhere.submit(_on_a_connection_of_its_own)
        wait_until(_somebody_waits, seconds=30)
        assert IngestionJob.objects.select_for_update(nowait=True, no_key=True).get(status="running")
        transaction.set_rollback(True)

    assert working.result() is not None
    assert row(source, "company:1")


def _on_a_connection_of_its_own() -> Message | None:
    try:
        return run_page()
    finally:
        connections.close_all()


def _disconnect(source: ConnectedSource) -> GrantOutcome:
    try:
        return disconnect.disconnect_source(source, by=None, reason="x")
    finally:
        connections.close_all()


def _somebody_waits() -> bool:
    return _waiting() > 0


def _waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])


def _stream(message: Message) -> str | None:
    return dict(enumerate(("companies", "deals"))).get(message.body.stream)


def _round_trips(message: Message) -> int:
    """Count the trips to the database: libpq's own protocol of what it sends."""
    with TemporaryFile("r+") as protocol:
        wire = connection.connection.pgconn
        wire.trace(protocol.fileno())
        try:
            page_worker.run_page(message)
        finally:
            wire.untrace()
        protocol.seek(0)
        return len(re.findall(r"\tF\t\d+\t(?:Query|Sync)\b", protocol.read()))


@pytest.mark.parametrize(
    ("stream", "company", "each"),
    [("deals", None, 3), ("deals", "company:9", 5), ("companies", None, 5)],
    ids=["of no client", "of a client", "clients"],
)
def test_thirty_two_records_are_written_in_a_few_queries(
    account: Account, source: ConnectedSource, stream: str, company: str | None, each: int
) -> None:
    """Begin, write and commit; and of clients their records and their rows."""
    account.list("companies", item("company:9"))
    run_sync(source)
    trips = []
    for sync_no, number in enumerate((32, 32, 96)):  # the first prepares the statements and buys the text
        kind = {"deals": "deal", "companies": "company"}[stream]
        ids = [f"{kind}:{sync_no}-{n}" for n in range(number)]
        account.list(stream, *[item(id, company=company, name="Acme", text="the same") for id in ids])
        start_sync(source)
        while message := pgmq.read_message():
            if _stream(message) == stream:
                trips.append(_round_trips(message))
            else:
                page_worker.run_page(message)
            pgmq.delete_message(message)

    assert round((trips[2] - trips[1]) / 2) == each  # psycopg lets go of a prepared statement now and then


def test_a_delta_that_touches_the_parent_only_recomputes_it(account: Account, source: ConnectedSource) -> None:
    account.list("companies", item("company:1", 0, name="Acme"), item("company:2", 0, name="Other"))
    account.list("deals", item("deal:1", 0, company="company:1", amount=3))
    run_sync(source)

    account.list("deals+", item("deal:1", 1, company="company:2", amount=4))
    run_sync(source, DELTA)

    assert client(source, "company:1").key_facts == {"deals": [], "total": 0}
    assert client(source, "company:2").key_facts == {"deals": ["deal:1"], "total": 4}
    assert row(source, "deal:1").source_updated_at == BEGAN + timedelta(hours=1)


def test_a_client_is_locked_while_it_is_recomputed(account: Account, source: ConnectedSource) -> None:
    account.list("deals", item("deal:1", company="company:1"), item("deal:2"))

    run_sync(source)

    with connection.cursor() as cursor:  # the test's own transaction still has it
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (1,)


def test_records_of_another_source_are_not_changed(account: Account, source: ConnectedSource) -> None:
    other = ConnectedSource.objects.create(user_id=source.user_id, provider="hubspot", account="second")
    account.list("companies", item("company:1", name="Mine"))
    run_sync(other)

    account.list("companies", item("company:1", name="Theirs"))
    run_sync(source)

    assert row(other, "company:1").title == client(other).client_name == "Mine"
    assert SourceDocument.objects.count() == 2
