"""Partially embedded laws: the rest is searchable, and missing passages are requested."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from accessa.integrity.violations import find_violations
from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.models import DocumentChunk
from embeddings.tests.conftest import RecordingOpenAIServer, vendor  # noqa: F401  (a fixture)
from jobs.models import UploadJob
from jobs.outcomes import Wait
from statutes import withdrawal
from statutes.consumer import message_jobs
from statutes.consumer.message_jobs import settle_message
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.sqs import client, message_bodies
from statutes.sqs.message_bodies import Item
from statutes.sqs.message_schema import Message
from statutes.tests import sample_laws
from statutes.tests.sample_laws import (
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    statute_message,
)
from testing.fakes.s3 import S3Server
from testing.personas import run_all_jobs
from testing.sqs import Queue

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr(message_jobs, "MIN_DELAY", 0)
    return queue


@pytest.fixture
def model(vendor: RecordingOpenAIServer, settings: Any) -> RecordingOpenAIServer:  # noqa: F811
    """Set a model for statutes that refuses texts about the border."""
    settings.EMBEDDER, settings.EMBEDDERS_OF = "local", {SYSTEM_TENANT_ID: "openai"}
    vendor.poison = "fronteriza"
    return vendor


def requested_items(queue: Queue) -> list[Item]:
    return [
        entry
        for received in client.receive_messages(queue.url, most=10, wait=0)
        for entry in message_bodies.parse_items(received.body)
    ]


def test_accepted_passages_are_kept_and_the_missing_ones_requested(
    model: RecordingOpenAIServer, laws: S3Server, queue: Queue
) -> None:
    sent = deliver(laws, law_xml(TAXED, RATE, LOWER))
    run_all_jobs()
    job, version = sample_laws.job_of(sent), sample_laws.version_of(sent)

    outcome = settle_message(sent, job)

    refused = DocumentChunk.objects.get(text__contains="fronteriza")
    manifest = json.loads(bucket_objects(laws)["normalized/LIVA/manifest.json"])
    assert (job.state, Law.objects.get().status, version.status) == ("done", "partial_failed", "partial_failed")
    assert version.refused == [str(refused.pk)] == manifest["missing"]
    assert are_searchable(TAXED, RATE, LOWER) == [True, True, False]
    assert job.embed_model == "text-embedding-3-small"
    assert outcome == "delete"
    assert sample_laws.version_of(sent).reprocessed == 1
    assert requested_items(queue) == [replace(sent, force_reprocess=True, rest=True)]
    assert list(find_violations(deep=True)) == []


def test_missing_passages_complete_a_statute_without_buying_a_vector_twice(
    model: RecordingOpenAIServer, laws: S3Server
) -> None:
    process(laws, law_xml(TAXED, RATE, LOWER))
    model.poison = ""

    again = accept_message(statute_message(force_reprocess=True))
    run_all_jobs()

    texts = list(DocumentChunk.objects.values_list("text", flat=True))
    assert again.status == IntakeStatus.ACCEPTED
    assert are_searchable(TAXED, RATE, LOWER) == [True, True, True]
    assert (Law.objects.get().status, sample_laws.version_of(statute_message()).refused) == ("embedded", [])
    assert [model.ledger.counts[hashlib.sha256(text.encode()).hexdigest()] for text in texts] == [1] * len(texts)
    assert json.loads(bucket_objects(laws)["normalized/LIVA/manifest.json"])["missing"] == []


@pytest.mark.slow
def test_permanently_refused_passages_are_requested_a_limited_number_of_times(
    model: RecordingOpenAIServer, laws: S3Server, queue: Queue, settings: Any
) -> None:
    settings.STATUTES_REPROCESS_MOST = 2
    sent = statute_message()
    process(laws, law_xml(TAXED, LOWER))

    for _ in range(4):
        assert settle_message(sent, sample_laws.job_of(sent)) == "delete"
        accept_message(statute_message(force_reprocess=True))
        run_all_jobs()

    assert len(requested_items(queue)) == 2
    assert Law.objects.get().status == "partial_failed"


def test_two_messages_of_one_job_request_missing_passages_once(
    model: RecordingOpenAIServer, laws: S3Server, queue: Queue
) -> None:
    job = process(laws, law_xml(TAXED, LOWER))

    outcomes = [settle_message(statute_message(), UploadJob.objects.get(pk=job.pk)) for _ in range(2)]

    assert outcomes == ["delete", "delete"]
    assert (len(requested_items(queue)), sample_laws.version_of(statute_message()).reprocessed) == (1, 1)


@pytest.mark.slow
def test_another_file_resets_the_number_of_requests(model: RecordingOpenAIServer, laws: S3Server) -> None:
    process(laws, law_xml(TAXED, LOWER))
    LawVersion.objects.update(reprocessed=3)
    process(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    same = sample_laws.version_of(statute_message())

    process(laws, law_xml(RATE, LOWER), force_reprocess=True)

    other = sample_laws.version_of(statute_message())
    assert (same.status, same.reprocessed) == (other.status, 3) == ("partial_failed", 3)
    assert other.reprocessed == 0


@pytest.mark.slow
def test_a_request_for_missing_passages_does_not_restore_a_withdrawn_statute(
    model: RecordingOpenAIServer, laws: S3Server, queue: Queue
) -> None:
    settle_message(statute_message(), process(laws, law_xml(TAXED, LOWER)))
    [rest] = requested_items(queue)
    assert isinstance(rest, Message)
    laws.inject_fault("DELETE *", "status-503", times=100)
    with pytest.raises(ApiError):
        withdrawal.withdraw("LIVA", by=None, reason="a court has ordered it")
    meanwhile = accept_message(rest)
    laws.clear_faults()
    withdrawal.withdraw("LIVA", by=None, reason="a court has ordered it")

    afterwards = accept_message(rest)

    assert meanwhile.status == afterwards.status == IntakeStatus.WITHDRAWN
    for each in (Law, LawVersion, UploadJob):
        assert not each._default_manager.exists(), each


def test_a_statute_with_every_passage_refused_fails(model: RecordingOpenAIServer, laws: S3Server) -> None:
    model.poison = " "
    job = process(laws, law_xml(TAXED))

    assert (job.state, (job.last_error or {})["code"]) == ("deadletter", "TEXT_REFUSED")


def test_a_request_is_repeated_after_a_queue_outage(
    model: RecordingOpenAIServer, laws: S3Server, queue: Queue, settings: Any
) -> None:
    process(laws, law_xml(TAXED, LOWER))
    settings.SQS_QUEUE_URL = queue.url + "-gone"

    with pytest.raises(Wait):
        settle_message(statute_message(), sample_laws.job_of(statute_message()))

    assert sample_laws.version_of(statute_message()).reprocessed == 0
