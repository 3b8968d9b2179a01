"""Side queues: time slices of jobs and side queues, wake-ups, and failing queues."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django_q.conf import Conf
from pytest_django import Settings

from jobs import side_queues, worker
from jobs.cluster import maintenance, shared_state
from jobs.cluster.notify_broker import NotifyBroker
from jobs.models import UploadJob
from testing import fake_side_queue
from testing.cluster import create_jobs
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def side_queue(settings: Settings) -> Iterator[fake_side_queue.FakeSideQueue]:
    """Configure a side queue whose messages take 10 ms each."""
    settings.JOBS_SIDE_QUEUES, settings.JOBS_PERIODIC_TASKS = ["testing.fake_side_queue"], []
    settings.JOBS_DRAIN_SECONDS = 0.5
    settings.JOBS_ACTIVE_PER_USER = 1
    fake_side_queue.fake_queue = fake_side_queue.FakeSideQueue()
    yield fake_side_queue.fake_queue
    fake_side_queue.fake_queue = fake_side_queue.FakeSideQueue()


@pytest.fixture
def broker() -> Iterator[NotifyBroker]:
    broker = NotifyBroker()
    yield broker
    broker.close()


def count_done() -> int:
    return UploadJob.objects.filter(state="done").count()


def test_a_full_side_queue_does_not_starve_the_jobs(
    side_queue: fake_side_queue.FakeSideQueue, settings: Settings
) -> None:
    side_queue.due = 10_000
    JobFactory.create()

    worker.drain()

    assert count_done() == 1
    assert 0 < side_queue.worked <= settings.JOBS_DRAIN_SECONDS / fake_side_queue.SECONDS_PER_ITEM + 1


@pytest.mark.slow
def test_endless_jobs_do_not_starve_a_side_queue(side_queue: fake_side_queue.FakeSideQueue) -> None:
    side_queue.due = 3
    with connection.cursor() as cursor:
        create_jobs(cursor, 3_000, "noop")

    worker.drain()

    assert side_queue.worked == 3
    assert 0 < count_done() < 3_000


@pytest.mark.slow
def test_a_drain_interrupted_by_its_time_slice_notifies_again(
    side_queue: fake_side_queue.FakeSideQueue, broker: NotifyBroker
) -> None:
    assert broker.dequeue() is None  # it listens from now on
    side_queue.due, side_queue.hidden = 10_000, True

    worker.drain()

    assert broker.wait_for_notification()


@pytest.mark.slow
def test_a_complete_drain_does_not_notify_again(
    side_queue: fake_side_queue.FakeSideQueue, broker: NotifyBroker
) -> None:
    assert broker.dequeue() is None
    side_queue.due = 2
    JobFactory.create()

    worker.drain()

    assert not broker.wait_for_notification()


def test_the_broker_counts_jobs_and_side_queues_up_to_the_workers(
    side_queue: fake_side_queue.FakeSideQueue, broker: NotifyBroker, ana: UUID, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Conf, "WORKERS", 3)
    side_queue.due = 1
    JobFactory.create(user_id=ana)
    assert len(broker.dequeue() or []) == 2

    side_queue.due = 50

    assert len(broker.dequeue() or []) == 3


def test_a_cluster_is_idle_when_jobs_and_side_queues_are(side_queue: fake_side_queue.FakeSideQueue) -> None:
    assert maintenance.is_idle()
    side_queue.due = 1
    assert not maintenance.is_idle()
    side_queue.due = 0
    JobFactory.create()
    assert not maintenance.is_idle()


@pytest.mark.slow
def test_maintenance_replaces_a_lost_notification_of_a_side_queue(
    side_queue: fake_side_queue.FakeSideQueue, broker: NotifyBroker, monkeypatch: Any
) -> None:
    monkeypatch.setattr(maintenance, "TICK_SECONDS", 0.0)
    assert broker.dequeue() is None
    shared_state.record_claim_attempt()
    maintenance.MaintenanceLoop().tick()
    assert not broker.wait_for_notification()
    side_queue.due = 1

    maintenance.MaintenanceLoop().tick()

    assert broker.wait_for_notification()


def test_a_failing_side_queue_does_not_stop_the_jobs(
    side_queue: fake_side_queue.FakeSideQueue, caplog: pytest.LogCaptureFixture
) -> None:
    side_queue.error = ValueError("somebody's text")
    JobFactory.create()

    worker.drain()

    assert count_done() == 1
    assert "A side queue failed." in caplog.text
    assert "somebody's text" not in caplog.text


def test_a_stopping_cluster_starts_no_work(side_queue: fake_side_queue.FakeSideQueue) -> None:
    shared_state.request_stop()
    try:
        side_queue.due = 1
        JobFactory.create()

        worker.drain()
    finally:
        shared_state.start_cluster()
        shared_state._main.value = 0.0

    assert (side_queue.worked, count_done()) == (0, 0)


def test_counting_claimable_work_stops_at_the_limit(side_queue: fake_side_queue.FakeSideQueue) -> None:
    side_queue.due = 50

    connection.ensure_connection()
    raw: Any = connection.connection
    with psycopg.Cursor(raw) as cursor:
        assert side_queues.find_work(cursor, most=0) == (0, None)
        assert side_queues.find_work(cursor, most=2) == (2, None)
    assert side_queue.count_calls == 1
