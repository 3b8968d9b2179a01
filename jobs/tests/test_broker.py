"""The doorbell: it wakes who sleeps, costs nothing when it is lost, and does not ring for what may not run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django_q.conf import Conf
from django_q.signing import SignedPackage

from jobs import claims, services
from jobs.cluster import broker
from jobs.cluster.broker import NotifyBroker
from jobs.models import UploadJob
from testing.cluster import create_jobs, running_cluster, wait_until
from testing.factories import DocumentFactory, JobFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture
def bell() -> Iterator[NotifyBroker]:
    made = NotifyBroker()
    yield made
    made.close()


def test_nothing_due_rings_nothing(bell: NotifyBroker) -> None:
    began = time.monotonic()

    assert bell.dequeue() is None
    assert time.monotonic() - began >= broker.LISTEN_SECONDS


def test_a_ring_is_a_signed_call_of_drain_and_carries_nothing(bell: NotifyBroker, ana: UUID) -> None:
    JobFactory.create(user_id=ana)

    (ring,) = bell.dequeue() or []

    task = SignedPackage.loads(ring[1])
    assert (task["func"], task["args"], task["kwargs"]) == ("jobs.worker.drain", (), {})


def test_a_user_rings_once_and_no_more_than_the_workers_can_hear(bell: NotifyBroker, ana: UUID) -> None:
    JobFactory.create_batch(5, user_id=ana)
    assert len(bell.dequeue() or []) == 1

    JobFactory.create_batch(5)

    assert len(bell.dequeue() or []) == Conf.WORKERS


def test_what_is_queued_but_may_not_run_rings_nothing(bell: NotifyBroker, ana: UUID) -> None:
    JobFactory.create_batch(3, user_id=ana)
    assert claims.claim_next("w")
    assert claims.claim_next("w")
    rings, began = 0, time.monotonic()

    while time.monotonic() - began < 2:
        rings += len(bell.dequeue() or [])

    assert rings == 0


def test_what_is_parked_rings_nothing(bell: NotifyBroker, ana: UUID) -> None:
    JobFactory.create(user_id=ana, run_after="2020-01-01T00:00Z")

    assert bell.dequeue() is None


def test_a_ring_ends_the_listening_at_once(bell: NotifyBroker, ana: UUID) -> None:
    assert bell.dequeue() is None  # it listens from now on
    job = JobFactory.create(user_id=ana)
    began = time.monotonic()

    services.notify_workers()

    assert bell.dequeue()
    assert time.monotonic() - began < broker.LISTEN_SECONDS / 2
    assert job.state == "queued"


def test_a_bell_whose_connection_is_cut_listens_again(
    bell: NotifyBroker, ana: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "RECONNECT_SECONDS", 0.01)
    assert bell.dequeue() is None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [bell._ears.info.backend_pid])
    JobFactory.create(user_id=ana)

    wait_until(bell.dequeue, seconds=5)


def test_a_database_that_is_not_there_is_waited_for(bell: NotifyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """django-q2 gives a pusher whose broker raises ten seconds of sleep."""
    monkeypatch.setattr(broker, "RECONNECT_SECONDS", 0.01)
    monkeypatch.setitem(connection.settings_dict, "NAME", "not_there")

    assert bell.dequeue() is None


def pickup(job: UploadJob) -> float:
    wait_until(lambda: UploadJob.objects.filter(pk=job.pk, state="done").exists(), seconds=10, pause=0.01)
    job.refresh_from_db()
    assert job.claimed_at is not None
    return (job.claimed_at - job.created_at).total_seconds()


def enqueued() -> UploadJob:
    document = DocumentFactory.create()
    return services.enqueue(
        pipeline="noop", user_id=document.user_id, document_id=document.pk, raw_path="x", chunks_version=""
    )


def test_an_idle_cluster_is_woken_by_a_ring_makes_up_for_a_lost_one_and_minds_its_timers() -> None:
    with running_cluster():
        with connection.cursor() as cursor:
            create_jobs(cursor, 4, "noop")  # nobody rings for these
        wait_until(lambda: UploadJob.objects.filter(state="done").count() == 4, seconds=5)

        rung = [pickup(enqueued()) for _ in range(8)]
        assert statistics.median(rung) < broker.LISTEN_SECONDS / 4

        due = datetime.now(UTC) + timedelta(seconds=1)
        late = pickup(JobFactory.create(run_after=due, created_at=due))
        assert 0 <= late < 3
