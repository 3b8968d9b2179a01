"""Messages as uploaders and S3 send them."""

from typing import Any

from statutes import document_ids
from statutes.models import LawVersion

BUCKET = "fiscal"


def message_body(law_id: str = "ISR_2024", what: str = "ok", **fields: Any) -> dict[str, Any]:
    """Return a message of spec 004 §3.4. ``what`` becomes of it: see testing.statute_pipelines."""
    return {
        "document_id": law_id,
        "s3_raw_key": f"raw/federal/2024/{what}",
        "uploader_id": "user-42",
        "ingest_timestamp": "2025-01-12T15:31:45Z",
        "priority": "normal",
        "version": "2024-01",
        **fields,
    }


def s3_record(key: str, bucket: str = BUCKET, *, name: str = "ObjectCreated:Put") -> dict[str, Any]:
    """Return a record of S3's notifications."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2025-01-12T15:31:45.123Z",
        "eventName": name,
        "userIdentity": {"principalId": "AWS:AIDAEXAMPLE"},
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1024, "sequencer": "0A1B2C3D4E5F678901"}},
    }


def published_count(law_id: str = "ISR_2024", version: str = "2024-01") -> int:
    """Return how often a version was published."""
    row = LawVersion.objects.filter(pk=document_ids.document_id(law_id, version)).first()
    return row.reprocessed if row else 0
