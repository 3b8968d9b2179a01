"""What a message of the queue says: a law's file (spec 004 §3.4), or that an upload's bytes have arrived."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from jsonschema import Draft202012Validator

from accounts.errors import ErrorCode
from statutes.error_codes import (
    MESSAGE_AMBIGUOUS,
    MESSAGE_BUCKET_REFUSED,
    MESSAGE_CONTROL_CHARACTER,
    MESSAGE_INVALID,
    MESSAGE_KEY_UNUSABLE,
    MESSAGE_NOT_JSON,
    MESSAGE_TOO_LARGE,
    MESSAGE_UNREADABLE,
)
from statutes.s3 import client

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")

MAX_BYTES = 1024 * 1024  # SQS' own limit
PRIORITIES = ("high", "normal", "low")  # the first goes first
SCHEMA = "statute.message.json"
# What makes a message of this queue and what makes another's: both in one leave open which is meant.
OTHERS = ("Records", "TopicArn", "detail-type", "law_id")


class MessageRefused(Exception):
    """No later delivery goes better. ``code`` is one of those below, ``field`` the first that is wrong."""

    def __init__(self, code: ErrorCode, field: str = "") -> None:
        super().__init__(f"{code} {field}".strip())
        self.code = code
        self.field = field


TOO_LARGE, NOT_JSON, AMBIGUOUS = MESSAGE_TOO_LARGE, MESSAGE_NOT_JSON, MESSAGE_AMBIGUOUS
CONTROL, INVALID, KEY = MESSAGE_CONTROL_CHARACTER, MESSAGE_INVALID, MESSAGE_KEY_UNUSABLE
BUCKET, UNREADABLE = MESSAGE_BUCKET_REFUSED, MESSAGE_UNREADABLE
CODES = (TOO_LARGE, NOT_JSON, AMBIGUOUS, CONTROL, INVALID, KEY, BUCKET, UNREADABLE)


@dataclass(frozen=True, slots=True)
class Message:
    """A file that is to become a version of a law. ``law_id`` is the message's ``document_id``."""

    law_id: str
    version: str
    raw_key: str
    bucket: str
    uploader_id: str
    ingest_timestamp: datetime
    priority: str = "normal"
    force_reprocess: bool = False
    rest: bool = False  # we have sent it, for what is missing of a law

    @property
    def urgency(self) -> int:
        return PRIORITIES.index(self.priority)

    def as_json(self) -> dict[str, Any]:
        """Return the message as it is sent: ``statute(message.as_json())`` is equal to ``message``."""
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
    """The bytes of a tenant's upload are there, says its store."""

    user_id: UUID
    document_id: UUID


def parse_json(text: str) -> dict[str, Any]:
    """Return the JSON object of a body. Raises ``MessageRefused``; nothing of the body is repeated in it."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise MessageRefused(TOO_LARGE)
    try:
        found = json.loads(text, object_pairs_hook=_unambiguous, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise MessageRefused(NOT_JSON) from error
    if not isinstance(found, dict):
        raise MessageRefused(NOT_JSON)
    return found


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that is given twice: readers differ in which of the two they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MessageRefused(AMBIGUOUS)
    return found


def _no_number(text: str) -> Any:
    raise ValueError("not a number of JSON's")


def parse_statute_message(told: dict[str, Any]) -> Message:
    """Return the message of spec 004 §3.4. Raises ``MessageRefused``; fields nobody knows are ignored and logged."""
    known = {name: value for name, value in told.items() if name in _schema()["properties"]}
    if any(name in told for name in OTHERS):
        raise MessageRefused(AMBIGUOUS)
    for name, value in known.items():
        if isinstance(value, str) and not _is_plain(value):
            raise MessageRefused(CONTROL, name)
    wrong = sorted(_validator().iter_errors(known), key=lambda error: [str(part) for part in error.path])
    if wrong:
        raise MessageRefused(INVALID, _field(wrong[0]))
    bucket = known.get("bucket") or settings.STATUTES_BUCKET
    if bucket not in client.raw_buckets():  # it may be any that our key opens, such as that of the tenants' uploads
        raise MessageRefused(BUCKET, "bucket")
    if len(told) > len(known):
        log.info("A message has fields that nobody reads.", unknown=len(told) - len(known))
    return Message(
        law_id=known["document_id"],
        version=known["version"],
        raw_key=_key(known["s3_raw_key"]),
        bucket=bucket,
        uploader_id=known["uploader_id"],
        ingest_timestamp=parse_timestamp(known["ingest_timestamp"]),
        priority=known.get("priority", "normal"),
        force_reprocess=known.get("force_reprocess", False),
        rest=known.get("rest", False),
    )


def parse_timestamp(text: str) -> datetime:
    """Return a time that says which zone it is of, or raise ``MessageRefused``."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise MessageRefused(INVALID, "ingest_timestamp")


def _key(key: str) -> str:
    if len(key.encode()) > 1024:  # S3's limit, in bytes
        raise MessageRefused(INVALID, "s3_raw_key")
    return key


def _is_plain(text: str) -> bool:
    """Tell whether a text has neither control characters nor halves of characters: PostgreSQL and S3 take neither."""
    return not any(ord(sign) < 32 or 127 <= ord(sign) < 160 or 0xD800 <= ord(sign) < 0xE000 for sign in text)


def _field(error: Any) -> str:
    if error.validator == "required":
        return next((name for name in error.validator_value if name not in error.instance), "")
    return str(error.path[0]) if error.path else ""


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((settings.BASE_DIR / "schemas" / SCHEMA).read_text())
    return found


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(_schema())
