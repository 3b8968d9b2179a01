"""Gmail: threads. They are searchable and belong to no client (spec 002 §5)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from documents.markdown.normalization import normalize
from integrations.providers.interface import RawItem, Record, Stream

THREAD = "gmail.thread"
STREAMS: Sequence[Stream] = (Stream("threads", "gmail.threads.list", THREAD, moves=True),)
ROLLUP = None  # Gmail writes no rows of ``client_intelligence``
MOST_CHARS = 200_000  # of a thread's stored text
MOST_TITLE_CHARS = 500


def thread_item(payload: Mapping[str, Any]) -> RawItem:
    """Return the item of a ``threads.thread_payload`` (spec 002 §5). Raises ``ValueError`` for another shape."""
    times = [message_time(message) for message in _messages(payload)]
    return RawItem(
        external_id=f"thread:{_text(payload, 'id')}",
        document_type=THREAD,
        payload=payload,
        source_created_at=min(times),
        source_updated_at=max(times),
        current=True,
    )


def map_record(item: RawItem) -> Record:
    messages = _messages(item.payload)
    title = normalize(_text(messages[0], "subject"))[:MOST_TITLE_CHARS].strip()
    text = "\n\n".join([title, *("\n".join(_lines(message)) for message in messages)])
    url = f"https://mail.google.com/mail/#all/{quote(_text(item.payload, 'id'), safe='')}"
    return Record(text=normalize(text[:MOST_CHARS]), title=title, url=url)


def message_time(message: Mapping[str, Any]) -> datetime:
    """Return when Gmail received a message, from its milliseconds as a string."""
    milliseconds = _text(message, "internalDate")
    if not (milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) < 15):
        raise ValueError("a message with another time")
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    yield f"From: {_text(message, 'from')}"
    yield f"To: {_text(message, 'to')}"
    yield f"Date: {message_time(message):%Y-%m-%d}"
    if names := message.get("attachments"):
        yield f"Attachments: {', '.join(str(name) for name in names)}"
    yield ""
    yield _text(message, "body_text")


def _messages(payload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    messages = payload.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, Mapping) for each in messages):
        raise ValueError("a thread without messages")
    return messages


def _text(payload: Mapping[str, Any], name: str) -> str:
    text = payload.get(name)
    if not isinstance(text, str):
        raise ValueError(f"a thread with another {name}")
    return text
