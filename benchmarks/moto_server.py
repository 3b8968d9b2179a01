"""Fake SQS and S3 (moto's server in its own process) and boto3 clients of it."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3
from botocore.config import Config

from benchmarks import subprocesses

BUCKET = "laws"
REGION = "us-east-1"
ON_DISK = str(64 * 1024)  # bytes from which the server keeps an object on disk: the vectors of 100 laws are 700 MB
CONCURRENT_UPLOADS = 16  # as many uploads together as the product makes


class Aws:
    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.s3, self.sqs = client("s3", endpoint), client("sqs", endpoint)

    def create_queue(self) -> str:
        """Return a new queue, which has a queue of dead letters as the worker wants it."""
        dead = self.sqs.create_queue(QueueName=f"dead-{uuid4().hex}")["QueueUrl"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = json.dumps({"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": 3})
        url: str = self.sqs.create_queue(QueueName=f"laws-{uuid4().hex}", Attributes={"RedrivePolicy": policy})[
            "QueueUrl"
        ]
        return url

    def environment(self, queue_url: str) -> dict[str, str]:
        """Return what a process of the product needs to find all this."""
        return {
            "SQS_QUEUE_URL": queue_url,
            "SQS_ENDPOINT_URL": self.endpoint,
            "STATUTES_BUCKET": BUCKET,
            "STATUTES_S3_ENDPOINT_URL": self.endpoint,
        }


@contextmanager
def running_aws() -> Iterator[Aws]:
    """Run the server until the end of the block."""
    os.environ.update(AWS_ACCESS_KEY_ID="benchmark", AWS_SECRET_ACCESS_KEY="benchmark", AWS_DEFAULT_REGION=REGION)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocesses.running_program(
        [sys.executable, "-m", "moto.server", "-p", str(port)], MOTO_S3_DEFAULT_KEY_BUFFER_SIZE=ON_DISK
    ):
        subprocesses.wait_until(lambda: _is_up(port), seconds=60)
        aws = Aws(f"http://127.0.0.1:{port}")
        aws.s3.create_bucket(Bucket=BUCKET)
        yield aws


def client(service: str, endpoint: str) -> Any:
    config = Config(s3={"addressing_style": "path"}, max_pool_connections=CONCURRENT_UPLOADS + 2)
    return boto3.client(service, endpoint_url=endpoint, region_name=REGION, config=config)


def _is_up(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
