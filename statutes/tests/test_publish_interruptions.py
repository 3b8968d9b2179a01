"""Interruptions of a publication, between two steps that look like one."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings as configured
from django.db import connection
from django.db.utils import InterfaceError, OperationalError

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from embeddings.tests.conftest import RecordingOpenAIServer, vendor  # noqa: F401  (a fixture)
from jobs import worker
from jobs.claims import ClaimLost
from statutes import failed_versions, withdrawal
from statutes.consumer.message_jobs import settle_message
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.s3 import client as bucketed
from statutes.sqs import client as sqs
from statutes.tests import sample_laws
from statutes.tests.sample_laws import (
    BUCKET,
    KEY,
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    put_file,
    statute_message,
)
from statutes.tests.test_lambda import ARN, Lambda
from testing.fakes.http_messages import Request, Response
from testing.fakes.s3 import S3Server
from testing.personas import claim_at_stage, run_all_jobs
from testing.sqs import CREDENTIALS, Queue, SqsServer

pytestmark = pytest.mark.django_db
MANIFEST, VECTORS = "normalized/LIVA/manifest.json", "embeddings/LIVA_vectors.jsonl"
Event = Callable[[], object]


class Eventful(S3Server):
    """An S3 during whose work something happens: once, after the first request that ``at`` knows."""

    def __init__(self) -> None:
        super().__init__(buckets=(BUCKET,))
        self.happens: tuple[str, str, Event] | None = None

    def after(self, method: str, target: str, event: Event) -> None:
        self.happens = (method, target, event)

    def respond(self, request: Request) -> Response:
        answer = super().respond(request)
        if self.happens and request.method == self.happens[0] and request.target == self.happens[1]:
            _, _, event = self.happens
            self.happens = None
            event()
        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Eventful]:
    with Eventful() as server:
        yield server


class Witness(Lambda):
    """A function that reads the manifest when it is told of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def respond(self, request: Request) -> Response:
        event = json.loads(request.body)
        self.read.append(hashlib.sha256(bucketed.read_object(event["bucket"], event["manifest_key"])).hexdigest())
        return super().respond(request)


@pytest.mark.slow
def test_the_function_is_invoked_once_per_version_after_its_manifest(
    laws: S3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Witness() as function:
        for name, setting in {**CREDENTIALS, "AWS_ENDPOINT_URL_LAMBDA": function.url}.items():
            monkeypatch.setenv(name, setting)
        settings.STATUTES_LAMBDA = ARN

        process(laws, law_xml(TAXED))
        process(laws, law_xml(LOWER), "2024-02")

    assert [event["version"] for _, _, event in function.told_] == ["2024-01", "2024-02"]
    assert [event["manifest_sha256"] for _, _, event in function.told_] == function.read


def test_an_invalid_canonical_law_is_not_uploaded(laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("parsed")
    LawVersion.objects.update(canonical={**(sample_laws.version_of(sent).canonical or {}), "title": 7})

    claim.settle(worker.run_stage(claim))
    run_all_jobs()

    job = sample_laws.job_of(sent)
    assert (job.state, (job.last_error or {}).get("code")) == ("deadletter", "LAW_SCHEMA_INVALID")
    assert list(bucket_objects(laws)) == [KEY]


def test_a_text_changed_in_the_store_is_not_published(laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("parsed")
    path = Path(configured.STORAGE_ROOT, str(Document.objects.get().parsed_path).removeprefix("storage://"))
    path.write_bytes(path.read_bytes().replace(b"impuesto", b"IMPUESTO", 1))

    claim.settle(worker.run_stage(claim))
    run_all_jobs()

    job = sample_laws.job_of(sent)
    assert (job.state, (job.last_error or {}).get("code")) == ("deadletter", "PARSE_HASH_MISMATCH")
    assert list(bucket_objects(laws)) == [KEY]


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM document_vector_buffer WHERE chunk_id IN (SELECT min(chunk_id::text)::uuid FROM document_chunks)",
        "UPDATE document_vector_buffer SET embedding = embedding * embedding",
    ],
    ids=["missing", "unsound"],
)
def test_corrupt_vectors_are_not_published(harm: str, laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED, RATE))
    claim = claim_at_stage("embeddings_buffered")
    with connection.cursor() as cursor:
        cursor.execute(harm)

    claim.settle(worker.run_stage(claim))
    run_all_jobs()

    job = sample_laws.job_of(sent)
    assert (job.state, (job.last_error or {}).get("code")) == ("deadletter", "VECTORS_NOT_SOUND")
    assert list(bucket_objects(laws)) == [KEY]
    accept_message(sent)  # the queue's next delivery buys what is missing
    run_all_jobs()
    assert (Law.objects.get().status, are_searchable(TAXED, RATE)) == ("embedded", [True, True])


def _elsewhere(sql: str) -> Event:
    """Return what lets another process change the database."""
    params = connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}

    def act() -> None:
        with psycopg.connect(**params) as other:
            other.execute(sql)

    return act


CLAIM_LOST = "UPDATE upload_jobs SET claim_token = gen_random_uuid()"
TURN_LOST = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.pid <> pg_backend_pid()"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("lost", "error"),
    [(CLAIM_LOST, ClaimLost), (TURN_LOST, (OperationalError, InterfaceError))],
    ids=["claim", "turn"],
)
def test_a_claim_lost_during_the_upload_writes_no_manifest(lost: str, error: type[Exception], laws: Eventful) -> None:
    deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("embedded")
    laws.after("PUT", f"/{BUCKET}/{VECTORS}", _elsewhere(lost))

    with pytest.raises(error):
        worker.run_stage(claim)
    connection.close()

    lies = bucket_objects(laws)
    assert VECTORS in lies
    assert MANIFEST not in lies


def test_a_file_swapped_after_its_check_is_checked_again(laws: Eventful) -> None:
    infected = "GuardDutyMalwareScanStatus=THREATS_FOUND"
    sent = statute_message()
    put_file(laws, law_xml(TAXED))
    accept_message(sent)
    laws.after("GET", f"/{BUCKET}/{KEY}?tagging", lambda: put_file(laws, law_xml(LOWER), tags=infected))

    run_all_jobs()

    job = sample_laws.job_of(sent)
    assert laws.happens is None
    assert (job.state, (job.last_error or {}).get("code")) == ("deadletter", "RAW_FILE_INFECTED")
    assert list(bucket_objects(laws)) == [KEY]


@pytest.fixture
def choosy(vendor: RecordingOpenAIServer, settings: Any) -> RecordingOpenAIServer:  # noqa: F811
    """Set a model for statutes that refuses texts about the border."""
    settings.EMBEDDER, settings.EMBEDDERS_OF = "local", {SYSTEM_TENANT_ID: "openai"}
    vendor.poison = "fronteriza"
    return vendor


def test_a_repeated_message_of_a_partial_statute_requests_missing_passages(
    choosy: RecordingOpenAIServer, laws: S3Server
) -> None:
    process(laws, law_xml(TAXED, LOWER))
    choosy.poison = ""

    again = accept_message(statute_message())
    run_all_jobs()

    assert again.status == IntakeStatus.ACCEPTED
    assert (Law.objects.get().status, are_searchable(TAXED, LOWER)) == ("embedded", [True, True])


def test_missing_passages_are_requested_with_a_delay(
    choosy: RecordingOpenAIServer, laws: S3Server, queues: SqsServer, queue: Queue
) -> None:
    process(laws, law_xml(TAXED, LOWER))

    outcome = settle_message(statute_message(), sample_laws.job_of(statute_message()))

    event = queues.sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
    seen = sqs.receive_messages(queue.url, most=1, wait=0)

    assert (outcome, event["ApproximateNumberOfMessagesDelayed"], seen) == ("delete", "1", [])


def test_a_withdrawal_deletes_the_manifest_first(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    laws.ledger.clear()

    withdrawal.withdraw("LIVA", by=None, reason="repealed")

    removed = [route.partition(" ")[2] for route in laws.ledger.counts if route.startswith("DELETE")]
    assert removed[0] == f"/{BUCKET}/{MANIFEST}"
    assert {f"/{BUCKET}/{VECTORS}", f"/{BUCKET}/normalized/LIVA/law.json"} < set(removed)


def test_a_version_that_became_live_does_not_expire(laws: S3Server) -> None:
    for law_id in ("FIRST", "SECOND"):
        sent = deliver(laws, b"no law", law_id=law_id)
        run_all_jobs()
        settle_message(sent, sample_laws.job_of(sent))
    second = sample_laws.version_of(sent).pk
    with connection.cursor() as cursor:
        cursor.execute("UPDATE law_versions SET updated_at = updated_at - make_interval(days => 31)")
        cursor.execute(f"""
            CREATE FUNCTION pg_temp.found() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                UPDATE laws SET document_id = '{second}' WHERE law_id = 'SECOND';
                RETURN NULL;
            END $$;
            CREATE TRIGGER meanwhile AFTER DELETE ON documents FOR EACH ROW EXECUTE FUNCTION pg_temp.found()""")

    failed_versions.delete_expired_failures()

    assert Document.objects.get().pk == Law.objects.get(pk="SECOND").document_id == second
