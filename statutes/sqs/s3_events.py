"""Events of S3 and EventBridge about uploads: a tenant's PDF, or a statute's raw file as its message."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

from django.conf import settings

from statutes import error_codes
from statutes.s3 import keys
from statutes.sqs.message_schema import Message, MessageRefused, parse_statute_message, parse_timestamp

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
UPLOAD_KEY = re.compile(rf"({_UUID})/({_UUID})\.pdf")
FORMAT_SUFFIX = re.compile(r"\.(?:pdf|docx|xml)$", re.IGNORECASE)
KEY_PART = re.compile(r"[A-Za-z0-9_-]+")  # no dot, which joins the parts


@dataclass(frozen=True, slots=True)
class UploadNotification:
    """The object store's event that a tenant's upload has arrived."""

    user_id: UUID
    document_id: UUID


def parse_s3_record(record: Any) -> Iterator[Message | UploadNotification]:
    """Yield the item of an S3 notification's record. Its keys are form-encoded: a space is a plus."""
    try:
        source, name, at = record["eventSource"], record["eventName"], record["eventTime"]
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        uploader = (record.get("userIdentity") or {}).get("principalId")
    except (TypeError, KeyError, AttributeError) as error:
        raise MessageRefused(error_codes.MESSAGE_INVALID, "Records") from error
    if not all(isinstance(text, str) for text in (source, name, at, bucket, key)):
        raise MessageRefused(error_codes.MESSAGE_INVALID, "Records")
    if source == "aws:s3" and name.startswith("ObjectCreated:"):
        yield from _item_of_object(bucket, unquote_plus(key), at, uploader)


def parse_eventbridge_event(event: dict[str, Any]) -> Iterator[Message | UploadNotification]:
    """Yield the item of an EventBridge event. Its keys are not encoded."""
    try:
        at, bucket, key = event["time"], event["detail"]["bucket"]["name"], event["detail"]["object"]["key"]
        uploader = event["detail"].get("requester")
    except (TypeError, KeyError, AttributeError) as error:
        raise MessageRefused(error_codes.MESSAGE_INVALID, "detail") from error
    if not all(isinstance(text, str) for text in (at, bucket, key)):
        raise MessageRefused(error_codes.MESSAGE_INVALID, "detail")
    if event.get("detail-type") == "Object Created":
        yield from _item_of_object(bucket, key, at, uploader)


def _item_of_object(bucket: str, key: str, at: str, uploader: Any) -> Iterator[Message | UploadNotification]:
    if bucket == settings.S3_RAW_BUCKET and (ids := UPLOAD_KEY.fullmatch(key)):
        yield UploadNotification(UUID(ids[1]), UUID(ids[2]))
    elif bucket == settings.STATUTES_BUCKET and key.startswith(keys.RAW) and not key.endswith("/"):
        content = {
            "document_id": law_id_from_key(key),
            "s3_raw_key": key,
            "uploader_id": uploader if isinstance(uploader, str) and uploader else "s3",
            "ingest_timestamp": at,
            # When the file was put there, which a redelivery repeats.
            "version": parse_timestamp(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "bucket": bucket,
        }
        yield parse_statute_message(content)


def law_id_from_key(key: str) -> str:
    """Return the law id of a key: its folders and name; only the format's suffix may differ between keys of one id."""
    parts = FORMAT_SUFFIX.sub("", key.removeprefix(keys.RAW)).split("/")
    law_id = ".".join(parts)
    if not all(KEY_PART.fullmatch(part) for part in parts) or not law_id[0].isalnum() or len(law_id) > 128:
        raise MessageRefused(error_codes.MESSAGE_KEY_UNUSABLE, "key")  # an escaped spelling could be another law's id
    return law_id
