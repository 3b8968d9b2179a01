"""Queues beside the jobs: both have their turns, the bell counts both, and a broken one keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django_q.conf import Conf
from pytest_django import Settings

from jobs import worker
from jobs.cluster import maintenance, shared_memory, side_queues
from jobs.cluster.broker import NotifyBroker
from jobs.models import UploadJob
from testing import fake_side_queue
from testing.cluster import create_jobs
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def other(settings: Settings) -> Iterator[fake_side_queue.FakeSideQueue]:
    """A queue beside, whose pieces take 10 ms each and notice the jobs that are done by then."""
    settings.JOBS_SIDE_QUEUES, settings.JOBS_PERIODIC_TASKS = ["testing.fake_side_queue"], []
    settings.JOBS_DRAIN_SECONDS = 0.5
    settings.JOBS_ACTIVE_PER_USER = 1
    fake_side_queue.fake_queue = fake_side_queue.FakeSideQueue()
    yield fake_side_queue.fake_queue
    fake_side_queue.fake_queue = fake_side_queue.FakeSideQueue()


@pytest.fixture
def bell() -> Iterator[NotifyBroker]:
    made = NotifyBroker()
    yield made
    made.close()


def done() -> int:
    return UploadJob.objects.filter(state="done").count()


def test_a_full_queue_beside_does_not_keep_the_jobs_from_their_turn(
    other: fake_side_queue.FakeSideQueue, settings: Settings
) -> None:
    other.due = 10_000
    JobFactory.create()

    worker.drain()

    assert done() == 1
    assert 0 < other.worked <= settings.JOBS_DRAIN_SECONDS / fake_side_queue.SECONDS_PER_ITEM + 1


def test_jobs_without_end_do_not_keep_a_queue_beside_from_its_turn(other: fake_side_queue.FakeSideQueue) -> None:
    other.due = 3
    with connection.cursor() as cursor:
        create_jobs(cursor, 3_000, "noop")

    worker.drain()

    assert other.worked == 3
    assert 0 < done() < 3_000


def test_one_ring_is_one_drain_of_both_and_asks_for_another_when_time_was_up(
    other: fake_side_queue.FakeSideQueue, bell: NotifyBroker
) -> None:
    assert bell.dequeue() is None  # it listens from now on
    other.due, other.hidden = 10_000, True

    worker.drain()

    assert bell.wait_for_notification()


def test_a_drain_that_has_done_everything_asks_for_no_other(
    other: fake_side_queue.FakeSideQueue, bell: NotifyBroker
) -> None:
    assert bell.dequeue() is None
    other.due = 2
    JobFactory.create()

    worker.drain()

    assert not bell.wait_for_notification()


def test_the_bell_counts_both_up_to_the_workers(
    other: fake_side_queue.FakeSideQueue, bell: NotifyBroker, ana: UUID, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Conf, "WORKERS", 3)
    other.due = 1
    JobFactory.create(user_id=ana)
    assert len(bell.dequeue() or []) == 2

    other.due = 50

    assert len(bell.dequeue() or []) == 3


def test_a_cluster_is_idle_when_both_are(other: fake_side_queue.FakeSideQueue) -> None:
    assert maintenance.is_idle()
    other.due = 1
    assert not maintenance.is_idle()
    other.due = 0
    JobFactory.create()
    assert not maintenance.is_idle()


def test_a_lost_ring_of_a_queue_beside_is_made_up_for(
    other: fake_side_queue.FakeSideQueue, bell: NotifyBroker, monkeypatch: Any
) -> None:
    monkeypatch.setattr(maintenance, "TICK_SECONDS", 0.0)
    assert bell.dequeue() is None
    shared_memory.record_claim_attempt()
    maintenance.MaintenanceLoop().tick()
    assert not bell.wait_for_notification()
    other.due = 1

    maintenance.MaintenanceLoop().tick()

    assert bell.wait_for_notification()


def test_a_broken_queue_beside_keeps_no_job_waiting(
    other: fake_side_queue.FakeSideQueue, caplog: pytest.LogCaptureFixture
) -> None:
    other.error = ValueError("somebody's text")
    JobFactory.create()

    worker.drain()

    assert done() == 1
    assert "A side queue failed." in caplog.text
    assert "somebody's text" not in caplog.text


def test_nothing_is_begun_once_the_cluster_stops(other: fake_side_queue.FakeSideQueue) -> None:
    shared_memory.request_stop()
    try:
        other.due = 1
        JobFactory.create()

        worker.drain()
    finally:
        shared_memory.start_cluster()
        shared_memory._main.value = 0.0

    assert (other.worked, done()) == (0, 0)


def test_claimable_asks_no_further_than_it_must(other: fake_side_queue.FakeSideQueue) -> None:
    other.due = 50

    assert side_queues.count_claimable(None, most=0) == 0
    assert side_queues.count_claimable(None, most=2) == 2
    assert other.count_calls == 1
