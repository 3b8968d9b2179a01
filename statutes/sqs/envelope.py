"""Parsing of SQS message bodies: the spec's own, S3 notifications, EventBridge events, and SNS envelopes of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

import structlog
from django.conf import settings

from jobs import safe_errors
from statutes.error_codes import MESSAGE_INVALID, MESSAGE_KEY_UNUSABLE, MESSAGE_UNREADABLE
from statutes.s3 import keys
from statutes.sqs import messages
from statutes.sqs.messages import Message, MessageRefused, UploadNotification

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
Item = Message | UploadNotification
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MAX_RECORDS = 1_000  # per message; S3 itself puts one or a few into it
UPLOAD_KEY = re.compile(rf"({_UUID})/({_UUID})\.pdf")
FORMAT_SUFFIX = re.compile(r"\.(?:pdf|docx|xml)$", re.IGNORECASE)
KEY_PART = re.compile(r"[A-Za-z0-9_-]+")  # no dot, which joins the parts


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """The items of a body, and the errors of its invalid parts."""

    items: list[Item] = field(default_factory=list)
    refused: list[MessageRefused] = field(default_factory=list)


def parse_items(body: str) -> list[Item]:
    """Return the items of a body: none, when it is about other events. Raises ``MessageRefused``."""
    parsed = parse_body(body)
    if parsed.refused:
        raise parsed.refused[0]
    return parsed.items


def parse_body(body: str) -> ParsedBody:
    """Parse a body; an invalid S3 record does not affect the others. Raises nothing, so that a consumer lives on."""
    parsed = ParsedBody()
    with _collect_errors(parsed):
        content = messages.parse_json(body)
        if content.get("Type") == "Notification" and "TopicArn" in content:
            inner = content.get("Message")
            if not isinstance(inner, str):
                raise MessageRefused(MESSAGE_INVALID, "Message")
            content = messages.parse_json(inner)
        if "document_id" in content:
            parsed.items.append(messages.parse_statute_message(content))
        elif isinstance(content.get("Records"), list):
            if len(content["Records"]) > MAX_RECORDS:
                raise MessageRefused(MESSAGE_INVALID, "Records")
            for record in content["Records"]:
                with _collect_errors(parsed):
                    parsed.items.extend(_parse_s3_record(record))
        elif content.get("Event") == "s3:TestEvent":  # S3 sends one when a bucket's notifications are configured
            pass
        elif content.get("source") == "aws.s3":
            parsed.items.extend(_parse_eventbridge_event(content))
        else:
            parsed.items.append(messages.parse_statute_message(content))
    return parsed


@contextmanager
def _collect_errors(parsed: ParsedBody) -> Iterator[None]:
    try:
        yield
    except MessageRefused as refused:
        parsed.refused.append(refused)
    except Exception as error:
        log.error("A message cannot be read.", exception=safe_errors.safe_traceback(error), reported=True)
        parsed.refused.append(MessageRefused(MESSAGE_UNREADABLE))


def _parse_s3_record(record: Any) -> Iterator[Item]:
    """Yield the item of an S3 notification's record. Its keys are form-encoded: a space is a plus."""
    try:
        source, name, at = record["eventSource"], record["eventName"], record["eventTime"]
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        uploader = (record.get("userIdentity") or {}).get("principalId")
    except (TypeError, KeyError, AttributeError) as error:
        raise MessageRefused(MESSAGE_INVALID, "Records") from error
    if not all(isinstance(text, str) for text in (source, name, at, bucket, key)):
        raise MessageRefused(MESSAGE_INVALID, "Records")
    if source == "aws:s3" and name.startswith("ObjectCreated:"):
        yield from _item_of_object(bucket, unquote_plus(key), at, uploader)


def _parse_eventbridge_event(event: dict[str, Any]) -> Iterator[Item]:
    """Yield the item of an EventBridge event. Its keys are not encoded."""
    try:
        at, bucket, key = event["time"], event["detail"]["bucket"]["name"], event["detail"]["object"]["key"]
        uploader = event["detail"].get("requester")
    except (TypeError, KeyError, AttributeError) as error:
        raise MessageRefused(MESSAGE_INVALID, "detail") from error
    if not all(isinstance(text, str) for text in (at, bucket, key)):
        raise MessageRefused(MESSAGE_INVALID, "detail")
    if event.get("detail-type") == "Object Created":
        yield from _item_of_object(bucket, key, at, uploader)


def _item_of_object(bucket: str, key: str, at: str, uploader: Any) -> Iterator[Item]:
    if bucket == settings.S3_RAW_BUCKET and (ids := UPLOAD_KEY.fullmatch(key)):
        yield UploadNotification(UUID(ids[1]), UUID(ids[2]))
    elif bucket == settings.STATUTES_BUCKET and key.startswith(keys.RAW) and not key.endswith("/"):
        content = {
            "document_id": law_id_from_key(key),
            "s3_raw_key": key,
            "uploader_id": uploader if isinstance(uploader, str) and uploader else "s3",
            "ingest_timestamp": at,
            # When the file was put there, which a redelivery repeats.
            "version": messages.parse_timestamp(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "bucket": bucket,
        }
        yield messages.parse_statute_message(content)


def law_id_from_key(key: str) -> str:
    """Return the law id of a key: its folders and its name, because statutes of two states may have the same name.

    Two keys give the same id only where nothing but the format's suffix differs.
    """
    parts = FORMAT_SUFFIX.sub("", key.removeprefix(keys.RAW)).split("/")
    law_id = ".".join(parts)
    if not all(KEY_PART.fullmatch(part) for part in parts) or not law_id[0].isalnum() or len(law_id) > 128:
        raise MessageRefused(MESSAGE_KEY_UNUSABLE, "key")  # an escaped spelling could be another law's id
    return law_id
