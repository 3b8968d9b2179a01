"""SQS consumer against a real SQS server: each state, each outcome, one result per version."""

import json
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from pytest_django import Settings

from jobs import claims
from jobs.cluster import shared_state as cluster
from jobs.models import Event, UploadJob
from jobs.pipeline import get_pipeline
from statutes import document_ids, intake
from statutes.consumer import consumer as lifecycle
from statutes.consumer import status_reporter
from statutes.consumer.consumer import Consumer
from statutes.consumer.in_flight_messages import InFlightMessage, InFlightMessages
from statutes.models import ALIVE, LawVersion
from statutes.models import Consumer as Row
from statutes.sqs import client, dead_letters, message_bodies
from statutes.sqs.message_schema import Message
from statutes.tests.sqs_messages import BUCKET, message_body, published_count, s3_record
from testing.cluster import wait_until
from testing.factories import JobFactory
from testing.sqs import Queue, SqsServer, running_consumers

pytestmark = pytest.mark.django_db(transaction=True)
NOWHERE = "http://127.0.0.1:9"  # nothing listens there
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = current_user"""


@pytest.fixture
def queue(queue: Queue, settings: Settings) -> Queue:
    settings.SQS_WAIT_SECONDS, settings.SQS_VISIBILITY_SECONDS = 1, 30
    settings.STATUTES_BUCKET = BUCKET
    settings.JOBS_PIPELINES = "testing.statute_pipelines.PIPELINES"
    settings.JOBS_RETRY_BASE_SECONDS = 0.1
    return queue


class Clock:
    """Time that passes by sleeping alone, for consumers' rows too; notes every 20 s whether one is alive."""

    def __init__(self) -> None:
        self.now, self.is_alive = 0.0, list[bool]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        before, self.now = self.now, self.now + seconds
        if before // 20 < self.now // 20:
            Row.objects.update(seen_at=F("seen_at") - timedelta(seconds=20))
            self.is_alive.append(Row.objects.filter(ALIVE).exists())


def codes(caplog: Any, name: str) -> list[str]:
    """Return what log lines say under ``name``, in their order."""
    return [record.msg[name] for record in caplog.records if isinstance(record.msg, dict) and name in record.msg]


def ended_states(law_id: str) -> bool:
    return UploadJob.objects.filter(document_id=document_ids.document_id(law_id, "2024-01"), state="done").exists()


@pytest.mark.slow
def test_a_message_passes_through_every_state(queue: Queue, caplog: Any) -> None:
    caplog.set_level("INFO")
    queue.send(message_body(what="sleep-0.3"))

    with running_consumers() as [consumer]:
        wait_until(lambda: consumer.status.ended, seconds=20)
        wait_until(lambda: queue.is_empty, seconds=5)

    assert published_count() == 1
    states = [state for state in codes(caplog, "state") if state in Row.State.values]
    assert [*dict.fromkeys(states)] == ["boot", "init", "idle", "processing", "shutdown"]
    assert codes(caplog, "sub_state")[0] == "downloading"
    assert codes(caplog, "sub_state")[-1] == "finalize"
    row = Row.objects.get()
    assert (row.state, row.received, row.ended, row.failed) == ("shutdown", 1, 1, 0)


@pytest.mark.slow
def test_a_version_is_processed_once_unless_forced(queue: Queue) -> None:
    queue.send(message_body())
    queue.send(message_body())
    with running_consumers():
        wait_until(lambda: queue.is_empty and ended_states("ISR_2024"), seconds=20)
        assert published_count() == 1

        queue.send(message_body(force_reprocess=True))
        wait_until(lambda: published_count() == 2 and queue.is_empty, seconds=20)


@pytest.mark.slow
def test_a_held_message_stays_hidden_beyond_its_visibility_timeout(queue: Queue, settings: Settings) -> None:
    settings.SQS_VISIBILITY_SECONDS = 1
    queue.send(message_body(what="sleep-2.2"))

    with running_consumers() as [consumer]:
        wait_until(lambda: len(consumer.in_flight), seconds=10)
        seen = []
        while not consumer.status.ended:
            seen.append(queue.message_counts()[0])
            time.sleep(0.05)

    assert len(seen) > 20
    assert set(seen) == {0}
    assert (published_count(), consumer.status.received) == (1, 1)


@pytest.mark.slow
def test_an_expired_visibility_timeout_gives_one_result(queue: Queue, settings: Settings) -> None:
    queue.send(message_body(what="sleep-2"))

    with running_consumers(2) as consumers:
        wait_until(lambda: UploadJob.objects.filter(state="working").exists(), seconds=10)
        holder = next(consumer for consumer in consumers if len(consumer.in_flight))
        settings.SQS_VISIBILITY_SECONDS = 1
        client.change_visibility(next(iter(holder.in_flight)).received, 0)
        wait_until(lambda: sum(consumer.status.received for consumer in consumers) >= 2, seconds=10)
        wait_until(lambda: ended_states("ISR_2024") and queue.is_empty, seconds=20)

    assert published_count() == 1
    assert Event.objects.filter(code="CLAIMED").count() == 1


@pytest.mark.slow
def test_two_consumers_give_one_result_each_law(queue: Queue) -> None:
    laws = [f"LAW_{number}" for number in range(6)]
    for law in laws * 2:
        queue.send(message_body(law))

    with running_consumers(2):
        wait_until(lambda: all(ended_states(law) for law in laws) and queue.is_empty, seconds=30)

    assert [published_count(law) for law in laws] == [1] * 6


@pytest.mark.slow
def test_a_job_of_another_consumer_is_skipped(queue: Queue) -> None:
    [message] = message_bodies.parse_items(json.dumps(message_body("TAKEN")))
    assert isinstance(message, Message)
    intake.accept_message(message)
    held = claims.claim_next("another:1:1")
    assert held is not None
    queue.send(message_body("TAKEN"))
    queue.send(message_body("FREE"))

    with running_consumers() as [consumer]:
        wait_until(lambda: consumer.status.ended, seconds=20)
        assert ended_states("FREE")
        wait_until(lambda: queue.message_counts() == (0, 1), seconds=5)

    assert (published_count("TAKEN"), queue.dead_letter_count()) == (0, 0)


def test_an_unclaimed_job_is_waited_for(queue: Queue) -> None:
    [message] = message_bodies.parse_items(json.dumps(message_body()))
    assert isinstance(message, Message)
    job_id = intake.accept_message(message).job_id  # as a consumer leaves it that stops
    queue.send(message_body())

    with running_consumers(works=False) as [holder]:
        wait_until(lambda: holder.status.state == Row.State.PROCESSING, seconds=10)

        assert [list(held.jobs) for held in holder.in_flight] == [[job_id]]


@pytest.mark.slow
def test_a_job_with_an_expired_lease_is_taken_over(queue: Queue) -> None:
    [message] = message_bodies.parse_items(json.dumps(message_body()))
    assert isinstance(message, Message)
    intake.accept_message(message)
    assert claims.claim_next("another:1:1") is not None
    UploadJob.objects.update(lease_until="2020-01-01T00:00:00Z")
    queue.send(message_body())

    with running_consumers():
        wait_until(lambda: ended_states("ISR_2024") and queue.is_empty, seconds=20)

    assert published_count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("body", ["no JSON", json.dumps(message_body("a/b"))])
def test_an_invalid_message_becomes_a_dead_letter(queue: Queue, body: str, caplog: Any) -> None:
    queue.send(body)
    queue.send(message_body("GOOD"))

    with running_consumers():
        wait_until(lambda: queue.dead_letter_count() == 1 and ended_states("GOOD") and queue.is_empty, seconds=20)

    assert UploadJob.objects.count() == 1
    assert set(codes(caplog, "code")) & {"MESSAGE_NOT_JSON", "MESSAGE_INVALID"}


@pytest.mark.slow
def test_a_job_that_always_fails_becomes_a_dead_letter(queue: Queue, settings: Settings) -> None:
    settings.SQS_VISIBILITY_SECONDS, settings.JOBS_MAX_RETRIES = 1, 1
    queue.send(message_body(what="fail"))

    with running_consumers() as [consumer]:
        wait_until(lambda: queue.dead_letter_count() == 1, seconds=30)

    assert consumer.status.received == 3
    assert UploadJob.objects.get().state == "deadletter"


@pytest.mark.slow
def test_a_statute_deleted_meanwhile_leaves_no_message(queue: Queue) -> None:
    queue.send(message_body(what="sleep-1"))

    with running_consumers():
        wait_until(lambda: UploadJob.objects.filter(state="working").exists(), seconds=10)
        UploadJob.objects.all().delete()
        LawVersion.objects.all().delete()
        wait_until(lambda: queue.is_empty, seconds=10)

    assert published_count() == 0


def test_the_urgent_queue_is_polled_first(queue: Queue, queues: SqsServer, settings: Settings) -> None:
    urgent = queues.create_queue()
    settings.SQS_PRIORITY_QUEUE_URL = urgent.url
    queue.send(message_body("COMMON"))
    urgent.send(message_body("URGENT"))

    with running_consumers():
        wait_until(lambda: ended_states("COMMON") and ended_states("URGENT"), seconds=20)

    first, second = UploadJob.objects.order_by("finished_at").values_list("document_id", flat=True)
    assert [first, second] == [document_ids.document_id(law, "2024-01") for law in ("URGENT", "COMMON")]


@pytest.mark.slow
def test_the_most_urgent_held_message_is_next(queue: Queue, settings: Settings) -> None:
    settings.SQS_MESSAGES_AT_ONCE = 10
    queue.send(message_body("FIRST", "sleep-2.5"))
    with running_consumers():
        wait_until(lambda: UploadJob.objects.filter(state="working").exists(), seconds=10)

        for law, priority in (("LOW", "low"), ("NORMAL", "normal"), ("HIGH", "high")):
            queue.send(message_body(law, priority=priority))
        wait_until(lambda: UploadJob.objects.filter(state="done").count() == 4, seconds=20)

    order = UploadJob.objects.order_by("finished_at").values_list("document_id", flat=True)
    laws = dict(LawVersion.objects.values_list("document_id", "law_id"))
    assert [laws[document] for document in order] == ["FIRST", "HIGH", "NORMAL", "LOW"]


@pytest.mark.slow
def test_hold_only_leaves_jobs_to_other_workers(queue: Queue) -> None:
    queue.send(message_body())

    with running_consumers(works=False) as [holder]:
        wait_until(lambda: UploadJob.objects.filter(state="queued").exists(), seconds=10)
        time.sleep(1)
        assert (published_count(), queue.message_counts()) == (0, (0, 1))
        claim = claims.claim_next("another:1:1")
        assert claim is not None
        while claim.job.state == "working":
            get_pipeline(claim.job.pipeline).step(claim.job.stage).handler(claim)
        wait_until(lambda: queue.is_empty, seconds=5)

    assert (holder.status.ended, published_count()) == (1, 1)


@pytest.mark.slow
def test_an_unavailable_queue_is_waited_for(queue: Queue, settings: Settings, caplog: Any) -> None:
    caplog.set_level("INFO")
    queue.send(message_body())
    endpoint, settings.SQS_ENDPOINT_URL = settings.SQS_ENDPOINT_URL, NOWHERE

    with running_consumers():
        wait_until(lambda: "VENDOR_UNREACHABLE" in codes(caplog, "code"), seconds=10)
        assert Row.objects.get().state == "wait"
        settings.SQS_ENDPOINT_URL = endpoint
        wait_until(lambda: published_count() == 1 and queue.is_empty, seconds=20)


def test_a_waiting_consumer_reports_itself_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(lifecycle, "time", clock)
    monkeypatch.setattr(status_reporter, "time", clock)

    Consumer()._wait("VENDOR_RATE_LIMITED", 7200.0)

    assert 299 < clock.now < 301
    assert len(clock.is_alive) >= 14
    assert all(clock.is_alive)


@pytest.mark.slow
def test_an_arrived_upload_resumes_its_job(queue: Queue) -> None:
    job = JobFactory.create(user_id=UUID(int=3), pipeline="wait", run_after="2099-01-01T00:00:00Z")
    queue.send({"Records": [s3_record(f"{UUID(int=3)}/{job.document_id}.pdf", "raw")]})
    queue.send({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "raw"})

    with running_consumers(works=False):
        wait_until(lambda: queue.is_empty, seconds=10)

    job.refresh_from_db()
    assert (job.state, job.run_after) == ("queued", None)


def test_a_queue_without_dead_letters_is_logged(queue: Queue, queues: SqsServer, caplog: Any) -> None:
    assert dead_letters.max_receive_count(queues.create_queue(most=None).url) is None
    assert dead_letters.max_receive_count(queues.create_queue(most=5).url) == 5

    assert codes(caplog, "code") == ["SQS_NO_DLQ"]


def test_a_queue_with_one_receive_per_message_is_rejected(queue: Queue, queues: SqsServer) -> None:
    with pytest.raises(ImproperlyConfigured, match="maxReceiveCount"):
        dead_letters.max_receive_count(queues.create_queue(most=1).url)


@pytest.mark.parametrize(("receives", "seen_at_once"), [(3, True), (4, False)])
def test_an_invalid_message_past_its_receives_is_not_released_at_once(
    receives: int, seen_at_once: bool, queue: Queue
) -> None:
    consumer = Consumer(works=False)
    consumer._most_receives[queue.url] = 3  # as the queue said when it was asked: its policy has gone since
    queue.send("no JSON")
    [received] = client.receive_messages(queue.url, wait=1)
    received.receives = receives

    consumer._take(received)

    assert queue.message_counts() == ((1, 0) if seen_at_once else (0, 1))


def test_a_message_is_held_for_12_hours_at_most(queue: Queue) -> None:
    queue.send(message_body())
    [received] = client.receive_messages(queue.url, wait=1)
    received.at -= 12 * 3600 - 60
    assert 50 < received.visible_at_most(300) < 60
    received.at -= 60
    in_flight, held = InFlightMessages(), InFlightMessage(received, [])
    in_flight.add(held)

    in_flight.renew_all()

    assert held.is_lost
    assert queue.message_counts() == (0, 1)  # an extension by nothing would have given it back


def test_a_missing_queue_is_waited_for(queue: Queue, settings: Settings, caplog: Any) -> None:
    caplog.set_level("INFO")
    settings.SQS_QUEUE_URL = f"{queue.url}-x"

    with running_consumers():
        wait_until(lambda: "SQS_NO_QUEUE" in codes(caplog, "code"), seconds=10)
        assert Row.objects.get().state == "wait"


@pytest.mark.slow
def test_terminated_connections_cost_no_result(queue: Queue, settings: Settings) -> None:
    settings.JOBS_LEASE_SECONDS = 1
    queue.send(message_body(what="sleep-0.5"))

    with running_consumers():
        wait_until(lambda: UploadJob.objects.filter(state="working").exists(), seconds=10)
        with connection.cursor() as cursor:
            cursor.execute(CUT)
        wait_until(lambda: queue.is_empty, seconds=20)

    assert published_count() == 1


@pytest.mark.slow
def test_an_invalid_file_is_archived_after_a_bucket_outage(
    queue: Queue, queues: SqsServer, settings: Settings, caplog: Any
) -> None:
    caplog.set_level("INFO")
    store = queues.create_bucket(BUCKET, {message_body(what="refuse")["s3_raw_key"]: b"no law"})
    settings.STATUTES_S3_ENDPOINT_URL = NOWHERE
    queue.send(message_body(what="refuse"))

    with running_consumers():
        wait_until(lambda: "wait" in codes(caplog, "state"), seconds=20)
        assert queue.message_counts() == (0, 1)
        settings.STATUTES_S3_ENDPOINT_URL = queues.endpoint
        wait_until(lambda: queue.is_empty, seconds=20)

    assert sorted(store()) == [
        "failed/ISR_2024/2024-01/error.json",
        "failed/ISR_2024/2024-01/refuse",
        "raw/federal/2024/refuse",
    ]


@pytest.mark.slow
def test_a_stop_lets_the_stage_finish_within_the_grace_period(queue: Queue) -> None:
    queue.send(message_body(what="sleep-1"))

    with running_consumers():
        wait_until(lambda: UploadJob.objects.filter(state="working").exists(), seconds=10)

    job = UploadJob.objects.get()
    assert (job.stage, job.state, job.attempts) == ("embedded", "queued", 0)
    assert queue.message_counts() == (1, 0)


@pytest.mark.slow
def test_until_idle_ends_with_an_empty_queue(queue: Queue) -> None:
    queue.send(message_body())

    with running_consumers(until_idle=True) as [consumer]:
        wait_until(cluster.is_stopping, seconds=20)

    assert (consumer.status.ended, published_count()) == (1, 1)


@pytest.mark.parametrize("name", ["SQS_QUEUE_URL", "STATUTES_BUCKET", "SQS_VISIBILITY_SECONDS"])
def test_the_command_names_wrong_settings(queue: Queue, settings: Settings, name: str) -> None:
    setattr(settings, name, 0)

    with pytest.raises(CommandError, match=name):
        call_command("consume_sqs")
