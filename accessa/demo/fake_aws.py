"""AWS on this machine for the demo of statutes: S3, SQS and Bedrock by stand-ins, with a bucket and a queue."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import boto3
from botocore.config import Config
from django.conf import settings

from accessa.demo.fake_vendors import books, started

BUCKET, QUEUE, DEAD = "laws", "laws", "laws-dead-letters"
MOST_RECEIVES = 3
COUNTED = ("", "NotVisible", "Delayed")
# What a shell of somebody who works with AWS may hold: none of it is for a stand-in.
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "SQS_PRIORITY_QUEUE_URL", "STATUTES_LAMBDA", "TITAN_MODEL")


class Stored(NamedTuple):
    """An object of the bucket; ``etag`` changes with its bytes."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Aws:
    """The stand-ins, with a bucket and a queue made. ``told`` is what they say of themselves."""

    told: dict[str, Any]
    s3: Any
    sqs: Any
    queue: str
    dead: str

    def put(self, key: str, content: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content)

    def send(self, message: dict[str, Any]) -> None:
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=json.dumps(message))

    def stored(self) -> list[Stored]:
        """Return what lies in the bucket, in the order of the keys."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [Stored(each["Key"], each["Size"], each["ETag"]) for page in pages for each in page.get("Contents", [])]

    def waiting(self) -> int:
        """Return how many messages the queue has, those that somebody holds included."""
        return self._count(self.queue)

    def dead_letters(self) -> int:
        return self._count(self.dead)

    def _count(self, queue: str) -> int:
        names = [f"ApproximateNumberOfMessages{which}" for which in COUNTED]
        found = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def written(self) -> int:
        """Return how often an object was written or removed."""
        ledger: dict[str, int] = books(self.told["s3"])["ledger"]
        return ledger["sold"]

    def sold(self) -> dict[str, int]:
        """Return what Titan has sold so far: ``sold`` texts, of which ``repeated`` more than once, and ``tokens``."""
        ledger: dict[str, int] = books(self.told["bedrock"])["ledger"]
        return {"tokens": 0, **ledger}


@contextmanager
def standing_in() -> Iterator[Aws]:
    """Run the stand-ins until the end of the block; point this process, and what it starts, at them by settings."""
    with started("s3", "bedrock") as told:
        s3, sqs = _client("s3", told), _client("sqs", told)
        s3.create_bucket(Bucket=BUCKET)
        dead = sqs.create_queue(QueueName=DEAD)["QueueUrl"]
        asked = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": asked["QueueArn"], "maxReceiveCount": MOST_RECEIVES}
        queue = sqs.create_queue(QueueName=QUEUE, Attributes={"RedrivePolicy": json.dumps(policy)})["QueueUrl"]
        try:
            with pointed(told, queue):
                yield Aws(told, s3, sqs, queue, dead)
        finally:
            s3.close()
            sqs.close()


def _client(service: str, told: dict[str, Any]) -> Any:
    """Return a client of S3, or of SQS, which answers at the same place."""
    s3 = told["s3"]
    session = boto3.Session(s3["access_key"], s3["secret_key"], region_name=s3["region"])
    return session.client(service, endpoint_url=s3["url"], config=Config(s3={"addressing_style": "path"}))


@contextmanager
def pointed(told: dict[str, Any], queue: str) -> Iterator[None]:
    """Have this process, and those that it starts, use the stand-ins until the end of the block."""
    s3, bedrock = told["s3"], told["bedrock"]
    chosen = {
        "SQS_QUEUE_URL": queue,
        "SQS_ENDPOINT_URL": s3["url"],
        "SQS_REGION": s3["region"],
        "STATUTES_BUCKET": BUCKET,
        "STATUTES_S3_ENDPOINT_URL": s3["url"],
        "STATUTES_EMBEDDER": "titan",
        "TITAN_ENDPOINT_URL": bedrock["url"],
        "TITAN_REGION": bedrock["region"],
    }
    environment, ours = dict(os.environ), {name: getattr(settings, name) for name in chosen}
    for name in FOREIGN:
        os.environ.pop(name, None)
    theirs = {
        # Bedrock's stand-in looks at signatures; the other takes any key.
        "AWS_ACCESS_KEY_ID": bedrock["access_key"],
        "AWS_SECRET_ACCESS_KEY": bedrock["secret_key"],
        "SQS_WAIT_SECONDS": "1",  # a consumer that is told to stop hears its long poll out
    }
    os.environ.update(chosen | theirs)
    _set(chosen)
    try:
        yield
    finally:
        for name in {*chosen, *theirs, *FOREIGN}:
            os.environ.pop(name, None)
        os.environ.update({name: environment[name] for name in {*chosen, *theirs, *FOREIGN} & environment.keys()})
        _set(ours)


def _set(chosen: dict[str, Any]) -> None:
    for name, value in chosen.items():
        setattr(settings, name, value)
