"""Cells of the admin's lists and pages: names of tenants and documents instead of their ids, times, ids, money.

Rows keep ids only. The names are joined when a page is shown, so a deletion removes them from everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib.admin.utils import display_for_value
from django.db import connection
from django.db.models import DateTimeField, DecimalField, Field, UUIDField
from django.urls import reverse
from django.utils.html import format_html

from accounts.number_formats import format_money
from accounts.system_tenant import SYSTEM_TENANT_ID

# Each kind of name: the permission to see it, and its query by ids. The table of `documents` by its name: accounts
# import nothing of it.
NAMES = {
    "tenant": ("accounts.view_user", "SELECT id, email FROM users WHERE id = ANY(%s)"),
    "document": (
        "documents.view_document",
        "SELECT document_id, filename FROM documents WHERE document_id = ANY(%s)",
    ),
}
KINDS = {"user_id": "tenant", "tenant_id": "tenant", "actor_id": "tenant", "document_id": "document"}
OBJECT_KINDS = {"user": "tenant", "document": "document"}  # of audit entries
PAGES = {"tenant": "console:tenant", "document": "admin:documents_document_change"}
ROW_NAMES = "names_of_row"


@dataclass(frozen=True, slots=True)
class Names:
    """Names by kind and id, as far as the member of staff may see them."""

    by_kind: Mapping[str, Mapping[UUID, str]] = field(default_factory=dict)

    def find(self, kind: str, pk: UUID | None) -> str | None:
        if kind == "tenant" and pk == SYSTEM_TENANT_ID:
            return "statutes"
        return self.by_kind.get(kind, {}).get(pk) if pk else None


NO_NAMES = Names()


def find_names(user: Any, **ids: Iterable[UUID | None]) -> Names:
    """Return the names of ``tenant`` and ``document`` ids that ``user`` may see, by one query a kind."""
    by_kind: dict[str, dict[UUID, str]] = {}
    for kind, chosen in ids.items():
        permission, query = NAMES[kind]
        if (keys := list({pk for pk in chosen if pk})) and user.has_perm(permission):
            with connection.cursor() as cursor:
                cursor.execute(query, [keys])
                by_kind[kind] = dict(cursor.fetchall())
    return Names(by_kind)


def join_names(user: Any, rows: Iterable[Any]) -> None:
    """Give each row the names of its ids, for the cells below."""
    rows = list(rows)
    ids: dict[str, list[UUID | None]] = {"tenant": [], "document": []}
    for row in rows:
        for name, kind in KINDS.items():
            ids[kind].append(row_id(row, name))
        if object_kind := OBJECT_KINDS.get(getattr(row, "object_type", "")):
            ids[object_kind].append(row_id(row, "object_id"))
    names = find_names(user, **ids)
    for row in rows:
        setattr(row, ROW_NAMES, names)


def row_id(row: Any, name: str) -> UUID | None:
    """Return an id of a row, None where the row has none or an invalid one (a message's body)."""
    value = getattr(row, name, None)
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            return None
    return value


def row_names(row: Any) -> Names:
    names: Names = getattr(row, ROW_NAMES, NO_NAMES)
    return names


def copy_button(text: object, label: str) -> str:
    """Return a button that copies a whole id; console.js listens for it."""
    return format_html(
        '<button type="button" class="console-copy material-symbols-outlined" data-copy="{}" title="{}" '
        'aria-label="Copy {} {}">content_copy</button>',
        text, text, label, text,
    )  # fmt: skip


def id_cell(pk: object, label: str = "the id") -> str:
    """Return the first eight characters of an id, with a button that copies it whole."""
    if not pk:
        return "-"
    return format_html(
        '<span class="console-nowrap"><span class="console-id">{}</span>{}</span>',
        str(pk)[:8], copy_button(pk, label),
    )  # fmt: skip


def named_cell(kind: str, pk: UUID | None, names: Names, *, page: bool = True) -> str:
    """Return the name of a tenant or a document, linked to its page, with a button that copies the id."""
    name = names.find(kind, pk)
    if not pk or name is None:
        return id_cell(pk, f"the {kind}'s id")
    if not page or pk == SYSTEM_TENANT_ID:
        return format_html('<span class="console-name" title="{}">{}</span>', name, name)
    return format_html(
        '<span class="console-nowrap"><a class="console-name" href="{}" title="{}">{}</a>{}</span>',
        reverse(PAGES[kind], args=[pk]), name, name, copy_button(pk, f"the {kind}'s id"),
    )  # fmt: skip


def job_cell(pk: UUID | None, text: str = "") -> str:
    """Return a link to a job's page, with a button that copies the id."""
    if not pk:
        return "-"
    text = text or f"job {str(pk)[:8]}"
    return format_html(
        '<span class="console-nowrap"><a class="console-name underline" href="{}" title="{}">{}</a>{}</span>',
        reverse("console:job", args=[pk]), text, text, copy_button(pk, "the job's id"),
    )  # fmt: skip


def time_cell(moment: datetime | None) -> str:
    """Return a moment in UTC; console.js shows it in local time and UTC on hover."""
    if moment is None:
        return "-"
    utc = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return format_html('<time class="console-nowrap" datetime="{}">{} UTC</time>', moment.isoformat(), utc)


def cell(field: Field[Any, Any], row: Any, *, linked: bool = True) -> object:
    """Return what is shown of a model's field; not ``linked``: no link or button in it, where it is within a link."""
    name, value = field.attname, getattr(row, field.attname)
    if name in KINDS:
        return named_cell(KINDS[name], row_id(row, name), row_names(row), page=linked)
    if name == "job_id" and linked:
        return job_cell(value)
    if isinstance(field, UUIDField):
        return id_cell(value) if linked else format_html('<span class="console-id">{}</span>', str(value)[:8])
    if isinstance(field, DateTimeField):
        return time_cell(value)
    if isinstance(field, DecimalField) and "cents" in name:
        return display_for_value("-" if value is None else format_money(float(value)), "-")
    return value


def is_shown_by_cell(field: Any) -> bool:
    """Tell whether ``cell`` shows a field in another way than Django does."""
    name = getattr(field, "attname", "")
    is_money = isinstance(field, DecimalField) and "cents" in name
    return name in KINDS or name == "job_id" or isinstance(field, UUIDField | DateTimeField) or is_money


LABELS = {"user_id": "tenant", "tenant_id": "tenant", "document_id": "document", "job_id": "job", "actor_id": "actor"}


def cell_of(field: Any, *, linked: bool = True) -> Callable[[Any], object]:
    """Return a column for a model's field."""

    def show(row: Any) -> object:
        return cell(field, row, linked=linked)

    label = LABELS.get(field.attname, str(field.verbose_name)).replace("cost cents", "price").replace("cents", "price")
    show.short_description = label  # type: ignore[attr-defined]
    return show
