"""The body of an SQS message, whoever sent it: the spec's own, S3's notifications, and either inside SNS' envelope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

from django.conf import settings

from statutes import messages
from statutes.messages import Arrived, Message, MessageRefused

Item = Message | Arrived
RAW = "raw/"  # below which a statute's file is put: what we upload ourselves is beside it
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
UPLOADED = re.compile(rf"({_UUID})/({_UUID})\.pdf")
UNUSABLE = re.compile(r"[^A-Za-z0-9._-]+")


def read(body: str) -> list[Item]:
    """Return what a body asks for: nothing, when it tells of what is of no concern here. Raises ``MessageRefused``."""
    told = messages.opened(body)
    if told.get("Type") == "Notification" and "TopicArn" in told:
        inner = told.get("Message")
        if not isinstance(inner, str):
            raise MessageRefused(messages.INVALID, "Message")
        told = messages.opened(inner)
    if "document_id" not in told:
        if told.get("Event") == "s3:TestEvent":  # S3 sends one when a bucket's notifications are configured
            return []
        if isinstance(told.get("Records"), list):
            return [item for record in told["Records"] for item in _notified(record)]
        if told.get("source") == "aws.s3":
            return list(_bridged(told))
    return [messages.statute(told)]


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
        yield Arrived(UUID(found[1]), UUID(found[2]))
    elif bucket == settings.STATUTES_BUCKET and key.startswith(RAW) and not key.endswith("/"):
        told = {
            "document_id": law_id(key),
            "s3_raw_key": key,
            "uploader_id": who if isinstance(who, str) and who else "s3",
            "ingest_timestamp": at,
            "version": version(at),
            "bucket": bucket,
        }
        yield messages.statute(told)


def law_id(key: str) -> str:
    """Return the law that a key names: its folders and its name, for laws of two states may be named alike."""
    path = PurePosixPath(key.removeprefix(RAW))
    found = ".".join(part for part in path.with_suffix("").parts if part not in ("/", ".", ".."))
    if UNUSABLE.search(found) or not found[:1].isalnum() or len(found) > 128:
        raise MessageRefused(messages.KEY, "key")  # another spelling of it could be another law's
    return found


def version(at: str) -> str:
    """Return what stands for a version where nobody gives one: when the file was put there, which a resend repeats."""
    return messages.moment(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
