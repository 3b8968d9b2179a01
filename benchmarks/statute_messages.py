"""Laws in a bucket and messages about them in a queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import statute_generator
from benchmarks.moto_server import BUCKET, Aws


@dataclass(frozen=True, slots=True)
class Orders:
    """One queue, for one worker. A law's id begins with its format: "pdf-3"; no two have a passage in common."""

    here: Aws
    queue_url: str
    articles: int

    def stock(self, law_ids: Sequence[str]) -> None:
        """Put the raw files into the bucket."""
        for law_id in law_ids:
            content = statute_generator.law(format_of(law_id), self.articles, law_id)
            self.here.s3.put_object(Bucket=BUCKET, Key=_key(law_id), Body=content)

    def send(self, law_ids: Sequence[str]) -> None:
        for law_id in law_ids:
            told = {
                "document_id": law_id,
                "s3_raw_key": _key(law_id),
                "uploader_id": "benchmark",
                "ingest_timestamp": "2025-01-12T15:31:45Z",
                "version": "2024-01",
            }
            self.here.sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps(told))

    @property
    def are_done(self) -> bool:
        """Tell whether every message has been deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self.here.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return not any(int(told[name]) for name in names)


def format_of(law_id: str) -> str:
    return law_id.partition("-")[0]


def _key(law_id: str) -> str:
    return f"raw/{law_id}.{format_of(law_id)}"
