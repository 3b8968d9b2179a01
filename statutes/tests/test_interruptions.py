"""Interruptions of the queue, the database or the consumer while messages are in flight."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django import Settings

from jobs.cluster import shared_state
from jobs.models import UploadJob
from statutes import document_ids
from statutes.consumer.consumer import Consumer
from statutes.consumer.in_flight_messages import InFlightMessage, InFlightMessages
from statutes.models import Consumer as Row
from statutes.sqs import client
from statutes.tests.sqs_messages import BUCKET, message_body, published_count
from testing.chaos.statutes import CUT
from testing.cluster import database_params, database_url, wait_until, worker_pid
from testing.fork_server import ForkServer
from testing.sqs import CREDENTIALS, REGION, Queue, SqsServer, running_consumers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
NOWHERE = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture
def queue(queue: Queue, settings: Settings) -> Queue:
    settings.SQS_WAIT_SECONDS, settings.SQS_VISIBILITY_SECONDS = 1, 30
    settings.STATUTES_BUCKET = BUCKET
    settings.JOBS_PIPELINES = "testing.statute_pipelines.PIPELINES"
    return queue


@pytest.fixture(scope="module")
def processes_queue(queues: SqsServer) -> Queue:
    """Create the queue of the processes, which learn its address when the first test starts them."""
    return queues.create_queue()


@pytest.fixture
def others_messages(processes_queue: Queue) -> Queue:
    """Empty the queue of the processes, and its dead letters."""
    processes_queue.receive_all()
    processes_queue.receive_dead_letters()
    return processes_queue


@pytest.fixture(scope="module")
def fork_server(
    processes_queue: Queue, queues: SqsServer, django_db_setup: None, tmp_path_factory: Any
) -> Iterator[ForkServer]:
    environment = {
        **CREDENTIALS,
        "DATABASE_URL": database_url(database_params()),
        "SQS_QUEUE_URL": processes_queue.url,
        "SQS_ENDPOINT_URL": queues.endpoint,
        "SQS_REGION": REGION,
        "SQS_WAIT_SECONDS": "1",
        "SQS_VISIBILITY_SECONDS": "3",
        "STATUTES_BUCKET": BUCKET,
        "JOBS_PIPELINES": "testing.statute_pipelines.PIPELINES",
        "JOBS_LEASE_SECONDS": "1",
        "JOBS_STOP_GRACE_SECONDS": "1",
        "JOBS_MAX_RETRIES": "1",
        "JOBS_RETRY_BASE_SECONDS": "0.1",
    }
    log: Path = tmp_path_factory.mktemp("fork_server") / "log"
    with ForkServer(environment, log) as fork_server:
        yield fork_server


def send_signal(number: int, after: float) -> threading.Timer:
    timer = threading.Timer(after, os.kill, (os.getpid(), number))
    timer.start()
    return timer


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the signal handlers and the alarm after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.alarm(0)
    shared_state.start_cluster()


def test_a_message_received_after_the_stop_is_released(queue: Queue, settings: Settings) -> None:
    settings.SQS_WAIT_SECONDS = 20

    with running_consumers(works=False) as [consumer]:
        wait_until(lambda: consumer._listening, seconds=20)
        consumer.interrupt()
        queue.send(message_body())

    assert queue.message_counts() == (1, 0)
    assert not UploadJob.objects.exists()


def test_a_second_stop_signal_ends_the_long_poll(queue: Queue, settings: Settings, signals: None) -> None:
    settings.SQS_WAIT_SECONDS = 20
    send_signal(signal.SIGTERM, 1.0)
    send_signal(signal.SIGTERM, 1.2)
    began = time.monotonic()

    call_command("consume_sqs", "--hold-only")

    assert time.monotonic() - began < 12
    assert Row.objects.get().state == "shutdown"


def test_a_second_interrupt_does_not_postpone_the_alarm(settings: Settings, signals: None) -> None:
    settings.JOBS_STOP_GRACE_SECONDS = 15.0
    consumer = Consumer(works=False, mortal=True)

    consumer.interrupt()
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    time.sleep(0.01)
    consumer.interrupt()
    left_then, _ = signal.getitimer(signal.ITIMER_REAL)

    assert 0 < left_then < left <= 28


def test_a_message_received_while_the_database_reconnects_is_held(queue: Queue, settings: Settings) -> None:
    settings.SQS_WAIT_SECONDS = 5

    with running_consumers(works=False) as [consumer]:
        wait_until(lambda: consumer._listening, seconds=10)
        with connection.cursor() as cursor:
            cursor.execute(CUT)
        queue.send(message_body())
        wait_until(lambda: UploadJob.objects.filter(state="queued").exists(), seconds=15)

        assert consumer.status.received == 1


def test_a_failed_visibility_renewal_is_repeated_soon(queue: Queue, settings: Settings, caplog: Any) -> None:
    settings.SQS_VISIBILITY_SECONDS = 3
    queue.send(message_body())
    [received] = client.receive_messages(queue.url, wait=1)
    endpoint, settings.SQS_ENDPOINT_URL = settings.SQS_ENDPOINT_URL, NOWHERE
    in_flight = InFlightMessages()
    in_flight.add(InFlightMessage(received, []))
    in_flight.start()
    wait_until(lambda: len(caplog.records) == 3, seconds=20, pause=0.01)
    failed = [record.created for record in caplog.records]

    settings.SQS_ENDPOINT_URL = endpoint
    in_flight.stop()

    assert failed[2] - failed[0] < 1  # a beat is a second


def test_a_late_renewal_does_not_hide_a_released_message(queue: Queue) -> None:
    queue.send(message_body())
    [received] = client.receive_messages(queue.url, wait=1)
    in_flight, held = InFlightMessages(), InFlightMessage(received, [])
    in_flight.add(held)

    in_flight.release(held)
    in_flight.extend(held)

    assert queue.message_counts() == (1, 0)


def test_a_lost_message_is_not_released(queue: Queue) -> None:
    queue.send(message_body())
    [received] = client.receive_messages(queue.url, wait=1)
    in_flight, held = InFlightMessages(), InFlightMessage(received, [], is_lost=True)
    in_flight.add(held)

    in_flight.release(held)

    assert queue.message_counts() == (0, 1)


def test_a_queue_outage_during_processing_costs_no_result(queue: Queue, queues: SqsServer, settings: Settings) -> None:
    settings.SQS_VISIBILITY_SECONDS = 1
    queue.send(message_body(what="sleep-1"))

    with running_consumers() as [consumer]:
        wait_until(lambda: UploadJob.objects.filter(state="working").exists(), seconds=10)
        with queues.outage():
            wait_until(lambda: published_count() == 1, seconds=10)
            wait_until(lambda: consumer.status.state == Row.State.WAIT, seconds=10)
        wait_until(lambda: queue.is_empty, seconds=20)

    assert (published_count(), queue.dead_letter_count()) == (1, 0)


def test_a_consumer_whose_thread_died_raises(queue: Queue) -> None:
    consumer = Consumer()
    consumer.in_flight.start()

    with pytest.raises(RuntimeError, match="thread"):
        consumer._round()

    consumer.in_flight.stop()


def working() -> UploadJob | None:
    return UploadJob.objects.filter(state="working").first()


def test_a_frozen_consumer_produces_no_second_result(others_messages: Queue, fork_server: ForkServer) -> None:
    others_messages.send(message_body(what="sleep-1"))
    consumers = [fork_server.fork("consume_sqs") for _ in range(2)]
    wait_until(working, seconds=40)
    job = working()
    assert job is not None
    frozen = psutil.Process(worker_pid(job.claimed_by))
    frozen.suspend()
    wait_until(lambda: published_count() == 1 and others_messages.is_empty, seconds=40)

    frozen.resume()
    others_messages.send(message_body("NEXT"))
    wait_until(lambda: published_count("NEXT") == 1 and others_messages.is_empty, seconds=40)
    for consumer in consumers:
        consumer.terminate()
    psutil.wait_procs(consumers, timeout=40)

    assert frozen in consumers
    assert (published_count(), published_count("NEXT"), others_messages.dead_letter_count()) == (1, 1, 0)


def test_a_hanging_consumer_releases_its_message_on_stop(others_messages: Queue, fork_server: ForkServer) -> None:
    others_messages.send(message_body("HANGS", "sleep-60"))
    consumer = fork_server.fork("consume_sqs")
    wait_until(working, seconds=40)
    began = time.monotonic()

    consumer.terminate()
    consumer.wait(40)

    assert time.monotonic() - began < 15
    assert others_messages.message_counts() == (1, 0)
    job = UploadJob.objects.get()
    assert (job.state, job.attempts) == ("queued", 0)


def test_a_message_that_kills_workers_becomes_a_dead_letter(others_messages: Queue, fork_server: ForkServer) -> None:
    others_messages.send(message_body("DEADLY", "die"))
    others_messages.send(message_body("GOOD"))
    consumer, deaths = fork_server.fork("consume_sqs"), 0

    def is_over() -> bool:
        nonlocal consumer, deaths
        if not consumer.is_running():
            consumer, deaths = fork_server.fork("consume_sqs"), deaths + 1
        states = UploadJob.objects.values_list("state", flat=True)
        return (
            others_messages.dead_letter_count() == 1
            and others_messages.is_empty
            and sorted(states) == ["deadletter", "done"]
        )

    wait_until(is_over, seconds=90)
    consumer.kill()

    assert published_count("GOOD") == 1
    assert deaths >= 2
    failed = UploadJob.objects.get(document_id=document_ids.document_id("DEADLY", "2024-01"))
    assert (failed.last_error or {})["code"] == "WORKER_LOST"
