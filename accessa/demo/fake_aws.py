"""Fake AWS (S3, SQS, Bedrock) for the demo of statutes."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import boto3
from botocore.config import Config
from django.test import override_settings

from accessa.demo.fakes_process import Fakes, fetch_counters, run_fakes

BUCKET, QUEUE, DEAD_LETTERS = "laws", "laws", "laws-dead-letters"
MAX_RECEIVES = 3
# Variables that a developer's shell may hold and that must not reach the fakes.
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "SQS_PRIORITY_QUEUE_URL", "STATUTES_LAMBDA", "TITAN_MODEL")


@dataclass(frozen=True, slots=True)
class FakeAws:
    """S3 with a bucket, SQS with a queue and its dead letters, Bedrock."""

    bedrock: dict[str, Any]
    s3: Any
    sqs: Any
    queue_url: str
    dead_letter_url: str

    def put_object(self, key: str, content: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content)

    def list_objects(self) -> dict[str, str]:
        """Return the etag of each object by its key. An etag changes with the bytes."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {row["Key"]: row["ETag"] for page in pages for row in page.get("Contents", [])}

    def count_messages(self, url: str) -> int:
        """Count the messages of a queue, those in flight included."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def titan_ledger(self) -> dict[str, int]:
        """Return the number of texts ``sold`` by Titan, and of those ``repeated``."""
        ledger: dict[str, int] = fetch_counters(self.bedrock)["ledger"]
        return ledger


@contextmanager
def run_fake_aws() -> Iterator[FakeAws]:
    with run_fakes("s3", "bedrock") as fakes:
        fake = fakes["s3"]  # SQS answers at the same address
        session = boto3.Session(fake["access_key"], fake["secret_key"], region_name=fake["region"])
        config = Config(s3={"addressing_style": "path"})
        with (
            closing(session.client("s3", endpoint_url=fake["url"], config=config)) as s3,
            closing(session.client("sqs", endpoint_url=fake["url"])) as sqs,
        ):
            s3.create_bucket(Bucket=BUCKET)
            dead = sqs.create_queue(QueueName=DEAD_LETTERS)["QueueUrl"]
            attributes = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
            policy = {"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": MAX_RECEIVES}
            url = sqs.create_queue(QueueName=QUEUE, Attributes={"RedrivePolicy": json.dumps(policy)})["QueueUrl"]
            with use_fake_aws(fakes, url):
                yield FakeAws(fakes["bedrock"], s3, sqs, url, dead)


@contextmanager
def use_fake_aws(fakes: Fakes, queue_url: str) -> Iterator[None]:
    s3, bedrock = fakes["s3"], fakes["bedrock"]
    changes = {
        "SQS_QUEUE_URL": queue_url,
        "SQS_ENDPOINT_URL": s3["url"],
        "SQS_REGION": s3["region"],
        "STATUTES_BUCKET": BUCKET,
        "STATUTES_S3_ENDPOINT_URL": s3["url"],
        "STATUTES_EMBEDDER": "titan",
        "TITAN_ENDPOINT_URL": bedrock["url"],
        "TITAN_REGION": bedrock["region"],
    }
    variables = {
        "AWS_ACCESS_KEY_ID": bedrock["access_key"],  # fake Bedrock verifies signatures; fake S3 takes any key
        "AWS_SECRET_ACCESS_KEY": bedrock["secret_key"],
        "SQS_WAIT_SECONDS": "1",  # a stopping consumer ends its long poll first
    }
    with mock.patch.dict(os.environ, changes | variables), override_settings(**changes):
        for name in FOREIGN:
            os.environ.pop(name, None)
        yield
