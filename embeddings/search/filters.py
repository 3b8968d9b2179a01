"""Filters of a search: pages, headings, documents, tags and times, parsed and as SQL conditions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_date, parse_datetime

from accounts.errors import ApiError
from documents.models import Document
from documents.tags import MAX_FILTER_TAGS
from embeddings import error_codes
from embeddings.search.vector_search import Condition, Scope

LAST_PAGE = 1_000_000
MAX_CHARS = 1_000  # of a heading or a filename

Lookup = tuple[str, Any]

PAGES = (
    "(c.meta -> 'pages' ->> 0)::int <= %(filter_last_page)s AND (c.meta -> 'pages' ->> 1)::int >= %(filter_first_page)s"
)
HEADING = """strpos(lower((SELECT string_agg(title, ' > ') FROM jsonb_array_elements_text(c.meta -> 'headings') title)),
                    lower(%(filter_heading)s)) > 0"""


@dataclass(frozen=True, slots=True)
class Filters:
    """``conditions`` are SQL on the chunks ``c``, ``lookups`` Django's on the documents."""

    conditions: tuple[Condition, ...] = ()
    lookups: tuple[Lookup, ...] = ()

    def narrow(self, scope: Scope, document_ids: Sequence[UUID] | None) -> Scope:
        """Narrow the scope to the ``document_ids`` (None: all) that pass. Call inside ``as_tenant``."""
        if self.lookups:
            documents = Document.objects.filter(user_id=scope.user_id, **dict(self.lookups))
            passing = documents if document_ids is None else documents.filter(pk__in=document_ids)
            document_ids = list(passing.values_list("pk", flat=True))
        return scope if document_ids is None else replace(scope, document_ids=tuple(sorted(set(document_ids))))


def parse_filters(filters: object) -> Filters:
    """Parse a request's filters; raise ``ApiError`` for one that is unknown or invalid."""
    if filters is None:
        return Filters()
    if not isinstance(filters, Mapping):
        raise _invalid("", "filters is an object.")
    if any(name not in PARSERS for name in filters):
        raise ApiError(error_codes.UNKNOWN_FILTER, f"The filters are {', '.join(PARSERS)}.", field="filters")
    parsed = [PARSERS[name](name, raw) for name, raw in filters.items() if raw is not None]
    conditions = tuple(each for each in parsed if isinstance(each[1], dict))
    lookups = {name: bound for name, bound in parsed if not isinstance(bound, dict)}
    after, before = lookups.get("created_at__gte"), lookups.get("created_at__lt")
    if after and before and after >= before:
        raise _invalid("uploaded_before", "uploaded_before must be later than uploaded_after.")
    return Filters(conditions, tuple(lookups.items()))


def _invalid(name: str, detail: str) -> ApiError:
    return ApiError(error_codes.INVALID_FILTER, detail, field=f"filters.{name}" if name else "filters")


def _pages(name: str, raw: object) -> Condition:
    numbers = raw if isinstance(raw, (list, tuple)) else ()
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise _invalid(name, "pages is [first, last], two whole numbers.")
    first, last = numbers
    if not 1 <= first <= last <= LAST_PAGE:
        raise _invalid(name, f"pages is [first, last], from 1 to {LAST_PAGE}, first not after last.")
    return PAGES, {"filter_first_page": first, "filter_last_page": last}


def _text(name: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise _invalid(name, f"{name} is a text that is not empty.")
    if len(raw) > MAX_CHARS or "\0" in raw or any("\ud800" <= letter <= "\udfff" for letter in raw):
        raise _invalid(name, f"{name} is a text of at most {MAX_CHARS} characters, without control or half characters.")
    return raw.strip()


def _tags(name: str, raw: object) -> tuple[UUID, ...]:
    try:
        if isinstance(raw, (list, tuple)) and 0 < len(raw) <= MAX_FILTER_TAGS:
            return tuple(map(UUID, raw))
    except (ValueError, TypeError, AttributeError):  # UUID's, for what is no text
        pass
    raise _invalid(name, f"tags is a list of 1 to {MAX_FILTER_TAGS} ids of tags.")


def _time(name: str, raw: object) -> datetime:
    """Parse a time; a day is its first moment, a time without zone is UTC."""
    try:
        if isinstance(raw, str):
            moment = parse_datetime(raw)
            if moment is None and (day := parse_date(raw)):
                moment = datetime.combine(day, time())
            if moment:
                # To UTC here, where a moment outside the calendar raises, and not in the database.
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # well formed, and no such day
        pass
    raise _invalid(name, f"{name} is a date or a time in ISO 8601, like 2026-01-31 or 2026-01-31T12:00:00Z.")


PARSERS: dict[str, Callable[[str, object], Condition | Lookup]] = {
    "pages": _pages,
    "heading": lambda name, raw: (HEADING, {"filter_heading": _text(name, raw)}),
    "filename": lambda name, raw: ("filename__iexact", _text(name, raw)),
    "tags": lambda name, raw: ("tag_rows__tag__in", _tags(name, raw)),
    "uploaded_after": lambda name, raw: ("created_at__gte", _time(name, raw)),
    "uploaded_before": lambda name, raw: ("created_at__lt", _time(name, raw)),
}
