"""What a search is narrowed to: pages, headings, and the documents' name and day. Applied before anything is ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_date, parse_datetime

from accounts.errors import ApiError
from documents.models import Document
from embeddings.error_codes import INVALID_FILTER, UNKNOWN_FILTER

LAST_PAGE = 1_000_000
LONGEST = 1_000  # characters of a heading or a filename

Condition = tuple[str, dict[str, Any]]
Lookup = tuple[str, Any]

PAGES = (
    "(c.meta -> 'pages' ->> 0)::int <= %(filter_last_page)s AND (c.meta -> 'pages' ->> 1)::int >= %(filter_first_page)s"
)
HEADING = """strpos(lower((SELECT string_agg(title, ' > ') FROM jsonb_array_elements_text(c.meta -> 'headings') title)),
                    lower(%(filter_heading)s)) > 0"""


@dataclass(frozen=True, slots=True)
class Filters:
    """``conditions`` are SQL on the passages ``c``, ``lookups`` Django's on the documents."""

    conditions: tuple[Condition, ...] = ()
    lookups: tuple[Lookup, ...] = ()

    def document_ids(self, user_id: UUID) -> tuple[UUID, ...] | None:
        """The tenant's documents that pass; None when no filter asks about documents. Call inside ``as_tenant``."""
        if not self.lookups:
            return None
        own = Document.objects.filter(user_id=user_id, **dict(self.lookups))
        return tuple(own.order_by("pk").values_list("pk", flat=True))


def parse_filters(given: object) -> Filters:
    """Read a request's filters; raise ``Refused`` for one that is unknown or cannot be meant."""
    if given is None:
        return Filters()
    if not isinstance(given, Mapping):
        raise _invalid("", "filters is an object.")
    if any(name not in READERS for name in given):
        raise ApiError(UNKNOWN_FILTER, f"The filters are {', '.join(READERS)}.", field="filters")
    read = [READERS[name](name, value) for name, value in given.items() if value is not None]
    conditions = tuple(one for one in read if isinstance(one[1], dict))
    lookups = tuple(one for one in read if not isinstance(one[1], dict))
    said = dict(lookups)
    if {"created_at__gte", "created_at__lt"} <= said.keys() and said["created_at__gte"] >= said["created_at__lt"]:
        raise _invalid("uploaded_before", "uploaded_before must be later than uploaded_after.")
    return Filters(conditions, lookups)


def _invalid(name: str, detail: str) -> ApiError:
    return ApiError(INVALID_FILTER, detail, field=f"filters.{name}" if name else "filters")


def _pages(name: str, value: object) -> Condition:
    numbers = value if isinstance(value, (list, tuple)) else ()
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise _invalid(name, "pages is [first, last], two whole numbers.")
    first, last = numbers
    if not 1 <= first <= last <= LAST_PAGE:
        raise _invalid(name, f"pages is [first, last], from 1 to {LAST_PAGE}, first not after last.")
    return PAGES, {"filter_first_page": first, "filter_last_page": last}


def _heading(name: str, value: object) -> Condition:
    return HEADING, {"filter_heading": _text(name, value)}


def _filename(name: str, value: object) -> Lookup:
    return "filename__iexact", _text(name, value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _invalid(name, f"{name} is a text that is not empty.")
    if len(value) > LONGEST or "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _invalid(name, f"{name} is a text of at most {LONGEST} characters, without control or half characters.")
    return value.strip()


def _after(name: str, value: object) -> Lookup:
    return "created_at__gte", _moment(name, value)


def _before(name: str, value: object) -> Lookup:
    return "created_at__lt", _moment(name, value)


def _moment(name: str, value: object) -> datetime:
    """A day is its first moment; what names no time zone is UTC."""
    try:
        found = _parsed(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):  # well formed, and no such day
        found = None
    if found is None:
        raise _invalid(name, f"{name} is a date or a time in ISO 8601, like 2026-01-31 or 2026-01-31T12:00:00Z.")
    return found


def _parsed(value: str) -> datetime | None:
    moment = parse_datetime(value)
    if moment is None:
        day = parse_date(value)
        moment = datetime.combine(day, time()) if day else None
    if moment is None:
        return None
    # Towards UTC here, where a moment outside the calendar raises, and not in the database.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


READERS: dict[str, Callable[[str, object], Condition | Lookup]] = {
    "pages": _pages,
    "heading": _heading,
    "filename": _filename,
    "uploaded_after": _after,
    "uploaded_before": _before,
}
