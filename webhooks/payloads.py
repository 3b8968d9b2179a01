"""What a callback says: LlamaCloud's own announcement, or the specs' contract with the content (context 002 §4)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

from accounts.errors import INVALID_REQUEST, ApiError
from webhooks.error_codes import ARTIFACT_MISMATCH

LONGEST_NAME = 200
# A name is stored and compared: no control characters (PostgreSQL takes no NUL), no lone surrogates.
UNCLEAN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LlamaCloudEvent:
    """LlamaCloud says what became of a job of its own; the result has to be fetched (VENDORS §1.6)."""

    event_type: str
    vendor_job_id: str


@dataclass(frozen=True, slots=True)
class ParseCallback:
    """What became of a job of ours. ``content`` is None unless the status is ``parsed``."""

    job_id: UUID
    document_id: UUID
    status: str
    content: str | None
    parser_name: str
    parser_version: str


def parse_body(body: bytes) -> Payload:
    """Return the JSON object of a body whose signature has been verified, or raise ``Refused("INVALID_REQUEST")``.

    LlamaCloud's format "string" is the same object, encoded once more as a JSON string.
    """
    try:
        found = _loads(body.decode())
        if isinstance(found, str):
            found = _loads(found)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, a number of 5,000 digits; kilobytes of brackets
        raise invalid_payload() from None
    if not isinstance(found, dict):
        raise invalid_payload()
    return found


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)


def _once(pairs: Iterable[tuple[str, Any]]) -> Payload:
    """Refuse a key that comes twice: which of its values counts differs from reader to reader."""
    pairs = list(pairs)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError


def parse_payload(payload: Payload) -> LlamaCloudEvent | ParseCallback:
    """Tell the two payloads apart and check their form.

    Raises ``Refused("INVALID_REQUEST")``, or ``Refused("ARTIFACT_MISMATCH")`` when the content is not what it says.
    """
    if "event_type" in payload:
        data = _part(payload, "data")
        return LlamaCloudEvent(
            string_field(payload, "event_type"), string_field(data, "job_id" if "job_id" in data else "id")
        )
    job_id, document_id, status = (
        _uuid(payload, "job_id"),
        _uuid(payload, "document_id"),
        string_field(payload, "status"),
    )
    if status != "parsed":
        return ParseCallback(job_id, document_id, status, None, "", "")
    meta = _part(payload, "meta")
    parser = string_field(meta, "parser_name"), string_field(meta, "parser_version")
    return ParseCallback(job_id, document_id, status, _markdown(payload.get("artifacts")), *parser)


def _markdown(artifacts: Any) -> str:
    """Return the content of the one markdown artifact, proved by its length and hash."""
    if not isinstance(artifacts, list) or not all(isinstance(artifact, dict) for artifact in artifacts):
        raise invalid_payload("artifacts")
    found = [artifact for artifact in artifacts if artifact.get("type") == "markdown"]
    if len(found) != 1:
        raise _mismatch("Send exactly one markdown artifact.")
    content = found[0].get("content")
    try:
        encoded = content.encode() if isinstance(content, str) else b""
    except UnicodeEncodeError:  # lone surrogates
        raise invalid_payload("artifacts") from None
    if not encoded:
        raise _mismatch("The markdown artifact has no content.")
    told = found[0].get("sha256"), found[0].get("bytes")
    if told != (hashlib.sha256(encoded).hexdigest(), len(encoded)):
        raise _mismatch("The content is not the one whose sha256 and bytes were sent.")
    return str(content)


def string_field(payload: Payload, field: str) -> str:
    value = payload.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or UNCLEAN.search(value):
        raise invalid_payload(field)
    return value


def _uuid(payload: Payload, field: str) -> UUID:
    try:
        return UUID(string_field(payload, field))
    except ValueError:
        raise invalid_payload(field) from None


def _part(payload: Payload, field: str) -> Payload:
    value = payload.get(field)
    if not isinstance(value, dict):
        raise invalid_payload(field)
    return value


def invalid_payload(field: str | None = None) -> ApiError:
    return ApiError(INVALID_REQUEST, "The callback is not of a form that is known here.", field=field)


def _mismatch(detail: str) -> ApiError:
    return ApiError(ARTIFACT_MISMATCH, detail, field="artifacts")
