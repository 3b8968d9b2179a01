"""From a thread as Gmail tells it to the shape that is stored (spec 002 §5)."""

from __future__ import annotations

from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Any

from integrations.providers.gmail import MOST_CHARS, message_time
from integrations.providers.gmail.mime_body import ReadBudget, attachment_names, message_text

# Mail that its owner threw away, that nobody wanted, or that was never sent.
UNSEEN = {"TRASH", "SPAM", "DRAFT"}
MOST_HEADER_CHARS = 2_000  # a message may go to thousands


def thread_payload(thread: Mapping[str, Any]) -> dict[str, Any] | None:
    """Shape a thread of ``threads.get``; None when its owner sees no message of it any more.

    Raises ``ValueError`` for an answer of another shape.
    """
    messages = thread.get("messages", [])
    if not isinstance(thread.get("id"), str) or not isinstance(messages, list):
        raise ValueError("a thread of another shape")
    seen = sorted((message for message in messages if is_visible(message)), key=message_time)
    if not seen:
        return None
    return {"id": thread["id"], "snippet": str(seen[-1].get("snippet", "")), "messages": _shaped(seen)}


def is_visible(message: Any) -> bool:
    if not isinstance(message, Mapping):
        raise ValueError("a message of another shape")
    labels = message.get("labelIds", [])
    return not (isinstance(labels, list) and UNSEEN & {label for label in labels if isinstance(label, str)})


def _shaped(messages: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read the newest first, as they say what it has come to, until there is as much text as is stored."""
    budget, left, shaped = ReadBudget(), MOST_CHARS, []
    for message in reversed(messages):
        each = _message(message, budget if left else None)
        each["body_text"] = each["body_text"][:left]
        left -= len(each["body_text"])
        shaped.append(each)
    return shaped[::-1]


def _message(message: Mapping[str, Any], budget: ReadBudget | None) -> dict[str, Any]:
    payload = message.get("payload")
    payload = payload if isinstance(payload, Mapping) else {}
    shaped = {
        "id": str(message.get("id", "")),
        **{name: _header(payload, name) for name in ("from", "to", "cc", "subject")},
        "internalDate": message["internalDate"],
        "body_text": message_text(payload, budget) if budget else "",
        "attachments": attachment_names(payload),
    }
    return {name: value for name, value in shaped.items() if value or name not in ("cc", "attachments")}


def _header(payload: Mapping[str, Any], wanted: str) -> str:
    headers = payload.get("headers")
    for header in headers if isinstance(headers, list) else []:
        if isinstance(header, Mapping) and str(header.get("name", "")).lower() == wanted:
            return _unfolded(str(header.get("value", ""))[:MOST_HEADER_CHARS])
    return ""


def _unfolded(value: str) -> str:
    """Return a header as it is read; encoded words are usually decoded by Gmail already."""
    value = " ".join(value.split())
    if "=?" not in value:
        return value
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        return value
