"""Typed access to provider JSON: required fields of listing responses, optional fields of records, cursors."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings

from integrations.error_codes import ITEM_UNREADABLE
from integrations.providers.interface import FailedItem, RawItem
from integrations.records.text_normalization import strip_unstorable
from jobs.outcomes import Retryable
from vendors.error_codes import VENDOR_ANSWER_INVALID


class UnreadableResponse(Retryable):
    """A page that differs from the provider's documentation. Never taken for an empty one: that would delete."""

    def __init__(self) -> None:
        super().__init__(VENDOR_ANSWER_INVALID)


# --- listing responses: a malformed one fails the page --------------------------------------------------------------
def required_text(body: Mapping[str, Any], name: str) -> str:
    """Return a string that must be there; a number is accepted, as Google sends both."""
    text = body.get(name)
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not text:
        raise UnreadableResponse
    return text


def required_list(body: Any, name: str) -> list[Any]:
    rows = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(rows, list):
        raise UnreadableResponse
    return rows


def object_list(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects; Google omits an empty one."""
    rows = body.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnreadableResponse
    return rows


def require_any(body: Mapping[str, Any], *names: str) -> None:
    """Raise unless the response is a listing: taken for an empty one it would delete every record."""
    if not any(name in body for name in names):
        raise UnreadableResponse


def next_page_token(body: Mapping[str, Any]) -> str | None:
    return required_text(body, "nextPageToken") if body.get("nextPageToken") else None


def parse_items(
    kind: Any, payloads: Sequence[Any], parse: Callable[[Any, Any], RawItem], id_name: str
) -> tuple[list[RawItem], list[FailedItem]]:
    """Return the items of a page, ``parse`` of ``kind`` and payload each, and the records that cannot be read."""
    items, failed = [], []
    for payload in payloads:
        try:
            items.append(parse(kind, payload))
        except ValueError:
            failed.append(FailedItem(f"{kind.singular}:{id_or_none(payload, id_name) or '?'}", ITEM_UNREADABLE))
    return items, failed


# --- records: a malformed one fails alone, by ValueError ------------------------------------------------------------
def object_at(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object ``name`` of a payload, empty when absent; raise ``ValueError`` for anything else."""
    part = payload.get(name)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise ValueError(f"{name} is no object")
    return part


def text_at(payload: Mapping[str, Any], name: str) -> str | None:
    """Return a value as one line of text, None when absent or blank; raise ``ValueError`` for an object."""
    scalar = payload.get(name)
    if scalar is None:
        return None
    if isinstance(scalar, Decimal):
        return format(scalar, "f")
    if not isinstance(scalar, str | int | float):
        raise ValueError(f"{name} is no text")
    return " ".join(strip_unstorable(str(scalar)).split()) or None


def record_id(payload: Any, name: str) -> str:
    id = text_at(payload, name) if isinstance(payload, Mapping) else None
    if not id:
        raise ValueError("a record without its id")
    return id


def id_or_none(payload: Any, name: str) -> str | None:
    try:
        return record_id(payload, name)
    except ValueError:
        return None


def time_at(payload: Mapping[str, Any], name: str) -> datetime | None:
    """Return a time in UTC, None when absent; raise ``ValueError`` for anything else."""
    text = text_at(payload, name)
    return None if text is None else parse_time(text)


def parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def date_at(payload: Mapping[str, Any], name: str) -> str | None:
    text = text_at(payload, name)
    return text[:10] if text else None


def labeled_lines(*fields: tuple[str, str | None]) -> str:
    """Return a line "Name: value" for each value that is there: the words that people search for."""
    return "\n".join(f"{name}: {text}" for name, text in fields if text)


# --- paging ---------------------------------------------------------------------------------------------------------
def page_size(most: int) -> int:
    return min(most, int(settings.INGESTION_PAGE_SIZE))


def now_cursor() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def overlap_start(since: str) -> datetime:
    """Return where a delta begins: some time before its cursor, as providers' clocks and searches lag behind."""
    overlap: float = settings.INGESTION_OVERLAP_SECONDS
    return parse_time(since) - timedelta(seconds=overlap)
