"""SQS by moto's server, and consumers beside a test: in threads, or as the real command in a process."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import boto3
import requests
from botocore.config import Config
from django.conf import settings
from django.db import connection
from moto.server import ThreadedMotoServer

from jobs import cluster
from statutes.consuming import Consumer
from testing.cluster import MANAGE, database_url, until, used_database

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = "us-east-1"


class SqsServer:
    """``endpoint`` is where moto answers. Queues are made with dead letters of their own."""

    def __enter__(self) -> Self:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request otherwise
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        self.endpoint = "http://{}:{}".format(*self._moto.get_host_and_port())
        self.client = boto3.client(
            "sqs", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id="test",
            aws_secret_access_key="test", config=Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        requests.post(f"{self.endpoint}/moto-api/reset", timeout=10)
        self._moto.stop()

    def queue(self, *, most: int | None = 3) -> Queue:
        """Return a new queue that moves a message to its dead letters after ``most`` deliveries, if ever."""
        dead = self.client.create_queue(QueueName=f"dead-{uuid4().hex}")["QueueUrl"]
        told = self.client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": told["QueueArn"], "maxReceiveCount": most}
        attributes = {"RedrivePolicy": json.dumps(policy)} if most else {}
        url = self.client.create_queue(QueueName=f"laws-{uuid4().hex}", Attributes=attributes)["QueueUrl"]
        return Queue(self.client, url, dead)

    def bucket(self, name: str, objects: dict[str, bytes]) -> Callable[[], list[str]]:
        """Make a bucket with ``objects`` in it; return what lists its keys."""
        s3 = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id="test",
            aws_secret_access_key="test", config=Config(s3={"addressing_style": "path"}),
        )  # fmt: skip
        s3.create_bucket(Bucket=name)
        for key, content in objects.items():
            s3.put_object(Bucket=name, Key=key, Body=content)
        return lambda: [told["Key"] for told in s3.list_objects_v2(Bucket=name).get("Contents", [])]


class Queue:
    def __init__(self, client: Any, url: str, dead_url: str) -> None:
        self._client, self.url, self.dead_url = client, url, dead_url

    def put(self, body: dict[str, Any] | str) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self._client.send_message(QueueUrl=self.url, MessageBody=text)

    def waiting(self) -> tuple[int, int]:
        """Return how many messages could be received, and how many are held by somebody."""
        return self._count(self.url, ""), self._count(self.url, "NotVisible")

    def dead(self) -> int:
        return self._count(self.dead_url, "")

    @property
    def is_empty(self) -> bool:
        return self.waiting() == (0, 0)

    def _count(self, url: str, which: str) -> int:
        name = f"ApproximateNumberOfMessages{which}"
        return int(self._client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


@contextmanager
def consuming(count: int = 1, **options: bool) -> Iterator[list[Consumer]]:
    """Consumers in threads of this process, until the end of the block."""
    cluster.begin()
    consumers = [Consumer(**options) for _ in range(count)]
    threads = [threading.Thread(target=_run, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    try:
        yield consumers
    finally:
        cluster.stop()
        for thread in threads:
            thread.join(30)
        cluster.begin()


def _run(consumer: Consumer) -> None:
    try:
        consumer.run()
    finally:
        connection.close()


class Process:
    """`manage.py consume_sqs` on the test's database."""

    def __init__(self, *arguments: str, **environment: object) -> None:
        given = {
            "DATABASE_URL": database_url(used_database()),
            "JOBS_PIPELINES": settings.JOBS_PIPELINES,
            **{name: getattr(settings, name) for name in _PASSED},
            **KEYS,
        } | environment
        self.log = Path(tempfile.mkstemp(prefix="accessa-consumer-", suffix=".log")[1])
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*MANAGE, "consume_sqs", *arguments],
                cwd=settings.BASE_DIR,
                env=os.environ | {name: str(value) for name, value in given.items()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.unlink(missing_ok=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 40) -> int:
        self.process.terminate()
        return self.process.wait(seconds)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, said: str) -> None:
        until(lambda: said in self.said, seconds=40)


_PASSED = (
    "SQS_QUEUE_URL", "SQS_ENDPOINT_URL", "SQS_REGION", "SQS_VISIBILITY_SECONDS", "SQS_WAIT_SECONDS", "STATUTES_BUCKET",
    "JOBS_LEASE_SECONDS", "JOBS_STOP_GRACE_SECONDS", "JOBS_RETRY_BASE_SECONDS", "JOBS_MAX_RETRIES",
)  # fmt: skip
