"""SQS messages: statute messages (spec 004 §3.4), and S3, EventBridge and SNS notifications of uploads."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import unquote_plus
from uuid import UUID

import structlog
from django.conf import settings
from jsonschema import Draft202012Validator

from accounts.error_codes import ErrorCode
from jobs import safe_errors
from statutes import error_codes
from statutes.s3 import client, keys

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")

MAX_BYTES = 1024 * 1024  # SQS' own limit
MAX_RECORDS = 1_000  # per message; S3 itself puts one or a few into it
PRIORITIES = ("high", "normal", "low")  # most urgent first
SCHEMA = "statute.message.json"
# Fields of other kinds of messages: together with the spec's fields they leave open which kind is meant.
FOREIGN_FIELDS = ("Records", "TopicArn", "detail-type", "law_id")
# Control characters and lone surrogates: PostgreSQL and S3 accept neither.
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
UPLOAD_KEY = re.compile(rf"({_UUID})/({_UUID})\.pdf")
FORMAT_SUFFIX = re.compile(r"\.(?:pdf|docx|xml)$", re.IGNORECASE)
KEY_PART = re.compile(r"[A-Za-z0-9_-]+")  # no dot, which joins the parts


class MessageRefused(Exception):
    """An invalid message, which no later delivery makes valid. ``field`` is the first that is invalid."""

    def __init__(self, code: ErrorCode, field: str = "") -> None:
        super().__init__(f"{code} {field}".strip())
        self.code = code
        self.field = field


@dataclass(frozen=True, slots=True)
class Message:
    """A raw file of a version of a law. ``law_id`` is the message's ``document_id``."""

    law_id: str
    version: str
    raw_key: str
    bucket: str
    uploader_id: str
    ingest_timestamp: datetime
    priority: str = "normal"
    force_reprocess: bool = False
    rest: bool = False  # sent by us, for the missing passages of a version

    @property
    def urgency(self) -> int:
        return PRIORITIES.index(self.priority)

    def as_json(self) -> dict[str, Any]:
        """Return the message as it is sent: ``parse_statute_message(message.as_json()) == message``."""
        return {
            "document_id": self.law_id,
            "s3_raw_key": self.raw_key,
            "uploader_id": self.uploader_id,
            "ingest_timestamp": self.ingest_timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "priority": self.priority,
            "version": self.version,
            "force_reprocess": self.force_reprocess,
            "rest": self.rest,
            "bucket": self.bucket,
        }


@dataclass(frozen=True, slots=True)
class UploadNotification:
    """The object store's event that a tenant's upload has arrived."""

    user_id: UUID
    document_id: UUID


def parse_json(text: str) -> dict[str, Any]:
    """Return the JSON object of a body. Raises ``MessageRefused``, which repeats nothing of the body."""

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):  # a name is given twice: parsers differ in which of the two they take
            raise MessageRefused(error_codes.MESSAGE_AMBIGUOUS)
        return dict(pairs)

    def reject_constant(text: str) -> Any:
        raise ValueError("NaN and Infinity are no JSON")

    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise MessageRefused(error_codes.MESSAGE_TOO_LARGE)
    try:
        content = json.loads(text, object_pairs_hook=reject_duplicates, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise MessageRefused(error_codes.MESSAGE_NOT_JSON) from error
    if not isinstance(content, dict):
        raise MessageRefused(error_codes.MESSAGE_NOT_JSON)
    return content


def parse_statute_message(content: dict[str, Any]) -> Message:
    """Return the message of spec 004 §3.4. Raises ``MessageRefused``; unknown fields are ignored and logged."""
    schema: Any = _validator().schema
    fields = {name: content[name] for name in content if name in schema["properties"]}
    if any(name in content for name in FOREIGN_FIELDS):
        raise MessageRefused(error_codes.MESSAGE_AMBIGUOUS)
    for name, text in fields.items():
        if isinstance(text, str) and UNPRINTABLE.search(text):
            raise MessageRefused(error_codes.MESSAGE_CONTROL_CHARACTER, name)
    errors = sorted(_validator().iter_errors(fields), key=lambda error: [str(part) for part in error.path])
    if errors:
        path = [str(part) for part in errors[0].path]
        if errors[0].validator == "required":
            path = [name for name in errors[0].validator_value if name not in errors[0].instance]
        raise MessageRefused(error_codes.MESSAGE_INVALID, path[0] if path else "")
    bucket = fields.get("bucket") or settings.STATUTES_BUCKET
    if bucket not in client.raw_buckets():  # it may be any that our key can read, such as that of the tenants' uploads
        raise MessageRefused(error_codes.MESSAGE_BUCKET_REFUSED, "bucket")
    if len(content) > len(fields):
        log.info("A message has unknown fields.", unknown=len(content) - len(fields))
    if len(fields["s3_raw_key"].encode()) > 1024:  # S3's limit, in bytes
        raise MessageRefused(error_codes.MESSAGE_INVALID, "s3_raw_key")
    return Message(
        law_id=fields["document_id"],
        version=fields["version"],
        raw_key=fields["s3_raw_key"],
        bucket=bucket,
        uploader_id=fields["uploader_id"],
        ingest_timestamp=parse_timestamp(fields["ingest_timestamp"]),
        priority=fields.get("priority", "normal"),
        force_reprocess=fields.get("force_reprocess", False),
        rest=fields.get("rest", False),
    )


def parse_timestamp(text: str) -> datetime:
    """Return a timestamp that has a time zone, in UTC, or raise ``MessageRefused``."""
    try:
        timestamp = datetime.fromisoformat(text)
        if timestamp.tzinfo is not None:
            return timestamp.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise MessageRefused(error_codes.MESSAGE_INVALID, "ingest_timestamp")


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads((settings.BASE_DIR / "schemas" / SCHEMA).read_text()))


Item = Message | UploadNotification


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
        content = parse_json(body)
        if content.get("Type") == "Notification" and "TopicArn" in content:
            inner = content.get("Message")
            if not isinstance(inner, str):
                raise MessageRefused(error_codes.MESSAGE_INVALID, "Message")
            content = parse_json(inner)
        if "document_id" in content:
            parsed.items.append(parse_statute_message(content))
        elif isinstance(content.get("Records"), list):
            if len(content["Records"]) > MAX_RECORDS:
                raise MessageRefused(error_codes.MESSAGE_INVALID, "Records")
            for record in content["Records"]:
                with _collect_errors(parsed):
                    parsed.items.extend(_parse_s3_record(record))
        elif content.get("Event") == "s3:TestEvent":  # S3 sends one when a bucket's notifications are configured
            pass
        elif content.get("source") == "aws.s3":
            parsed.items.extend(_parse_eventbridge_event(content))
        else:
            parsed.items.append(parse_statute_message(content))
    return parsed


@contextmanager
def _collect_errors(parsed: ParsedBody) -> Iterator[None]:
    try:
        yield
    except MessageRefused as refused:
        parsed.refused.append(refused)
    except Exception as error:
        log.error("A message cannot be read.", exception=safe_errors.safe_traceback(error), reported=True)
        parsed.refused.append(MessageRefused(error_codes.MESSAGE_UNREADABLE))


def _parse_s3_record(record: Any) -> Iterator[Item]:
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


def _parse_eventbridge_event(event: dict[str, Any]) -> Iterator[Item]:
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
