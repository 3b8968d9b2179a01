"""Fake vendors (LlamaParse, OpenAI, S3) and fake AWS (S3, SQS, Bedrock) for the demo, as a process of their own."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

from accessa.demo.scenario import use_settings, use_variables
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


def fetch_ledger(fake: dict[str, Any]) -> dict[str, Any]:
    """Return what a fake has sold, in its ``ledger``, and its other counters."""
    with urllib.request.urlopen(fake["control"], timeout=STOP_SECONDS) as response:  # noqa: S310
        counters: dict[str, Any] = json.loads(response.read())
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


class StoredObject(NamedTuple):
    """An object of the bucket; ``etag`` changes with its bytes."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class FakeAws:
    """S3 with a bucket, SQS with a queue and its dead letters, Bedrock."""

    fakes: Fakes
    s3: Any
    sqs: Any
    queue_url: str
    dead_letter_url: str

    def put_object(self, key: str, content: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content)

    def send_message(self, message: dict[str, Any]) -> None:
        self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps(message))

    def list_objects(self) -> list[StoredObject]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        rows = [row for page in pages for row in page.get("Contents", [])]
        return [StoredObject(row["Key"], row["Size"], row["ETag"]) for row in rows]

    def count_messages(self, url: str) -> int:
        """Count the messages of a queue, those in flight included."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def titan_ledger(self) -> dict[str, int]:
        """Return the number of texts ``sold`` by Titan, and of those ``repeated``."""
        ledger: dict[str, int] = fetch_ledger(self.fakes["bedrock"])["ledger"]
        return ledger


@contextmanager
def run_fake_aws() -> Iterator[FakeAws]:
    """Run fake AWS, and point this process and those that it starts at it, inside the block."""
    with (
        run_fakes("s3", "bedrock") as fakes,
        closing(_client("s3", fakes)) as s3,
        closing(_client("sqs", fakes)) as sqs,
    ):
        s3.create_bucket(Bucket=BUCKET)
        dead = sqs.create_queue(QueueName=DEAD_LETTERS)["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": MAX_RECEIVES}
        url = sqs.create_queue(QueueName=QUEUE, Attributes={"RedrivePolicy": json.dumps(policy)})["QueueUrl"]
        with use_fake_aws(fakes, url):
            yield FakeAws(fakes, s3, sqs, url, dead)


def _client(service: str, fakes: Fakes) -> Any:
    """Return a client of S3 or SQS, which answer at the same address."""
    s3 = fakes["s3"]
    session = boto3.Session(s3["access_key"], s3["secret_key"], region_name=s3["region"])
    return session.client(service, endpoint_url=s3["url"], config=Config(s3={"addressing_style": "path"}))


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
    with use_variables(changes | variables, unset=FOREIGN), use_settings(**changes):
        yield
