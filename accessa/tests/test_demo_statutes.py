"""The demo of statutes: its stand-ins of AWS, its rounds of messages, and what it does not show where it went wrong."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator

import pytest
from django.conf import settings as used
from pytest_django import Settings
from rich.console import Console

from accessa.demo import fake_aws, statutes
from accessa.demo.fake_aws import Aws
from accessa.demo.statute_messages import OURS, NotEnacted, Rounds
from accessa.management.commands import demo
from accessa.server.programs import Address, programs
from accessa.server.supervisor import Supervisor
from statutes.models import Law, LawVersion
from testing.cluster import database_url, used_database
from testing.sqs import consuming

pytestmark = pytest.mark.slow

MADE = ("law.json", "manifest.json", "_vectors.jsonl")


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with fake_aws.standing_in() as aws:
        yield aws


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=160)


def rounds(aws: Aws, console: Console, look: object = None, seconds: float = 200) -> Rounds:
    for law in OURS:
        aws.put(law.key, law.file.read_bytes())
    return Rounds(console, aws, look if callable(look) else lambda: None, time.monotonic() + seconds)


def test_what_fails_ends_in_a_queue_of_its_own(aws: Aws) -> None:
    told = aws.sqs.get_queue_attributes(QueueUrl=used.SQS_QUEUE_URL, AttributeNames=["RedrivePolicy"])
    dead = aws.sqs.get_queue_attributes(QueueUrl=aws.dead, AttributeNames=["QueueArn"])

    policy = json.loads(told["Attributes"]["RedrivePolicy"])

    assert policy == {"deadLetterTargetArn": dead["Attributes"]["QueueArn"], "maxReceiveCount": 3}


def test_the_settings_are_as_before_when_the_stand_ins_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody's own")
    monkeypatch.setenv("SQS_QUEUE_URL", "https://sqs.example/1/theirs")
    before, queue = dict(os.environ), used.SQS_QUEUE_URL

    with fake_aws.pointed({"s3": _told("s3"), "bedrock": _told("bedrock")}, "http://127.0.0.1:9/laws"):
        assert "AWS_PROFILE" not in os.environ
        assert (os.environ["SQS_QUEUE_URL"], used.SQS_QUEUE_URL) == ("http://127.0.0.1:9/laws",) * 2

    assert (dict(os.environ), used.SQS_QUEUE_URL) == (before, queue)


def kill(kept: Supervisor) -> None:
    process = kept.children[0].process
    assert process is not None
    process.kill()


def _told(name: str) -> dict[str, str]:
    return {"url": f"http://{name}.example", "region": "us-east-1", "access_key": "a", "secret_key": "b"}


@pytest.mark.django_db(transaction=True)
def test_serve_starts_a_killed_consumer_again_and_nothing_is_bought_or_written_differently(
    aws: Aws, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url(used_database()))
    monkeypatch.setenv("LOG_LEVEL", "ERROR")
    said: list[str] = []
    kept = Supervisor(programs(Address("127.0.0.1", 9))[2:], report=said.append)
    shown = rounds(aws, console, kept.tick)
    try:
        kept.tick()
        kill(kept)
        shown.run("sent", worked_on=OURS)
        first, bought = aws.stored(), aws.sold()["sold"]
        shown.run("sent again")
        shown.run("by force", worked_on=OURS, forced=[law.law_id for law in OURS])
    finally:
        kept.stop()

    assert said == ["the statutes' consumer ended (killed by SIGKILL); starting again in 0.5 s"]
    assert sum(found.key.endswith(MADE) for found in first) == 9
    assert (aws.stored(), aws.sold()["sold"], aws.sold()["repeated"]) == (first, bought, 0)
    assert bought == sum(Law.objects.values_list("chunk_count", flat=True)) > 3
    assert aws.waiting() + aws.dead_letters() == 0


@pytest.mark.django_db(transaction=True)
def test_a_law_that_does_not_end_well_is_named(aws: Aws, console: Console, settings: Settings) -> None:
    settings.SQS_WAIT_SECONDS = 1
    shown = rounds(aws, console)
    for law in OURS:
        aws.put(law.key, b"no law at all")

    with consuming(), pytest.raises(NotEnacted, match=f"not done: {', '.join(law.law_id for law in OURS)}"):
        shown.run("sent", worked_on=OURS)


def test_a_demo_takes_nothing_from_the_queue_that_the_shell_is_set_to(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL"):
        monkeypatch.setenv(name, "https://sqs.example/1/theirs")
        setattr(settings, name, "https://sqs.example/1/theirs")

    demo.take_no_messages()

    assert (settings.SQS_QUEUE_URL, os.environ["SQS_QUEUE_URL"], os.environ["SQS_PRIORITY_QUEUE_URL"]) == ("", "", "")
    assert [program.name for program in programs(Address("127.0.0.1", 9))] == ["the API", "the workers"]


@pytest.mark.django_db
def test_messages_that_nobody_takes_are_not_waited_for_without_end(aws: Aws, console: Console) -> None:
    shown = rounds(aws, console, seconds=0.3)

    with pytest.raises(NotEnacted, match="still in the queue"):
        shown.run("sent")

    aws.sqs.purge_queue(QueueUrl=aws.queue)


@pytest.mark.django_db
def test_the_demo_wants_no_laws_of_somebodys_own_beside_it() -> None:
    for law in OURS:
        LawVersion.objects.create(document_id=law.document_id, law_id=law.law_id, version="1", bucket="b", raw_key="k")
    statutes.check()

    LawVersion.objects.filter(pk=OURS[0].document_id).update(law_id="ISR_2024")

    with pytest.raises(NotEnacted, match="laws of its own"):
        statutes.check()
