"""Values of a record as its provider told them: most may be absent. And lines of text to find a record by."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings

from integrations.providers.listing_response import UnreadableResponse
from integrations.records.text import strip_unstorable


def required_list(body: Any, name: str) -> list[Any]:
    """Return the list ``name`` of a page; raise ``Unreadable`` when there is none."""
    found = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(found, list):
        raise UnreadableResponse
    return found


def object_at(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object ``name`` of a payload, empty when it is absent; raise ``ValueError`` for any other thing."""
    found = payload.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no object")
    return found


def text_at(payload: Mapping[str, Any], name: str) -> str | None:
    """Return a value as one line of text, None when it is absent or blank; raise ``ValueError`` for an object."""
    found = payload.get(name)
    if found is None:
        return None
    if isinstance(found, Decimal):
        return format(found, "f")
    if not isinstance(found, str | int | float):
        raise ValueError(f"{name} is no text")
    return " ".join(strip_unstorable(str(found)).split()) or None


def record_id(payload: Any, name: str) -> str:
    """Return a record's own id; raise ``ValueError`` without one."""
    found = text_at(payload, name) if isinstance(payload, Mapping) else None
    if not found:
        raise ValueError("a record without its id")
    return found


def time_at(payload: Mapping[str, Any], name: str) -> datetime | None:
    """Return a time in UTC, None when it is absent; raise ``ValueError`` for what is no time."""
    said = text_at(payload, name)
    return None if said is None else parse_time(said)


def parse_time(said: str) -> datetime:
    found = datetime.fromisoformat(said)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def date_at(payload: Mapping[str, Any], name: str) -> str | None:
    """Return the date of a time as it was written."""
    said = text_at(payload, name)
    return said[:10] if said else None


def labeled_lines(*named: tuple[str, str | None]) -> str:
    """Return a line "Name: value" for each value that is there: what a person could search for."""
    return "\n".join(f"{name}: {value}" for name, value in named if value)


def now_cursor() -> str:
    """Return the time as a cursor."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def overlap_start(since: str) -> datetime:
    """Return from when a delta reads: some time before its cursor, as providers' clocks and searches lag behind."""
    overlap: float = settings.INGESTION_OVERLAP_SECONDS
    return parse_time(since) - timedelta(seconds=overlap)
