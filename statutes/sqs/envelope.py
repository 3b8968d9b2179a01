"""The body of an SQS message, whoever sent it: the spec's own, S3's notifications, and either inside SNS' envelope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

import structlog
from django.conf import settings

from jobs import errors
from statutes.s3 import keys
from statutes.sqs import messages
from statutes.sqs.messages import Message, MessageRefused, UploadNotification

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
Item = Message | UploadNotification
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MAX_RECORDS = 1_000  # of one message; S3 itself puts one or a few into it
UPLOADED = re.compile(rf"({_UUID})/({_UUID})\.pdf")
FORMAT = re.compile(r"\.(?:pdf|docx|xml)$", re.IGNORECASE)
PART = re.compile(r"[A-Za-z0-9_-]+")  # no dot: that joins the parts


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """What a body asks for, and why what else is in it cannot be read."""

    items: list[Item] = field(default_factory=list)
    refused: list[MessageRefused] = field(default_factory=list)


def parse_items(body: str) -> list[Item]:
    """Return what a body asks for: nothing, when it tells of what is of no concern here. Raises ``MessageRefused``."""
    found = parse_body(body)
    if found.refused:
        raise found.refused[0]
    return found.items


def parse_body(body: str) -> ParsedBody:
    """Return what a body asks for; a record of S3's that cannot be read does not take the others along.

    Raises nothing: whatever a body may hold, its reader lives on.
    """
    found = ParsedBody()
    with _noted(found):
        told = _unwrapped(body)
        if "document_id" not in told and isinstance(told.get("Records"), list):
            if len(told["Records"]) > MAX_RECORDS:
                raise MessageRefused(messages.INVALID, "Records")
            for record in told["Records"]:
                with _noted(found):
                    found.items.extend(_notified(record))
        else:
            found.items.extend(_items(told))
    return found


@contextmanager
def _noted(found: ParsedBody) -> Iterator[None]:
    """Add to ``found`` why what is read inside cannot be."""
    try:
        yield
    except MessageRefused as refused:
        found.refused.append(refused)
    except Exception as error:
        log.error("A message cannot be read.", exception=errors.safe_traceback(error), reported=True)
        found.refused.append(MessageRefused(messages.UNREADABLE))


def _unwrapped(body: str) -> dict[str, Any]:
    told = messages.parse_json(body)
    if told.get("Type") == "Notification" and "TopicArn" in told:
        inner = told.get("Message")
        if not isinstance(inner, str):
            raise MessageRefused(messages.INVALID, "Message")
        told = messages.parse_json(inner)
    return told


def _items(told: dict[str, Any]) -> list[Item]:
    if "document_id" not in told:
        if told.get("Event") == "s3:TestEvent":  # S3 sends one when a bucket's notifications are configured
            return []
        if told.get("source") == "aws.s3":
            return list(_bridged(told))
    return [messages.parse_statute_message(told)]


def _notified(record: Any) -> Iterator[Item]:
    """Yield what a record of S3's own notifications is about. Its keys are spelled as in a form: a space is a plus."""
    try:
        source, name, at = record["eventSource"], record["eventName"], record["eventTime"]
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        who = (record.get("userIdentity") or {}).get("principalId")
    except (TypeError, KeyError, AttributeError) as error:
        raise MessageRefused(messages.INVALID, "Records") from error
    if not all(isinstance(value, str) for value in (source, name, at, bucket, key)):
        raise MessageRefused(messages.INVALID, "Records")
    if source == "aws:s3" and name.startswith("ObjectCreated:"):
        yield from _put(bucket, unquote_plus(key), at, who)


def _bridged(told: dict[str, Any]) -> Iterator[Item]:
    """Yield what EventBridge tells of S3. Its keys are spelled as they are."""
    try:
        at, bucket, key = told["time"], told["detail"]["bucket"]["name"], told["detail"]["object"]["key"]
        who = told["detail"].get("requester")
    except (TypeError, KeyError, AttributeError) as error:
        raise MessageRefused(messages.INVALID, "detail") from error
    if not all(isinstance(value, str) for value in (at, bucket, key)):
        raise MessageRefused(messages.INVALID, "detail")
    if told.get("detail-type") == "Object Created":
        yield from _put(bucket, key, at, who)


def _put(bucket: str, key: str, at: str, who: Any) -> Iterator[Item]:
    if bucket == settings.S3_RAW_BUCKET and (found := UPLOADED.fullmatch(key)):
        yield UploadNotification(UUID(found[1]), UUID(found[2]))
    elif bucket == settings.STATUTES_BUCKET and key.startswith(keys.RAW) and not key.endswith("/"):
        told = {
            "document_id": law_id_from_key(key),
            "s3_raw_key": key,
            "uploader_id": who if isinstance(who, str) and who else "s3",
            "ingest_timestamp": at,
            "version": version_from_time(at),
            "bucket": bucket,
        }
        yield messages.parse_statute_message(told)


def law_id_from_key(key: str) -> str:
    """Return the law that a key names: its folders and its name, for laws of two states may be named alike.

    Two keys have one law only where nothing but the format's suffix differs: two forms of it.
    """
    parts = FORMAT.sub("", key.removeprefix(keys.RAW)).split("/")
    found = ".".join(parts)
    if not all(PART.fullmatch(part) for part in parts) or not found[0].isalnum() or len(found) > 128:
        raise MessageRefused(messages.KEY, "key")  # another spelling of it could be another law's
    return found


def version_from_time(at: str) -> str:
    """Return what stands for a version where nobody gives one: when the file was put there, which a resend repeats."""
    return messages.parse_timestamp(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
