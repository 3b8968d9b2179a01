"""ListQuery of the document list: filters, order, view and place, parsed from the page's address."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import Q, Value
from django.db.models.functions import Lower
from django.http import QueryDict
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext_lazy as _

from documents import tags

MAX_CURSOR_CHARS = 400  # the longest has a file name
MAX_NAME_CHARS = 120
MAX_ZONE_CHARS = 64
MAX_ADDRESS_CHARS = 4000
DONE, FAILED = "complete", "failed_"
STATES = {
    "ready": (_("Searchable"), Q(processing_status=DONE)),
    "preparing": (_("Preparing"), ~Q(processing_status=DONE) & ~Q(processing_status__startswith=FAILED)),
    "failed": (_("Failed"), Q(processing_status__startswith=FAILED)),
}
TYPES = {
    "uploaded": (_("Uploaded"), Q(imported=False)),
    "connected": (_("From a connected system"), Q(imported=True)),
    "scan": (_("Scans"), Q(ocr=True)),
}


@dataclass(frozen=True, slots=True)
class Order:
    """Order of the list by a column and the document's id; ``by_id`` is the direction of the id in its index."""

    label: Any  # a lazy translation
    column: str
    descending: bool
    by_id: str

    @property
    def order_by(self) -> tuple[str, str]:
        return f"{'-' * self.descending}{self.column}", f"{'-' * (self.by_id == 'lt')}document_id"

    def rows_after(self, value: Any, document_id: UUID) -> Q:
        # Both bounds: an index can start at the first one only.
        beyond = "lt" if self.descending else "gt"
        return Q(**{f"{self.column}__{beyond}e": value}) & (
            Q(**{f"{self.column}__{beyond}": value}) | Q(**{f"document_id__{self.by_id}": document_id})
        )


ORDERS = {
    "newest": Order(_("Newest first"), "created_at", True, "gt"),
    "oldest": Order(_("Oldest first"), "created_at", False, "lt"),
    "name": Order(_("Name, A to Z"), "sort_name", False, "gt"),
    "name-desc": Order(_("Name, Z to A"), "sort_name", True, "lt"),
    "largest": Order(_("Largest first"), "bytes_len", True, "lt"),
    "smallest": Order(_("Smallest first"), "bytes_len", False, "gt"),
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Values that are unknown or malformed are passed over, as those of an old bookmark."""

    name: str = ""
    state: str = ""
    type: str = ""
    tag_ids: tuple[UUID, ...] = ()
    since: date | None = None
    until: date | None = None
    zone: str = ""  # of the reader's days, as their browser names it; UTC without it
    sort: str = "newest"
    cursor: str = ""

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "ListQuery":
        chosen = fields.getlist("tag") if isinstance(fields, QueryDict) else ()
        return cls(
            name=fields.get("name", "").replace("\0", "").strip()[:MAX_NAME_CHARS],
            state=_known(fields.get("state"), STATES),
            type=_known(fields.get("type"), TYPES),
            tag_ids=tuple(filter(None, map(_parse_uuid, chosen[: tags.MAX_FILTER_TAGS]))),
            since=_parse_day(fields.get("since")),
            until=_parse_day(fields.get("until")),
            zone=_parse_zone(fields.get("zone")),
            sort=_known(fields.get("sort"), ORDERS) or "newest",
            cursor=fields.get("from", "")[:MAX_CURSOR_CHARS],
        )

    @property
    def order(self) -> Order:
        return ORDERS[self.sort]

    @property
    def is_filtered(self) -> bool:
        return replace(self, sort="newest", cursor="", zone="") != ListQuery()

    @property
    def is_folded(self) -> bool:
        """Whether nothing is chosen among the filters that are folded away."""
        return not (self.type or self.since or self.until)

    def conditions(self, user_id: UUID) -> Q:
        condition = Q(user_id=user_id)
        if self.name:
            condition &= Q(sort_name__contains=Lower(Value(self.name)))  # by the database's rules, as the column
        if self.state:
            condition &= STATES[self.state][1]
        if self.type:
            condition &= TYPES[self.type][1]
        if self.tag_ids:
            condition &= Q(tags.has_any_tag(user_id, self.tag_ids))
        if self.since:
            condition &= Q(created_at__gte=self._midnight(self.since))
        if self.until:
            condition &= Q(created_at__lt=self._midnight(self.until + timedelta(days=1)))
        return condition & self._after_cursor()

    def _midnight(self, day: date) -> datetime:
        return datetime.combine(day, time(), ZoneInfo(self.zone or "UTC"))

    def _after_cursor(self) -> Q:
        value, _, last_id = self.cursor.rpartition("_")
        document_id = _parse_uuid(last_id)
        parsed = _PARSERS[self.order.column](value) if document_id else None
        return Q() if parsed is None or document_id is None else self.order.rows_after(parsed, document_id)

    def cursor_after(self, document: Any) -> str:
        value = getattr(document, self.order.column)
        return f"{value.isoformat() if isinstance(value, datetime) else value}_{document.pk}"

    def address(self, **changes: Any) -> str:
        """Return the query of the page's address, with some values changed."""
        other = replace(self, **changes)
        fields = {
            "name": other.name,
            "state": other.state,
            "type": other.type,
            "since": other.since and other.since.isoformat(),
            "until": other.until and other.until.isoformat(),
            "zone": other.zone if other.since or other.until else "",
            "sort": "" if other.sort == "newest" else other.sort,
            "from": other.cursor,
        }
        pairs = [(name, value) for name, value in fields.items() if value]
        return urlencode([*pairs, *(("tag", str(tag_id)) for tag_id in other.tag_ids)])

    @property
    def first_page(self) -> str:
        return self.address(cursor="")


def _known(value: str | None, choices: Mapping[str, Any]) -> str:
    return value if value and value in choices else ""


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _parse_day(text: str | None) -> date | None:
    try:
        day = parse_date(text or "")
    except ValueError:
        return None
    return day if day and 1970 <= day.year < 9999 else None


def _parse_zone(text: str | None) -> str:
    try:
        return ZoneInfo(text).key if text and len(text) <= MAX_ZONE_CHARS else ""
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return ""


def _parse_time(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
        return moment.astimezone(UTC) if moment and moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _parse_length(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


def _parse_name(text: str) -> str | None:
    return None if "\0" in text else text


_PARSERS: dict[str, Any] = {"created_at": _parse_time, "bytes_len": _parse_length, "sort_name": _parse_name}
