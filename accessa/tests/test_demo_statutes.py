"""Demo of statutes: fake AWS, rounds of messages, failures that end it."""

import io
import json
import os
import time
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings as used
from pytest_django import Settings
from rich.console import Console

from accessa.demo.api_client import ApiClient
from accessa.demo.fake_aws import FakeAws, run_fake_aws, use_fake_aws
from accessa.demo.scenarios import Demo, DemoFailed
from accessa.demo.statutes import LAW_IDS, SAMPLE_LAWS, Rounds, StatuteScenario
from accessa.management.commands import demo
from accessa.server.address import Address
from accessa.server.programs import programs
from accessa.server.supervisor import Supervisor
from statutes.models import Law, LawVersion
from testing.cluster import database_params, database_url
from testing.sqs import running_consumers

pytestmark = pytest.mark.slow

ARTIFACTS = ("law.json", "manifest.json", "_vectors.jsonl")


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with run_fake_aws() as aws:
        yield aws


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=160)


def rounds(aws: FakeAws, console: Console, tick: Callable[[], object] = lambda: None, seconds: float = 200) -> Rounds:
    for law in SAMPLE_LAWS:
        aws.put_object(law.key, law.file.read_bytes())
    return Rounds(Demo(console, ApiClient("", ""), tick, time.monotonic() + seconds), aws)


def test_failed_messages_go_to_a_dead_letter_queue(aws: FakeAws) -> None:
    attributes = aws.sqs.get_queue_attributes(QueueUrl=used.SQS_QUEUE_URL, AttributeNames=["RedrivePolicy"])
    dead = aws.sqs.get_queue_attributes(QueueUrl=aws.dead_letter_url, AttributeNames=["QueueArn"])

    policy = json.loads(attributes["Attributes"]["RedrivePolicy"])

    assert policy == {"deadLetterTargetArn": dead["Attributes"]["QueueArn"], "maxReceiveCount": 3}


def test_settings_are_restored_after_fake_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody's own")
    monkeypatch.setenv("SQS_QUEUE_URL", "https://sqs.example/1/theirs")
    before, queue = dict(os.environ), used.SQS_QUEUE_URL

    with use_fake_aws({"s3": fake("s3"), "bedrock": fake("bedrock")}, "http://127.0.0.1:9/laws"):
        assert "AWS_PROFILE" not in os.environ
        assert (os.environ["SQS_QUEUE_URL"], used.SQS_QUEUE_URL) == ("http://127.0.0.1:9/laws",) * 2

    assert (dict(os.environ), used.SQS_QUEUE_URL) == (before, queue)


def kill_first(supervisor: Supervisor) -> None:
    process = supervisor.children[0].process
    assert process is not None
    process.kill()


def fake(name: str) -> dict[str, str]:
    return {"url": f"http://{name}.example", "region": "us-east-1", "access_key": "a", "secret_key": "b"}


@pytest.mark.django_db(transaction=True)
def test_a_killed_consumer_is_restarted_and_buys_nothing_twice(
    aws: FakeAws, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url(database_params()))
    monkeypatch.setenv("LOG_LEVEL", "ERROR")
    reports: list[str] = []
    supervisor = Supervisor(programs(Address("127.0.0.1", 9))[2:], report=reports.append)
    shown = rounds(aws, console, supervisor.tick)
    try:
        supervisor.tick()
        kill_first(supervisor)
        shown.run("sent", expected=SAMPLE_LAWS)
        first, bought = aws.list_objects(), aws.titan_ledger()["sold"]
        shown.run("sent again")
        shown.run("by force", expected=SAMPLE_LAWS, forced=LAW_IDS)
    finally:
        supervisor.stop()

    assert reports == ["the statutes' consumer ended (killed by SIGKILL); starting again in 0.5 s"]
    assert sum(key.endswith(ARTIFACTS) for key in first) == 9
    assert (aws.list_objects(), aws.titan_ledger()["sold"], aws.titan_ledger()["repeated"]) == (first, bought, 0)
    assert bought == sum(Law.objects.values_list("chunk_count", flat=True)) > 3
    assert aws.count_messages(aws.queue_url) + aws.count_messages(aws.dead_letter_url) == 0


@pytest.mark.django_db(transaction=True)
def test_a_failed_statute_is_named(aws: FakeAws, console: Console, settings: Settings) -> None:
    settings.SQS_WAIT_SECONDS = 1
    shown = rounds(aws, console)
    for law in SAMPLE_LAWS:
        aws.put_object(law.key, b"no law at all")

    with running_consumers(), pytest.raises(DemoFailed, match=f"not done: {', '.join(LAW_IDS)}"):
        shown.run("sent", expected=SAMPLE_LAWS)


def test_the_demo_ignores_the_queues_of_the_shell(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL"):
        monkeypatch.setenv(name, "https://sqs.example/1/theirs")
        setattr(settings, name, "https://sqs.example/1/theirs")

    demo.clear_queue_urls()

    assert (settings.SQS_QUEUE_URL, os.environ["SQS_QUEUE_URL"], os.environ["SQS_PRIORITY_QUEUE_URL"]) == ("", "", "")
    assert [program.name for program in programs(Address("127.0.0.1", 9))] == ["the API", "the workers"]


@pytest.mark.django_db
def test_waiting_for_unread_messages_ends(aws: FakeAws, console: Console) -> None:
    shown = rounds(aws, console, seconds=0.3)

    with pytest.raises(DemoFailed, match="still in the queue"):
        shown.run("sent")

    aws.sqs.purge_queue(QueueUrl=aws.queue_url)


@pytest.mark.django_db
def test_a_database_with_other_statutes_is_rejected() -> None:
    for law in SAMPLE_LAWS:
        LawVersion.objects.create(document_id=law.document_id, law_id=law.law_id, version="1", bucket="b", raw_key="k")
    StatuteScenario().check_database()

    LawVersion.objects.filter(pk=SAMPLE_LAWS[0].document_id).update(law_id="ISR_2024")

    with pytest.raises(DemoFailed, match="statutes of its own"):
        StatuteScenario().check_database()
