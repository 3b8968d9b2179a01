"""The NOTIFY broker: wake-ups, lost notifications, and jobs that may not run."""

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
from jobs.cluster import notify_broker as broker
from jobs.cluster import shared_state
from jobs.cluster.notify_broker import NotifyBroker
from jobs.models import UploadJob
from testing.cluster import create_jobs, running_cluster, wait_until
from testing.factories import DocumentFactory, JobFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture
def notify_broker() -> Iterator[NotifyBroker]:
    broker_instance = NotifyBroker()
    yield broker_instance
    broker_instance.close()


def test_an_empty_queue_wakes_no_worker(notify_broker: NotifyBroker) -> None:
    began = time.monotonic()

    assert notify_broker.dequeue() is None
    assert time.monotonic() - began >= broker.LISTEN_SECONDS


def test_a_wake_up_is_a_signed_call_of_drain_without_arguments(notify_broker: NotifyBroker, ana: UUID) -> None:
    JobFactory.create(user_id=ana)

    (ring,) = notify_broker.dequeue() or []

    task = SignedPackage.loads(ring[1])
    assert (task["func"], task["args"], task["kwargs"]) == ("jobs.worker.drain", (), {})


def test_wake_ups_are_one_per_user_and_at_most_one_per_worker(notify_broker: NotifyBroker, ana: UUID) -> None:
    JobFactory.create_batch(5, user_id=ana)
    assert len(notify_broker.dequeue() or []) == 1

    JobFactory.create_batch(5)

    assert len(notify_broker.dequeue() or []) == Conf.WORKERS


def test_a_user_at_the_limit_wakes_no_worker(notify_broker: NotifyBroker, ana: UUID) -> None:
    JobFactory.create_batch(3, user_id=ana)
    assert claims.claim_next("w")
    assert claims.claim_next("w")
    rings, began = 0, time.monotonic()

    while time.monotonic() - began < 2:
        rings += len(notify_broker.dequeue() or [])

    assert rings == 0


def test_a_parked_job_wakes_no_worker(notify_broker: NotifyBroker, ana: UUID) -> None:
    JobFactory.create(user_id=ana, run_after="2020-01-01T00:00Z")

    assert notify_broker.dequeue() is None


def test_a_notification_ends_the_wait_at_once(
    notify_broker: NotifyBroker, ana: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notify_broker.dequeue() is None  # it listens from now on
    monkeypatch.setattr(broker, "LISTEN_SECONDS", 20)
    job = JobFactory.create(user_id=ana)
    began = time.monotonic()

    services.notify_workers()

    assert notify_broker.dequeue()
    assert time.monotonic() - began < broker.LISTEN_SECONDS / 2
    assert job.state == "queued"


def test_a_job_that_nobody_notified_is_found_once_the_maintenance_loop_has_seen_it(
    notify_broker: NotifyBroker, ana: UUID
) -> None:
    assert notify_broker.dequeue() is None
    JobFactory.create(user_id=ana)
    assert notify_broker.dequeue() is None  # an idle pusher asks the database every ten seconds only

    shared_state.record_work_seen()

    assert notify_broker.dequeue()


def test_an_idle_broker_looks_for_work_itself_after_a_while(
    notify_broker: NotifyBroker, ana: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "POLL_SECONDS", 0.0)
    assert notify_broker.dequeue() is None

    JobFactory.create(user_id=ana)

    assert notify_broker.dequeue()


def test_the_broker_reconnects_when_its_connection_breaks(
    notify_broker: NotifyBroker, ana: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "RECONNECT_SECONDS", 0.01)
    assert notify_broker.dequeue() is None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [notify_broker._connection.info.backend_pid])
    JobFactory.create(user_id=ana)

    wait_until(notify_broker.dequeue, seconds=5)


def test_the_broker_waits_for_an_unavailable_database(
    notify_broker: NotifyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """django-q2 gives a pusher whose broker raises ten seconds of sleep."""
    monkeypatch.setattr(broker, "RECONNECT_SECONDS", 0.01)
    monkeypatch.setitem(connection.settings_dict, "NAME", "not_there")

    assert notify_broker.dequeue() is None


def pickup_seconds(job: UploadJob) -> float:
    wait_until(lambda: UploadJob.objects.filter(pk=job.pk, state="done").exists(), seconds=10, pause=0.01)
    job.refresh_from_db()
    assert job.claimed_at is not None
    return (job.claimed_at - job.created_at).total_seconds()


def enqueue_job() -> UploadJob:
    document = DocumentFactory.create()
    return services.enqueue(
        pipeline="noop", user_id=document.user_id, document_id=document.pk, raw_path="x", chunks_version=""
    )


def test_an_idle_cluster_reacts_to_notifications_lost_ones_and_timers() -> None:
    with running_cluster():
        with connection.cursor() as cursor:
            create_jobs(cursor, 4, "noop")  # nobody rings for these
        wait_until(lambda: UploadJob.objects.filter(state="done").count() == 4, seconds=5)

        rung = [pickup_seconds(enqueue_job()) for _ in range(8)]
        assert statistics.median(rung) < broker.LISTEN_SECONDS / 4

        due = datetime.now(UTC) + timedelta(seconds=1)
        late = pickup_seconds(JobFactory.create(run_after=due, created_at=due))
        assert 0 <= late < 3


def test_an_idle_cluster_keeps_two_connections_and_works_again() -> None:
    own = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def count_connections() -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"{own} AND backend_type = 'client backend'")
            return int(cursor.fetchone()[0])

    before = count_connections()
    with running_cluster():
        assert pickup_seconds(enqueue_job()) >= 0
        wait_until(lambda: count_connections() <= before + 2, seconds=10)  # the maintenance loop's and the pusher's

        assert pickup_seconds(enqueue_job()) >= 0
        assert count_connections() > before + 2
