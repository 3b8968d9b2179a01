"""A bucket of laws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statutes.tests.lawbooks import BUCKET
from testing.vendors.s3 import S3Server


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
    server.behave()
    client = server.client()
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=each["Key"])
    client.close()
