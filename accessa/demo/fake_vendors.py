"""Fake vendors (LlamaParse, OpenAI, S3) and fake AWS (S3, SQS, Bedrock) for the demo, as a process of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import boto3
import httpx
from botocore.config import Config
from django.test import override_settings

from accessa.server.programs import REPOSITORY, Address

STOP_SECONDS = 10.0
BUCKET, QUEUE, DEAD_LETTERS = "laws", "laws", "laws-dead-letters"
MAX_RECEIVES = 3
# Variables that a developer's shell may hold and that must not reach the fakes.
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "SQS_PRIORITY_QUEUE_URL", "STATUTES_LAMBDA", "TITAN_MODEL")

Fakes = dict[str, Any]  # by name: what `python -m testing.fakes` prints of each


@contextmanager
def run_fakes(*names: str, options: tuple[str, ...] = ()) -> Iterator[Fakes]:
    """Run the named fakes as one process inside the block. ``options`` are those of `python -m testing.fakes`."""
    ports = [word for name in names for word in (f"--{name}-port", "0")]
    process = subprocess.Popen(
        [sys.executable, "-m", "testing.fakes", *ports, *options],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches us alone: the clients must stop first
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise RuntimeError("The fake vendors did not start.")
        fakes: Fakes = json.loads(line)
        yield fakes
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        if process.stdout:
            process.stdout.close()


def fetch_counters(fake: dict[str, Any]) -> dict[str, Any]:
    """Return what a fake has sold, in its ``ledger``, and its other counters."""
    counters: dict[str, Any] = httpx.get(fake["control"], timeout=STOP_SECONDS).raise_for_status().json()
    return counters


def vendor_variables(fakes: Fakes, address: Address) -> dict[str, str]:
    llamaparse, openai, s3 = fakes["llamaparse"], fakes["openai"], fakes["s3"]
    return {
        "LLAMAPARSE_API_KEY": llamaparse["key"],
        "LLAMAPARSE_BASE_URL": llamaparse["url"],
        "LLAMAPARSE_CALLBACK_URL": f"{address.url}/webhooks/llamaparse",
        "OPENAI_API_KEY": openai["key"],
        "OPENAI_BASE_URL": openai["url"],
        "S3_ENDPOINT_URL": s3["url"],
        "S3_ACCESS_KEY_ID": s3["access_key"],
        "S3_SECRET_ACCESS_KEY": s3["secret_key"],
        "S3_REGION": s3["region"],
    }


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
