"""S3 events of tenants' uploads on the same queue."""

import json
from typing import Any
from uuid import UUID

import boto3
import pytest
import requests
from django.conf import settings as configured

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services
from documents.models import Document
from documents.tests.s3_settings import use_s3_storage
from jobs import claims, worker
from jobs.models import UploadJob
from statutes.sqs.message_bodies import parse_items
from statutes.sqs.s3_events import UploadNotification
from statutes.tests.sqs_messages import s3_record
from testing.cluster import wait_until
from testing.factories import JobFactory
from testing.personas import Person, plan_pdf, upload_request
from testing.sqs import REGION, Queue, SqsServer, running_consumers

PDF = plan_pdf("hospital care")
WAITS = {"run_after": "2099-01-01T00:00:00Z", "wait_reason": "WAITING_FOR_UPLOAD"}


class Endpoint:
    """moto's S3, as settings name it."""

    def __init__(self, url: str) -> None:
        self.url, self.access_key, self.secret_key = url, "test", "test"


@pytest.fixture
def queue(queue: Queue, queues: SqsServer, settings: Any, store: None) -> Queue:
    """Create a queue, and a bucket of uploads that notifies it."""
    settings.SQS_WAIT_SECONDS, settings.STATUTES_BUCKET = 1, "fiscal"
    use_s3_storage(settings, Endpoint(queues.endpoint))  # type: ignore[arg-type]
    s3 = boto3.client(
        "s3", endpoint_url=queues.endpoint, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
    )
    for bucket in (settings.S3_RAW_BUCKET, settings.S3_PARSED_BUCKET):
        s3.create_bucket(Bucket=bucket)
    arn = f"arn:aws:sqs:{REGION}:123456789012:{queue.url.rpartition('/')[2]}"
    configuration = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}
    s3.put_bucket_notification_configuration(Bucket=settings.S3_RAW_BUCKET, NotificationConfiguration=configuration)
    s3.close()
    return queue


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_an_upload_notification_resumes_the_job(queue: Queue, ana: Person) -> None:
    declared = ana.request_upload(PDF).json()
    worker.drain()
    UploadJob.objects.update(run_after=WAITS["run_after"])  # its own timer would not look for years

    with running_consumers(works=False):
        answer = requests.put(
            declared["signed_url"], PDF, headers={"Content-Type": upload_request(PDF)["mime"]}, timeout=10
        )
        wait_until(lambda: UploadJob.objects.get().run_after is None, seconds=20)
        wait_until(lambda: queue.is_empty, seconds=10)

    claim = claims.claim_next("w")
    assert answer.status_code == 200
    assert claim is not None
    worker.run_stage(claim)
    assert UploadJob.objects.get().stage == "job_validated"
    assert Document.objects.get().stored_at is not None


def message_bodies(key: str, bucket: str = "") -> list[bool]:
    """Tell of an object as the queue would, and return whether somebody waited for it."""
    record = s3_record(key, bucket or configured.S3_RAW_BUCKET)
    items = parse_items(json.dumps({"Records": [record]}))
    uploads = [entry for entry in items if isinstance(entry, UploadNotification)]
    return [services.upload_arrived(user_id=entry.user_id, document_id=entry.document_id) for entry in uploads]


ANA, BEN = UUID(int=3), UUID(int=4)
FORGED = {
    "another tenant's folder": (f"{BEN}/{{}}.pdf", [False]),
    "a document that is not there": (f"{ANA}/{UUID(int=5)}.pdf", [False]),
    "another kind of file": (f"{ANA}/{{}}.md", []),
    "a deeper folder": (f"x/{ANA}/{{}}.pdf", []),
    "no tenant": ("-" * 36 + "/{}.pdf", []),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_key_resumes_no_job(name: str, settings: Any) -> None:
    settings.STATUTES_BUCKET = "fiscal"
    job = JobFactory.create(user_id=ANA, pipeline="wait", **WAITS)
    key, expected = FORGED[name]

    answered = message_bodies(key.format(job.document_id))

    assert answered == expected
    assert UploadJob.objects.get().wait_reason == "WAITING_FOR_UPLOAD"


@pytest.mark.django_db
def test_an_object_in_another_bucket_resumes_no_job(settings: Any) -> None:
    settings.STATUTES_BUCKET = "fiscal"
    job = JobFactory.create(user_id=ANA, pipeline="wait", **WAITS)

    assert message_bodies(f"{ANA}/{job.document_id}.pdf", "elsewhere") == []
    assert message_bodies(f"{ANA}/{job.document_id}.pdf") == [True]
    assert UploadJob.objects.get().run_after is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("user_id", "stored"), [(ANA, "2026-01-01T00:00:00Z"), (SYSTEM_TENANT_ID, None)], ids=["stored", "a law"]
)
def test_stored_documents_and_statutes_are_not_resumed(user_id: UUID, stored: str | None, settings: Any) -> None:
    settings.STATUTES_BUCKET = "fiscal"
    job = JobFactory.create(user_id=user_id, pipeline="wait", **WAITS)
    Document.objects.update(stored_at=stored)

    assert message_bodies(f"{user_id}/{job.document_id}.pdf") == [False]
    assert UploadJob.objects.get().run_after is not None
