"""Doctor's checks of the statutes' queue, consumers and bucket; system checks of their settings."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accessa import env
from accessa.checks.rules import check_rules
from accessa.checks.settings import check_settings
from accessa.checks.statutes import STATUTE_DEPLOYMENT_RULES, STATUTE_RULES
from accessa.doctor.findings import Level
from accessa.tests.doctor_fixtures import reports, run_findings
from statutes.models import Consumer
from statutes.tests.sqs_messages import message_body as message
from testing.fakes.faults import http_error
from testing.fakes.s3 import S3Server
from testing.sqs import CREDENTIALS, Queue, SqsServer

QUEUE, BUCKET = "statutes-queue", "statutes-bucket"
QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/1/laws"


@pytest.fixture(scope="module")
def server() -> Iterator[SqsServer]:
    with SqsServer() as server:
        yield server


@pytest.fixture
def queue(server: SqsServer, settings: Any, monkeypatch: pytest.MonkeyPatch, db: None) -> Queue:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    queue = server.create_queue()
    settings.SQS_QUEUE_URL, settings.SQS_ENDPOINT_URL = queue.url, server.endpoint
    return queue


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Server(buckets=("laws",)) as server:
        yield server


@pytest.fixture
def bucket(store: S3Server, settings: Any) -> Iterator[S3Server]:
    settings.STATUTES_BUCKET = "laws"
    settings.STATUTES_S3_ENDPOINT_URL = settings.S3_ENDPOINT_URL = store.url
    settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY = store.access_key, store.secret_key
    yield store
    store.clear_faults()
    for stored in store.client().list_objects_v2(Bucket="laws").get("Contents", ()):
        store.client().delete_object(Bucket="laws", Key=stored["Key"])


def set_policy(queue: Queue, most: int | None) -> None:
    arn = queue._client.get_queue_attributes(QueueUrl=queue.dead_url, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": most}
    queue._client.set_queue_attributes(QueueUrl=queue.url, Attributes={"RedrivePolicy": json.dumps(policy)})


@pytest.mark.django_db(transaction=True)
def test_a_queue_that_is_well_with_a_consumer_is_well(queue: Queue) -> None:
    Consumer.objects.create(name="host:1", state="idle")
    queue.send({"any": "message"})

    [(level, says, _)] = run_findings(QUEUE)

    assert level is Level.OK
    assert "1 waiting, 0 held" in says
    assert "1 consumer alive" in says
    assert queue.message_counts() == (1, 0)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_causes_of_unprocessed_messages_are_reported(queue: Queue, server: SqsServer, settings: Any) -> None:
    Consumer.objects.create(name="host:1", state="idle", seen_at=timezone.now() - timedelta(minutes=2))
    queue._client.send_message(QueueUrl=queue.dead_url, MessageBody="{}")
    set_policy(queue, 1)
    settings.SQS_PRIORITY_QUEUE_URL = server.create_queue(most=None).url

    everything = run_findings(QUEUE)

    says = {(level, said, remedy) for level, said, remedy in everything}
    for level, part, remedy in [
        (Level.ERROR, "No consumer is alive", "consume_sqs"),
        (Level.ERROR, "maxReceiveCount of SQS_QUEUE_URL is 1", "3, 4 or 5"),
        (Level.WARNING, "1 message was given up (SQS_QUEUE_URL)", "laws redrive"),
        (Level.WARNING, "SQS_PRIORITY_QUEUE_URL has no dead-letter queue", "redrive policy"),
    ]:
        assert any(each[0] is level and part in each[1] and remedy in each[2] for each in says), (part, everything)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_shared_dead_letters_are_reported_once(queue: Queue, server: SqsServer, settings: Any) -> None:
    Consumer.objects.create(name="host:1", state="idle")
    urgent = server.create_queue()
    urgent.dead_url = queue.dead_url
    set_policy(urgent, 3)
    settings.SQS_PRIORITY_QUEUE_URL = urgent.url
    queue._client.send_message(QueueUrl=queue.dead_url, MessageBody="{}")

    queue._client.send_message(QueueUrl=queue.dead_url, MessageBody=json.dumps(message("LIVA")))

    [(says, remedy)] = [(says, remedy) for level, says, remedy in run_findings(QUEUE) if level is Level.WARNING]

    assert says == "2 messages were given up (SQS_QUEUE_URL and SQS_PRIORITY_QUEUE_URL)."
    assert remedy.endswith("1 can be put back (--yes), 1 cannot.")
    assert queue.dead_letter_count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_missing_and_an_unreachable_queue_are_reported(queue: Queue, settings: Any) -> None:
    settings.SQS_QUEUE_URL += "-gone"
    assert reports(QUEUE, "SQS_QUEUE_URL is no queue that is there.", "SQS_REGION")
    settings.SQS_ENDPOINT_URL = "http://127.0.0.1:9"

    assert reports(QUEUE, "SQS_QUEUE_URL does not answer (VENDOR_UNREACHABLE).", "SQS_ENDPOINT_URL")


@pytest.mark.django_db(transaction=True)
def test_a_consumer_that_waits_for_minutes_is_found(queue: Queue) -> None:
    Consumer.objects.create(name="host:1", state="wait", changed_at=timezone.now() - timedelta(minutes=9))

    assert reports(QUEUE, "The consumer host:1 has waited for minutes.", "log", level=Level.WARNING)


def test_a_working_bucket_passes_and_stays_empty(bucket: S3Server) -> None:
    assert [level for level, *_ in run_findings(BUCKET)] == [Level.OK]

    client = bucket.client()
    assert "Contents" not in client.list_objects_v2(Bucket="laws")
    client.close()


@pytest.mark.parametrize(
    ("route", "says", "remedy"),
    [
        ("PUT /laws/failed/*", "cannot be written and emptied below failed/: the key may not do that", "s3:PutObject"),
        ("DELETE /laws/chunks/*", "cannot be written and emptied below chunks/", "s3:DeleteObject"),
        ("HEAD /laws/raw/*", "Files below raw/ of STATUTES_BUCKET cannot be looked at", "s3:ListBucket"),
    ],
)
def test_missing_bucket_rights_are_reported(route: str, says: str, remedy: str, bucket: S3Server) -> None:
    bucket.inject_fault(route, http_error(403, code="AccessDenied"), times=5)

    assert reports(BUCKET, says, remedy)


def test_a_missing_bucket_and_an_unreachable_store_are_reported_by_setting(bucket: S3Server, settings: Any) -> None:
    settings.STATUTES_BUCKET = "none"
    assert [says for _, says, _ in run_findings(BUCKET)] == ["STATUTES_BUCKET: it does not exist."]
    assert reports(BUCKET, "it does not exist", "STATUTES_BUCKET")
    settings.STATUTES_S3_ENDPOINT_URL = settings.S3_ENDPOINT_URL = "http://127.0.0.1:9"

    assert reports(BUCKET, "nobody answers at STATUTES_S3_ENDPOINT_URL", "STATUTES_S3_ENDPOINT_URL")


# What is set


@pytest.mark.parametrize(
    ("planted", "id"),
    [
        ({"SQS_ENDPOINT_URL": "sqs:9324"}, "accessa.E251"),
        ({"SQS_QUEUE_URL": "laws", "STATUTES_BUCKET": "laws"}, "accessa.E251"),
        ({"SQS_QUEUE_URL": f"{QUEUE_URL}.fifo", "STATUTES_BUCKET": "laws"}, "accessa.E252"),
        ({"SQS_QUEUE_URL": QUEUE_URL, "STATUTES_BUCKET": ""}, "accessa.E253"),
        ({"SQS_QUEUE_URL": QUEUE_URL, "SQS_PRIORITY_QUEUE_URL": QUEUE_URL, "STATUTES_BUCKET": "laws"}, "accessa.E254"),
        ({"SQS_PRIORITY_QUEUE_URL": QUEUE_URL}, "accessa.E254"),
        ({"SQS_WAIT_SECONDS": 21}, "accessa.E255"),
        ({"SQS_VISIBILITY_SECONDS": 2}, "accessa.E255"),
        ({"SQS_MESSAGES_AT_ONCE": 11}, "accessa.E255"),
        ({"STATUTES_EMBEDDER": "titam"}, "accessa.E256"),
        ({"SQS_QUEUE_URL": QUEUE_URL, "STATUTES_BUCKET": "laws", "SQS_VISIBILITY_SECONDS": 12}, "accessa.W257"),
        ({"STORAGE": "s3", "STATUTES_BUCKET": "tenants", "S3_RAW_BUCKET": "tenants"}, "accessa.E258"),
        ({"STORAGE": "s3", "STATUTES_RAW_BUCKETS": ["more", "tenants"], "S3_PARSED_BUCKET": "tenants"}, "accessa.E259"),
    ],
)
def test_contradictory_settings_are_found(planted: dict[str, Any], id: str, settings: Any) -> None:
    assert list(check_rules(STATUTE_RULES)) == []
    for name, value in planted.items():
        setattr(settings, name, value)

    assert [message.id for message in check_rules(STATUTE_RULES)] == [id]
    assert all(message.hint for message in check_rules(STATUTE_RULES))
    assert id in {message.id for message in check_settings(app_configs=None)}


def test_a_deployment_without_keys_or_in_the_open_is_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert list(check_rules(STATUTE_DEPLOYMENT_RULES)) == []
    settings.SQS_QUEUE_URL, settings.STATUTES_BUCKET = QUEUE_URL.replace("https", "http"), "laws"
    settings.SQS_ENDPOINT_URL = "http://127.0.0.1:9324"

    assert [message.id for message in check_rules(STATUTE_DEPLOYMENT_RULES)] == ["accessa.E114", "accessa.E115"]


@pytest.mark.parametrize(
    ("name", "meant"), [("SQS_QUEUE_URLS", "SQS_QUEUE_URL"), ("STATUTE_BUCKET", "STATUTES_BUCKET")]
)
def test_a_misspelt_variable_is_reported_with_the_right_name(name: str, meant: str) -> None:
    assert list(env.find_unread_variables({name: "value"})) == [(name, meant)]
