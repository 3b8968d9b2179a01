"""Export of the audit log as CSV or JSON lines."""

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
END = "end"  # in the first column of the last line
# The beginnings of cells that Excel, LibreOffice or Google Sheets would calculate (OWASP, CSV injection).
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class EntrySelection:
    """Filters of entries; None matches all. ``until`` is excluded."""

    since: datetime | None = None
    until: datetime | None = None
    action: str | None = None
    actor_id: UUID | None = None
    tenant_id: UUID | None = None
    object_id: str | None = None

    @property
    def entries(self) -> QuerySet[AuditEntry]:
        filters = {
            "at__gte": self.since, "at__lt": self.until, "action": self.action, "actor_id": self.actor_id,
            "tenant_id": self.tenant_id, "object_id": self.object_id,
        }  # fmt: skip
        return AuditEntry.objects.filter(**{name: text for name, text in filters.items() if text is not None})

    @property
    def as_details(self) -> dict[str, str]:
        """The filters that are set, for the audit entry of the export itself."""
        filters = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(text) for name, text in filters.items() if text is not None}


def export_lines(selection: EntrySelection, file_format: str) -> Iterator[str]:
    """Yield the file, the oldest entry first, holding at most a page of it and no cursor.

    The last line marks the end and has the count of entries: a file without it is incomplete.
    """
    count = 0
    if file_format == "csv":
        writer = csv.writer(_LineBuffer(), quoting=csv.QUOTE_ALL)
        yield writer.writerow(COLUMNS)
        for entry in _read_entries(selection):
            yield writer.writerow([escape_formula(cell) for cell in serialize_entry(entry).values()])
            count += 1
        yield writer.writerow([END, *[""] * (len(COLUMNS) - 2), json.dumps({"entries": count})])
    else:
        for entry in _read_entries(selection):
            yield json.dumps(serialize_entry(entry)) + "\n"
            count += 1
        yield json.dumps({END: True, "entries": count}) + "\n"


def serialize_entry(entry: AuditEntry) -> dict[str, Any]:
    columns = {name: getattr(entry, name) for name in COLUMNS}
    ids = {name: str(cell) for name, cell in columns.items() if isinstance(cell, UUID)}
    return columns | ids | {"at": entry.at.isoformat()}


def escape_formula(cell: Any) -> str:
    text = "" if cell is None else json.dumps(cell) if isinstance(cell, dict) else str(cell)
    return f"'{text}" if text.startswith(FORMULA) else text


def _read_entries(selection: EntrySelection) -> Iterator[AuditEntry]:
    """Read ix_audit_at backwards: the order of the admin's list, from its other end."""
    ordered = selection.entries.order_by("at", "-entry_id")
    page = list(ordered[:PAGE])
    while page:
        yield from page
        last = page[-1]
        beyond = Q(at__gt=last.at) | Q(at=last.at, entry_id__lt=last.entry_id)
        page = list(ordered.filter(beyond, at__gte=last.at)[:PAGE])


class _LineBuffer:  # a file for the csv module
    def write(self, line: str) -> str:
        return line
