"""Messages for jobs that another message has started: none is lost or becomes a dead letter."""

from dataclasses import replace
from typing import Any

import pytest

from jobs import claims, worker
from jobs.choices import Stage
from jobs.claims import Claim
from jobs.models import UploadJob
from jobs.outcomes import Outcome, Wait
from statutes import withdrawal
from statutes.consumer import message_jobs
from statutes.consumer.in_flight_messages import InFlightMessage, InFlightMessages
from statutes.consumer.message_jobs import MessageJobs
from statutes.consumer.status_reporter import Status
from statutes.intake import accept_message
from statutes.sqs import client
from statutes.sqs.message_schema import Message
from statutes.tests import failure_injection, sample_laws
from statutes.tests.sample_laws import (
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    deliver,
    law_xml,
    process,
    put_file,
    statute_message,
)
from testing.error_codes import error_code
from testing.fakes.s3 import S3Server
from testing.personas import make_parked_jobs_due, run_all_jobs
from testing.sqs import Queue

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue(queue: Queue, settings: Any) -> Queue:
    settings.JOBS_PIPELINES = "statutes.tests.failure_injection.PIPELINES"
    return queue


class Hand:
    """A consumer's hand: it holds what it is given, and works when it is told to."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.in_flight, self.status = queue, InFlightMessages(), Status()
        self.work = MessageJobs(self.in_flight, self.status, {queue.url: 3})

    def take(self, *items: Message) -> InFlightMessage:
        """Receive what the queue has, as a message that asks for ``items``, and begin it."""
        [received] = client.receive_messages(self.queue.url, wait=0)
        held = InFlightMessage(received, list(items))
        self.in_flight.add(held)
        self.work.dispatch(one=False)
        return held


@pytest.fixture
def hand(queue: Queue) -> Hand:
    queue.send("{}")
    return Hand(queue)


def waiting_job(claim: Claim) -> Outcome:
    raise Wait(600.0, error_code("VENDOR_RATE_LIMITED"))


def again(held: InFlightMessage) -> None:
    """Let a message come again at once."""
    client.change_visibility(held.received, 0)


@pytest.mark.slow
def test_a_forced_message_gets_the_current_file_despite_an_active_job(laws: S3Server, hand: Hand) -> None:
    with failure_injection.replace_stage(Stage.EMBEDDING, waiting_job):
        deliver(laws, law_xml(TAXED, RATE))
        worker.drain()
    forced = statute_message(force_reprocess=True)
    put_file(laws, law_xml(TAXED, LOWER))

    skipped = hand.take(forced)
    make_parked_jobs_due()
    run_all_jobs()
    hand.work.settle_ended()

    assert (list(skipped.jobs), hand.queue.message_counts()) == ([], (0, 1))
    assert are_searchable(TAXED, RATE, LOWER) == [True, True, False]
    again(skipped)
    hand.take(forced)
    run_all_jobs()
    hand.work.settle_ended()
    assert are_searchable(TAXED, RATE, LOWER) == [True, False, True]
    assert hand.queue.is_empty


@pytest.mark.parametrize(
    ("fields", "is_anothers"),
    [({}, False), ({"force_reprocess": True}, False), ({"force_reprocess": True, "raw_key": "raw/mended.xml"}, True)],
    ids=["again", "anew", "another file"],
)
def test_a_forced_message_waits_only_for_a_job_that_will_fetch_its_file(
    laws: S3Server, fields: dict[str, Any], is_anothers: bool
) -> None:
    sent = deliver(laws, law_xml(TAXED))

    answer = message_jobs.belongs_to_another(sample_laws.job_of(sent).pk, replace(sent, **fields), "another")

    assert answer is is_anothers


@pytest.mark.parametrize("is_dead", [False, True], ids=["new", "tried again"])
def test_the_message_that_started_a_job_waits_for_it(laws: S3Server, hand: Hand, is_dead: bool) -> None:
    sent = statute_message(force_reprocess=True)
    if is_dead:
        process(laws, b"no law")
    put_file(laws, law_xml(TAXED))
    first = hand.take(sent)
    assert claims.claim_next("another:1:1") is not None
    again(first)

    second = Hand(hand.queue).take(sent)

    assert list(second.jobs) == list(first.jobs) == [sample_laws.job_of(sent).pk]


@pytest.mark.parametrize(("receives", "pause"), [(1, 300.0), (2, 4980.0), (3, 4980.0)])
def test_a_message_is_hidden_until_the_job_of_another_consumer_ends(
    laws: S3Server, hand: Hand, settings: Any, receives: int, pause: float
) -> None:
    settings.SQS_VISIBILITY_SECONDS = 300
    deliver(laws, law_xml(TAXED))
    assert claims.claim_next("another:1:1") is not None
    for _ in range(receives - 1):
        [received] = client.receive_messages(hand.queue.url, wait=0)
        client.change_visibility(received, 0)

    skipped = hand.take(statute_message())

    assert (skipped.received.receives, skipped.pause) == (receives, pause)
    assert hand.queue.message_counts() == (0, 1)


def test_the_time_left_of_a_job_includes_its_wait(laws: S3Server, settings: Any) -> None:
    settings.JOBS_PIPELINES = "statutes.tests.failure_injection.PIPELINES"
    with failure_injection.replace_stage(Stage.EMBEDDING, waiting_job):
        sent = deliver(laws, law_xml(TAXED))
        worker.drain()

    left = message_jobs.time_left(sample_laws.job_of(sent).pk)

    assert 3000 + 500 < left <= 3000 + 600


def test_a_message_without_its_job_reappears_unless_the_statute_was_withdrawn(laws: S3Server, hand: Hand) -> None:
    put_file(laws, law_xml(TAXED))
    lost = hand.take(statute_message())
    UploadJob.objects.all().delete()
    hand.work.settle_ended()
    assert (len(hand.in_flight), hand.queue.message_counts()) == (0, (0, 1))

    again(lost)
    hand.take(statute_message())
    withdrawal.withdraw("LIVA", by=None, reason="repealed")
    hand.work.settle_ended()

    assert hand.queue.is_empty


def test_the_message_of_an_outdated_version_is_deleted(laws: S3Server, hand: Hand) -> None:
    put_file(laws, law_xml(TAXED))
    hand.take(statute_message())
    process(laws, law_xml(LOWER), "2024-02")
    run_all_jobs()

    hand.work.settle_ended()

    assert not UploadJob.objects.filter(document_id=sample_laws.version_of(statute_message()).pk).exists()
    assert hand.queue.is_empty


@pytest.mark.parametrize(("second", "counts"), [(law_xml(RATE), (1, 0)), (b"no law", (0, 1))], ids=["sound", "bad"])
def test_a_message_with_several_items_is_counted_once(
    laws: S3Server, hand: Hand, second: bytes, counts: tuple[int, int]
) -> None:
    put_file(laws, law_xml(TAXED))
    put_file(laws, second, key="raw/second.xml")

    hand.take(statute_message(), statute_message(law_id="SECOND", raw_key="raw/second.xml"))
    run_all_jobs()
    hand.work.settle_ended()

    assert (hand.status.ended, hand.status.failed) == counts
    assert hand.queue.is_empty


def test_a_duplicate_message_counts_as_ended(laws: S3Server, hand: Hand) -> None:
    process(laws, law_xml(TAXED))

    hand.take(statute_message())

    assert accept_message(statute_message()).status == "duplicate"
    assert (hand.status.ended, hand.status.failed) == (1, 0)
