"""Fixtures: a bucket of statutes, and a queue."""

from collections.abc import Iterator
from typing import Any

import pytest

from statutes.tests.artifact_factories import InterruptibleS3Server, empty_buckets
from statutes.tests.sample_laws import BUCKET
from testing.fakes.s3 import S3Server
from testing.sqs import CREDENTIALS, Queue, SqsServer


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(buckets=(BUCKET,)) as server:
        yield server


@pytest.fixture
def laws(server: S3Server, store: None, settings: Any) -> Iterator[S3Server]:
    settings.STATUTES_BUCKET = BUCKET
    settings.STATUTES_S3_ENDPOINT_URL = settings.S3_ENDPOINT_URL = server.url
    settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY = server.access_key, server.secret_key
    yield server
    server.clear_faults()
    client = server.client()
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=each["Key"])
    client.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[InterruptibleS3Server]:
    with InterruptibleS3Server() as server:
        yield server


@pytest.fixture
def s3(
    mortal: InterruptibleS3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InterruptibleS3Server]:
    """Provide a bucket for tests of the S3 client and the artifacts alone."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", mortal.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", mortal.secret_key)
    settings.STATUTES_BUCKET, settings.STATUTES_S3_ENDPOINT_URL = BUCKET, mortal.url
    yield mortal
    mortal.left = None
    mortal.clear_faults()
    empty_buckets()


@pytest.fixture(scope="module")
def queues() -> Iterator[SqsServer]:
    with SqsServer() as server:
        yield server


@pytest.fixture
def queue(queues: SqsServer, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Queue:
    for name, setting in CREDENTIALS.items():
        monkeypatch.setenv(name, setting)
    new_queue = queues.create_queue()
    settings.SQS_QUEUE_URL, settings.SQS_ENDPOINT_URL = new_queue.url, queues.endpoint
    return new_queue
