"""The audit log as a file: chosen, read page by page, and written so that no spreadsheet takes a cell for a formula."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.audit.models import AuditEntry

COLUMNS = (
    "entry_id", "at", "actor_id", "actor", "action", "reason", "object_type", "object_id", "tenant_id", "details",
)  # fmt: skip
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
PAGE = 1_000
END = "end"  # in the first column, where an entry has its id
# How a cell begins that Excel, LibreOffice or Google Sheets would calculate (OWASP, CSV injection).
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class EntrySelection:
    """Which entries; None leaves it open. ``until`` is not included."""

    since: datetime | None = None
    until: datetime | None = None
    action: str | None = None
    actor_id: UUID | None = None
    tenant_id: UUID | None = None
    object_id: str | None = None

    @property
    def entries(self) -> QuerySet[AuditEntry]:
        said = {
            "at__gte": self.since, "at__lt": self.until, "action": self.action, "actor_id": self.actor_id,
            "tenant_id": self.tenant_id, "object_id": self.object_id,
        }  # fmt: skip
        return AuditEntry.objects.filter(**{name: value for name, value in said.items() if value is not None})

    @property
    def as_details(self) -> dict[str, str]:
        """What was asked for, for the entry about the export itself."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(value) for name, value in named.items() if value is not None}


def export_lines(chosen: EntrySelection, form: str) -> Iterator[str]:
    """Yield the file, the oldest entry first, without ever holding more than a page of it or a cursor.

    The last line says that it is the last, and how many entries came before: a file without it was broken off.
    """
    return _csv(chosen) if form == "csv" else _jsonl(chosen)


def _jsonl(chosen: EntrySelection) -> Iterator[str]:
    count = 0
    for entry in _read(chosen):
        yield json.dumps(serialize_entry(entry)) + "\n"
        count += 1
    yield json.dumps({END: True, "entries": count}) + "\n"


def serialize_entry(entry: AuditEntry) -> dict[str, Any]:
    return {name: _plain(getattr(entry, name)) for name in COLUMNS}


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case UUID():
            return str(value)
    return value


def _read(chosen: EntrySelection) -> Iterator[AuditEntry]:
    """Walk ix_audit_at backwards: the same order as the admin's list, from its other end."""
    ordered = chosen.entries.order_by("at", "-entry_id")
    page = list(ordered[:PAGE])
    while page:
        yield from page
        last = page[-1]
        beyond = Q(at__gt=last.at) | Q(at=last.at, entry_id__lt=last.entry_id)
        page = list(ordered.filter(beyond, at__gte=last.at)[:PAGE])


class _Lines:
    """What the csv module writes to: it hands each line back."""

    def write(self, line: str) -> str:
        return line


def _csv(chosen: EntrySelection) -> Iterator[str]:
    writer = csv.writer(_Lines(), quoting=csv.QUOTE_ALL)
    yield writer.writerow(COLUMNS)
    count = 0
    for entry in _read(chosen):
        yield writer.writerow([_cell(value) for value in serialize_entry(entry).values()])
        count += 1
    yield writer.writerow([END, *[""] * (len(COLUMNS) - 2), json.dumps({"entries": count})])


def _cell(value: Any) -> str:
    text = "" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text
