"""Statute files in an S3 bucket and SQS messages about them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import statute_generator
from benchmarks.moto_server import BUCKET, Aws


@dataclass(frozen=True, slots=True)
class StatuteQueue:
    """One queue, for one worker. A law's id begins with its format: "pdf-3"; no two have a passage in common."""

    aws: Aws
    queue_url: str
    articles: int

    def upload(self, law_ids: Sequence[str]) -> None:
        """Put the raw files into the bucket."""
        for law_id in law_ids:
            content = statute_generator.generate_law(format_of(law_id), self.articles, law_id)
            self.aws.s3.put_object(Bucket=BUCKET, Key=_key(law_id), Body=content)

    def send(self, law_ids: Sequence[str]) -> None:
        for law_id in law_ids:
            body = {
                "document_id": law_id,
                "s3_raw_key": _key(law_id),
                "uploader_id": "benchmark",
                "ingest_timestamp": "2025-01-12T15:31:45Z",
                "version": "2024-01",
            }
            self.aws.sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps(body))

    @property
    def is_empty(self) -> bool:
        """Tell whether every message has been deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.aws.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return not any(int(attributes[name]) for name in names)


def format_of(law_id: str) -> str:
    return law_id.partition("-")[0]


def _key(law_id: str) -> str:
    return f"raw/{law_id}.{format_of(law_id)}"
