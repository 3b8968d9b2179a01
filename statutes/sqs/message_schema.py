"""Statute messages (spec 004 §3.4) as they arrive and as they are sent."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import structlog
from django.conf import settings
from jsonschema import Draft202012Validator

from accounts.errors import ErrorCode
from statutes import error_codes
from statutes.s3 import client

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")

MAX_BYTES = 1024 * 1024  # SQS' own limit
PRIORITIES = ("high", "normal", "low")  # most urgent first
SCHEMA = "statute.message.json"
# Fields of other kinds of messages: together with the spec's fields they leave open which kind is meant.
FOREIGN_FIELDS = ("Records", "TopicArn", "detail-type", "law_id")
# Control characters and lone surrogates: PostgreSQL and S3 accept neither.
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


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
