"""Conversion of Gmail's threads to the stored payload (spec 002 §5)."""

from __future__ import annotations

from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Any

from integrations.providers.gmail import MOST_CHARS, message_time
from integrations.providers.gmail.mime_body import ReadBudget, attachment_names, message_text

# Mail that its owner deleted, did not want, or never sent.
HIDDEN = {"TRASH", "SPAM", "DRAFT"}
MOST_HEADER_CHARS = 2_000  # a message may have thousands of recipients


def thread_payload(thread: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the payload of a thread of ``threads.get``; None when its owner sees no message of it any more.

    Raises ``ValueError`` for a malformed response.
    """
    messages = thread.get("messages", [])
    if not isinstance(thread.get("id"), str) or not isinstance(messages, list):
        raise ValueError("a thread of another shape")
    visible = sorted((message for message in messages if is_visible(message)), key=message_time)
    if not visible:
        return None
    # The newest first, as they carry the outcome, until there is as much text as is stored.
    budget, left, payloads = ReadBudget(), MOST_CHARS, []
    for message in reversed(visible):
        payload = _message_payload(message, budget if left else None)
        payload["body_text"] = payload["body_text"][:left]
        left -= len(payload["body_text"])
        payloads.append(payload)
    return {"id": thread["id"], "snippet": str(visible[-1].get("snippet", "")), "messages": payloads[::-1]}


def is_visible(message: Any) -> bool:
    if not isinstance(message, Mapping):
        raise ValueError("a message of another shape")
    labels = message.get("labelIds", [])
    return not (isinstance(labels, list) and HIDDEN & {label for label in labels if isinstance(label, str)})


def _message_payload(message: Mapping[str, Any], budget: ReadBudget | None) -> dict[str, Any]:
    part = message.get("payload")
    part = part if isinstance(part, Mapping) else {}
    fields = {
        "id": str(message.get("id", "")),
        **{name: _header(part, name) for name in ("from", "to", "cc", "subject")},
        "internalDate": message["internalDate"],
        "body_text": message_text(part, budget) if budget else "",
        "attachments": attachment_names(part),
    }
    return {name: field for name, field in fields.items() if field or name not in ("cc", "attachments")}


def _header(part: Mapping[str, Any], name: str) -> str:
    """Return a header as text, "" without one; Gmail has usually decoded encoded words already."""
    headers = part.get("headers")
    for header in headers if isinstance(headers, list) else []:
        if isinstance(header, Mapping) and str(header.get("name", "")).lower() == name:
            text = " ".join(str(header.get("value", ""))[:MOST_HEADER_CHARS].split())
            try:
                return str(make_header(decode_header(text))) if "=?" in text else text
            except (HeaderParseError, LookupError, ValueError):
                return text
    return ""
