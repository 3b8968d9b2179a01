"""Callback payloads: LlamaCloud's own event, or the specs' callback with the content (context 002 §4)."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

from accounts.common_error_codes import INVALID_REQUEST
from accounts.errors import ApiError
from webhooks.error_codes import ARTIFACT_MISMATCH

LONGEST_FIELD = 200
# The fields are stored and compared: no control characters (PostgreSQL takes no NUL), no lone surrogates.
UNCLEAN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LlamaCloudEvent:
    """An event about a job of LlamaCloud's; the content has to be fetched (VENDORS §1.6)."""

    event_type: str
    vendor_job_id: str


@dataclass(frozen=True, slots=True)
class ParseCallback:
    """The outcome of a job of ours. ``content`` is None unless the status is ``parsed``."""

    job_id: UUID
    document_id: UUID
    status: str
    content: str | None
    parser_name: str
    parser_version: str


def parse_body(body: bytes) -> Payload:
    """Return the JSON object of a body whose signature has been verified, or raise ``INVALID_REQUEST``.

    LlamaCloud's format "string" is the same object, encoded once more as a JSON string.
    """
    try:
        payload = _loads(body.decode())
        if isinstance(payload, str):
            payload = _loads(payload)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, a number of 5,000 digits; kilobytes of brackets
        raise invalid_payload() from None
    if not isinstance(payload, dict):
        raise invalid_payload()
    return payload


def _loads(text: str) -> Any:
    """Load JSON without the values that readers disagree on: duplicate keys, and NaN or infinity."""

    def unique(pairs: list[tuple[str, Any]]) -> Payload:
        if len(members := dict(pairs)) != len(pairs):
            raise ValueError
        return members

    def no_constant(name: str) -> NoReturn:
        raise ValueError

    return json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)


def parse_payload(payload: Payload) -> LlamaCloudEvent | ParseCallback:
    """Tell the two payloads apart and check their form.

    Raises ``INVALID_REQUEST``, or ``ARTIFACT_MISMATCH`` when the content does not have the declared hash and length.
    """
    if "event_type" in payload:
        job = _object_field(payload, "data")
        event_type = string_field(payload, "event_type")
        return LlamaCloudEvent(event_type, string_field(job, "job_id" if "job_id" in job else "id"))
    job_id, document_id = _uuid_field(payload, "job_id"), _uuid_field(payload, "document_id")
    status = string_field(payload, "status")
    if status != "parsed":
        return ParseCallback(job_id, document_id, status, None, "", "")
    meta = _object_field(payload, "meta")
    parser = string_field(meta, "parser_name"), string_field(meta, "parser_version")
    return ParseCallback(job_id, document_id, status, _verified_content(payload.get("artifacts")), *parser)


def _verified_content(artifacts: Any) -> str:
    if not isinstance(artifacts, list) or not all(isinstance(artifact, dict) for artifact in artifacts):
        raise invalid_payload("artifacts")
    markdown = [artifact for artifact in artifacts if artifact.get("type") == "markdown"]
    if len(markdown) != 1:
        raise _artifact_mismatch("Send exactly one markdown artifact.")
    artifact, content = markdown[0], markdown[0].get("content")
    try:
        encoded = content.encode() if isinstance(content, str) else b""
    except UnicodeEncodeError:  # lone surrogates
        raise invalid_payload("artifacts") from None
    if not encoded:
        raise _artifact_mismatch("The markdown artifact has no content.")
    if (artifact.get("sha256"), artifact.get("bytes")) != (hashlib.sha256(encoded).hexdigest(), len(encoded)):
        raise _artifact_mismatch("The content does not have the sha256 and bytes that were sent.")
    return str(content)


def string_field(payload: Payload, field: str) -> str:
    text = payload.get(field)
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_FIELD or UNCLEAN.search(text):
        raise invalid_payload(field)
    return text


def _uuid_field(payload: Payload, field: str) -> UUID:
    try:
        return UUID(string_field(payload, field))
    except ValueError:
        raise invalid_payload(field) from None


def _object_field(payload: Payload, field: str) -> Payload:
    members = payload.get(field)
    if not isinstance(members, dict):
        raise invalid_payload(field)
    return members


def invalid_payload(field: str | None = None) -> ApiError:
    return ApiError(INVALID_REQUEST, "The callback has an unknown form.", field=field)


def _artifact_mismatch(detail: str) -> ApiError:
    return ApiError(ARTIFACT_MISMATCH, detail, field="artifacts")
