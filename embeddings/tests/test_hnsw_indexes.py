"""A large tenant's own indexes: sealed by time, made and removed by one process at a time, whole after any death."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models.functions import Now

from embeddings import hnsw_indexes
from embeddings.models import DocumentChunk, PostingSegment, VectorIndex
from embeddings.search.vector_search import Scope, nearest_chunks, nearest_chunks_exact
from testing.concurrency import run_concurrently
from testing.factories import vectors
from testing.factories.vectors import LIVE_MODEL, StoredVectors, store_vectors

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = (LIVE_MODEL.model, LIVE_MODEL.version)
ROWS = vectors.generate_vectors(400)


@pytest.fixture(autouse=True)
def lowered(settings: Any) -> Iterator[None]:
    settings.SEARCH_EXACT_PASSAGES = 50
    yield
    for name in hnsw_indexes._validity():
        hnsw_indexes.drop_index(name)


@pytest.fixture
def large() -> StoredVectors:
    return store_vectors(uuid4(), ROWS[:60])


def seal(user_id: UUID) -> None:
    hnsw_indexes.build_index(user_id, LIVE_MODEL)


def names() -> list[str]:
    """Return the indexes in use; the database has these and no others, all of them valid."""
    used = list(VectorIndex.objects.filter(built_at__isnull=False).order_by("upto").values_list("name", flat=True))
    assert hnsw_indexes._validity() == dict.fromkeys(used, True)
    assert VectorIndex.objects.count() == len(used)
    return used


def finds_everything(user_id: UUID) -> bool:
    scope = Scope(user_id, LIVE_MODEL)
    return all(nearest_chunks(scope, row, 10) == nearest_chunks_exact(scope, row, 10) for row in ROWS[:60:12])


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Run ``work`` in a thread with a connection of its own; what it raised is in the list after the block."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(30)


@contextmanager
def a_writer() -> Iterator[None]:
    """Keep a transaction open that writes passages; every build waits for its end."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE document_chunks IN ROW EXCLUSIVE MODE")
        yield


def building_backend() -> int:
    """Return the server process that builds and waits for a writer."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pid FROM pg_locks WHERE locktype = 'virtualxid' AND NOT granted")
            if row := cursor.fetchone():
                return int(row[0])
        time.sleep(0.01)
    raise TimeoutError


def test_a_tenant_gets_an_index_when_it_outgrows_the_exact_scan(large: StoredVectors) -> None:
    small = store_vectors(uuid4(), ROWS[:50])

    for user_id in (large.user_id, small.user_id):
        seal(user_id)
        seal(user_id)

    (name,) = names()
    assert name.startswith(f"idx_hnsw_chunks_te3s_v1_{large.user_id.hex}_")
    assert len(name) == 63
    assert VectorIndex.objects.get().passages == 60
    assert finds_everything(large.user_id)


def test_segments_are_added_and_then_merged(large: StoredVectors) -> None:
    seen = []
    for at in range(5):
        seal(large.user_id)
        seen.append(names())
        store_vectors(large.user_id, ROWS[60 * at + 60 : 60 * at + 120])
    seal(large.user_id)

    assert [len(held) for held in seen] == [1, 2, 3, 4, 1]
    assert seen[1][0] == seen[0][0]
    assert not set(seen[4]) & set(seen[3])
    assert [index.passages for index in VectorIndex.objects.order_by("upto")] == [300, 60]
    assert finds_everything(large.user_id)


def test_segments_are_merged_to_two_once_a_tenant_grows_no_more(large: StoredVectors) -> None:
    seal(large.user_id)
    for at, passages in enumerate((60, 90, 130)):
        store_vectors(large.user_id, ROWS[60 + 60 * at : 60 + 60 * at + passages])
        seal(large.user_id)
    store_vectors(large.user_id, ROWS[:10])  # in no index

    hnsw_indexes.maintain_indexes()
    grown = names()
    seen = []
    for _ in range(3):
        VectorIndex.objects.update(built_at=Now() - hnsw_indexes.QUIET_TIME)
        hnsw_indexes.maintain_indexes()
        names()
        seen.append([index.passages for index in VectorIndex.objects.order_by("upto")])

    assert len(grown) == 4
    assert seen == [[120, 90, 130], [210, 130], [210, 130]]
    assert finds_everything(large.user_id)


def test_growth_reindexes_each_vector_less_than_ten_times() -> None:
    held: list[VectorIndex] = []
    built = 0
    for _ in range(1000):
        replaced = hnsw_indexes.segments_to_merge(held, 1)
        together = 1 + sum(index.passages for index in replaced)
        held = [*held[: len(held) - len(replaced)], VectorIndex(passages=together)]
        built += together
        assert len(held) <= hnsw_indexes.MAX_SEGMENTS

    assert sum(index.passages for index in held) == 1000
    assert built / 1000 < 10  # 100 and more, if each time all were built into one


def test_killed_build_is_repeated(large: StoredVectors) -> None:
    with a_writer(), meanwhile(lambda: seal(large.user_id)) as raised:
        pid = building_backend()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    left = hnsw_indexes._validity()
    found_meanwhile = finds_everything(large.user_id)

    hnsw_indexes.maintain_indexes()

    assert isinstance(raised[0], OperationalError)
    assert list(left.values()) == [False]
    assert found_meanwhile
    assert names() != list(left)
    assert finds_everything(large.user_id)


def test_orphaned_indexes_and_rows_are_removed(large: StoredVectors) -> None:
    seal(large.user_id)
    store_vectors(large.user_id, ROWS[60:120])
    seal(large.user_id)
    first, second = names()
    VectorIndex.objects.filter(pk=first).delete()
    hnsw_indexes.maintain_indexes()
    assert names() == [second]
    assert finds_everything(large.user_id)

    hnsw_indexes.drop_index(second)
    assert finds_everything(large.user_id)
    hnsw_indexes.maintain_indexes()

    assert VectorIndex.objects.get(pk=names()[0]).passages == 120
    assert finds_everything(large.user_id)


def test_concurrent_builds_create_one_index(large: StoredVectors) -> None:
    run_concurrently(lambda: seal(large.user_id), lambda: seal(large.user_id), hnsw_indexes.maintain_indexes)

    assert len(names()) == 1


def test_older_vector_that_commits_late_is_indexed(large: StoredVectors) -> None:
    moved = vectors.generate_vectors(1, seed=9)[0]
    with ExitStack() as stack, transaction.atomic():
        DocumentChunk.objects.filter(pk=large.chunk_ids[0]).update(embedding=moved, embed_updated_at=Now())
        stack.enter_context(meanwhile(lambda: seal(large.user_id)))  # ends after the transaction
        building_backend()

    index = VectorIndex.objects.get(pk=names()[0])
    assert DocumentChunk.objects.get(pk=large.chunk_ids[0]).embed_updated_at < index.upto  # type: ignore[operator]
    assert nearest_chunks(Scope(large.user_id, LIVE_MODEL), moved, 10)[0].chunk_id == large.chunk_ids[0]
    assert finds_everything(large.user_id)


def test_shrunk_tenant_loses_its_index(large: StoredVectors) -> None:
    seal(large.user_id)
    DocumentChunk.objects.filter(pk__in=large.chunk_ids[:30]).delete()
    hnsw_indexes.maintain_indexes()
    assert len(names()) == 1  # 30 are more than half of what needs none: it neither comes nor goes

    DocumentChunk.objects.all().delete()
    hnsw_indexes.maintain_indexes()

    assert names() == []


def test_dropping_is_limited_to_one_model_of_one_tenant(large: StoredVectors) -> None:
    other = store_vectors(uuid4(), ROWS[:60])
    seal(large.user_id)
    seal(other.user_id)

    hnsw_indexes.drop_indexes(large.user_id, LIVE_MODEL)

    assert [other.user_id.hex in name for name in names()] == [True]
    assert finds_everything(large.user_id)


@pytest.mark.slow
def test_rounds_reach_every_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hnsw_indexes, "TENANTS", 2)
    monkeypatch.setattr(hnsw_indexes, "_round", hnsw_indexes.Round())
    owners = [store_vectors(uuid4(), ROWS[:60]).user_id for _ in range(3)]
    store_vectors(uuid4(), ROWS[:10])

    hnsw_indexes.maintain_indexes()
    half = len(names())
    hnsw_indexes.maintain_indexes()
    hnsw_indexes.maintain_indexes()

    assert half <= 2
    assert {index.user_id for index in VectorIndex.objects.all()} == set(owners)


def test_waiting_builder_gets_the_lock_between_two_builds(large: StoredVectors) -> None:
    store_vectors(uuid4(), ROWS[:60])
    built: list[int] = []

    def wait_and_count() -> None:
        with hnsw_indexes.index_build_lock():
            built.append(VectorIndex.objects.filter(built_at__isnull=False).count())

    with ExitStack() as stack, a_writer():
        stack.enter_context(meanwhile(hnsw_indexes.maintain_indexes))
        building_backend()
        stack.enter_context(meanwhile(wait_and_count))

    assert built == [1]
    assert len(names()) == 2


def test_index_maintenance_runs_in_the_background(large: StoredVectors) -> None:
    with a_writer():
        began = time.monotonic()
        hnsw_indexes.start_maintenance()
        hnsw_indexes.start_maintenance()
        took = time.monotonic() - began
        building_backend()
        (thread,) = [thread for thread in threading.enumerate() if thread.name == hnsw_indexes.THREAD_NAME]
    thread.join(30)

    assert took < 10
    assert len(names()) == 1


def test_build_restores_session_settings_and_refuses_a_transaction(large: StoredVectors) -> None:
    session_settings = "SELECT current_setting('maintenance_work_mem'), current_setting('statement_timeout')"
    with connection.cursor() as cursor:
        cursor.execute(session_settings)
        before = cursor.fetchone()
        seal(large.user_id)
        cursor.execute(session_settings)
        assert cursor.fetchone() == before
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert cursor.fetchone() == (0,)

    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        seal(large.user_id)


def test_longest_tail_counts_what_no_index_covers(large: StoredVectors) -> None:
    assert hnsw_indexes.longest_tail() == 0  # its words are not merged: a small tenant
    PostingSegment.objects.create(user_id=large.user_id, documents=b"", slots=60, rows=0)
    seen = [hnsw_indexes.longest_tail()]

    seal(large.user_id)
    store_vectors(large.user_id, ROWS[60:80])

    assert [*seen, hnsw_indexes.longest_tail()] == [60, 20]
