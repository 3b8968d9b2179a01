"""Fake SQS and S3 (moto) and SQS consumers in threads of the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.db import connection

from jobs.cluster import shared_state
from statutes.consumer.consumer import Consumer
from testing.fakes.s3 import S3Server

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = "us-east-1"


class SqsServer(S3Server):
    """Answers for S3, too. Queues are made with dead letters of their own."""

    name = "aws"

    def __init__(self) -> None:
        super().__init__(buckets=())

    @property
    def sqs(self) -> Any:
        return self.client("sqs")

    @property
    def s3(self) -> Any:
        return self.client("s3")

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Refuse connections until the end of the block; queues and buckets stay as they are."""
        self.refuse_connections()
        try:
            yield
        finally:
            self.open()

    def create_queue(self, *, most: int | None = 3) -> Queue:
        """Return a new queue that moves a message to its dead letters after ``most`` deliveries, if ever."""
        dead = self.sqs.create_queue(QueueName=f"dead-{uuid4().hex}")["QueueUrl"]
        queue_attributes = self.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": queue_attributes["QueueArn"], "maxReceiveCount": most}
        attributes = {"RedrivePolicy": json.dumps(policy)} if most else {}
        url = self.sqs.create_queue(QueueName=f"laws-{uuid4().hex}", Attributes=attributes)["QueueUrl"]
        return Queue(self.sqs, url, dead)

    def create_bucket(self, name: str, objects: dict[str, bytes]) -> Callable[[], list[str]]:
        """Make a bucket with ``objects`` in it; return what lists its keys."""
        self.s3.create_bucket(Bucket=name)
        for key, content in objects.items():
            self.s3.put_object(Bucket=name, Key=key, Body=content)
        return lambda: list(self.read_objects(name))

    def read_objects(self, bucket: str) -> dict[str, bytes]:
        """Return what lies in a bucket, by its keys."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: self.s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def delete_objects(self, bucket: str, keys: list[str]) -> None:
        for key in keys:
            self.s3.delete_object(Bucket=bucket, Key=key)


class Queue:
    def __init__(self, client: Any, url: str, dead_url: str) -> None:
        self._client, self.url, self.dead_url = client, url, dead_url

    def send(self, body: dict[str, Any] | str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self._client.send_message(QueueUrl=self.url, MessageBody=text)

    def receive_all(self) -> list[str]:
        """Take out what could be received; return the bodies."""
        return self._take(self.url)

    def receive_dead_letters(self) -> list[str]:
        return self._take(self.dead_url)

    def message_counts(self) -> tuple[int, int]:
        """Return how many messages could be received, and how many are held by somebody, at one moment."""
        return self._counts(self.url)

    def dead_letter_count(self) -> int:
        return self._counts(self.dead_url)[0]

    @property
    def is_empty(self) -> bool:
        return self.message_counts() == (0, 0)

    def _take(self, url: str) -> list[str]:
        messages = self._client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            self._client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return [message["Body"] for message in messages]

    def _counts(self, url: str) -> tuple[int, int]:
        # One call: between two, a message that becomes visible would be counted by neither.
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(counts[names[0]]), int(counts[names[1]])


@contextmanager
def running_consumers(count: int = 1, **options: bool) -> Iterator[list[Consumer]]:
    """Consumers in threads of this process, until the end of the block."""
    shared_state.start_cluster()
    consumers = [Consumer(**options) for _ in range(count)]
    threads = [threading.Thread(target=_run, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    try:
        yield consumers
    finally:
        shared_state.request_stop()
        for thread in threads:
            thread.join(30)
        shared_state.start_cluster()


def _run(consumer: Consumer) -> None:
    try:
        consumer.run()
    finally:
        connection.close()
