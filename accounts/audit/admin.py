"""Admin of the audit log, with its export."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget as SelectWidget
from unfold.widgets import UnfoldAdminTextInputWidget as TextWidget
from unfold.widgets import UnfoldAdminUUIDInputWidget as UUIDWidget

from accounts import admin_base
from accounts.admin_base import ReadOnlyAdmin, reason_field, reason_page
from accounts.admin_cells import OBJECT_KINDS, id_cell, job_cell, named_cell, row_id, row_names
from accounts.audit import export, log
from accounts.audit.models import AuditEntry

# The distinct actions by a skip scan of the index: DISTINCT would read every entry.
ACTIONS = """
    WITH RECURSIVE known AS (
        (SELECT action FROM audit_entries ORDER BY action LIMIT 1)
        UNION ALL
        SELECT (SELECT action FROM audit_entries WHERE action > known.action ORDER BY action LIMIT 1)
        FROM known WHERE known.action IS NOT NULL)
    SELECT action FROM known WHERE action IS NOT NULL"""


def actions() -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(ACTIONS)
        return [(name, name) for (name,) in cursor.fetchall()]


def _datetime_field(label: str) -> forms.CharField:
    widget = TextWidget(attrs={"type": "datetime-local"})
    return forms.CharField(label=f"{label} (UTC)", required=False, widget=widget)


class ExportForm(forms.Form):
    since, until = _datetime_field("From"), _datetime_field("Until")
    action = forms.ChoiceField(required=False, widget=SelectWidget)
    actor_id = forms.UUIDField(label="Actor", required=False, widget=UUIDWidget)
    tenant_id = forms.UUIDField(label="Tenant", required=False, widget=UUIDWidget)
    object_id = forms.CharField(label="Object", required=False, widget=TextWidget)
    format = forms.ChoiceField(choices=[("csv", "CSV for a spreadsheet"), ("jsonl", "JSON lines")], widget=SelectWidget)
    reason = reason_field()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["action"].choices = [("", "All"), *actions()]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        for name in ("since", "until"):
            text = self.cleaned_data.get(name)
            self.cleaned_data[name] = admin_base.parse_utc_datetime(text) if text else None
            if text and self.cleaned_data[name] is None:
                self.add_error(name, "This is not a valid date and time.")
        return self.cleaned_data

    @property
    def selection(self) -> export.EntrySelection:
        return export.EntrySelection(
            **{name: self.cleaned_data[name] or None for name in export.EntrySelection.__slots__}
        )


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor", "action", "object", "tenant_id", "reason")
    list_filter = (
        admin_base.choice_filter("action", "action", actions), admin_base.exact_filter("actor_id", "actor's id"),
        admin_base.exact_filter("tenant_id", "tenant's id"), admin_base.exact_filter("object_id", "object's id"),
        admin_base.datetime_range_filter("at", "at"),
    )  # fmt: skip
    id_fields = ("entry_id", "object_id", "tenant_id", "actor_id")
    ordering = ("-at", "entry_id")
    fields = (
        ("at", "entry_id"), ("actor", "actor_id"), ("action", "reason"), ("object_type", "object_id"), "tenant_id",
        "details",
    )  # fmt: skip
    actions_list = ("export",)

    @admin.display(description="object")
    def object(self, entry: AuditEntry) -> str:
        """Return the object by its name today, if it is a tenant or a document that still exists."""
        pk = row_id(entry, "object_id")
        if pk is None:
            return entry.object_id
        if kind := OBJECT_KINDS.get(entry.object_type):
            return named_cell(kind, pk, row_names(entry))
        return job_cell(pk) if entry.object_type == "upload_job" else id_cell(pk, "the object's id")

    def has_export_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("audit.export_auditentry"))

    @action(description="Export", icon="download", url_path="export", permissions=["export"])  # type: ignore[untyped-decorator]
    def export(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        form = ExportForm(request.POST or None)
        if request.method != "POST" or not form.is_valid():
            back = reverse("admin:audit_auditentry_changelist")
            return reason_page(request, self.admin_site, form, title="Export the audit log", button="Export", back=back)
        selection, file_format = form.selection, form.cleaned_data["format"]
        log.record_action(
            by=request.user, action="audit.export", reason=form.cleaned_data["reason"],  # type: ignore[arg-type]
            object_type="audit_log", object_id=file_format, selection=selection.as_details,
        )  # fmt: skip
        headers = {"Content-Disposition": f'attachment; filename="audit.{file_format}"', "Cache-Control": "no-store"}
        lines = export.export_lines(selection, file_format)
        return StreamingHttpResponse(lines, content_type=export.CONTENT_TYPES[file_format], headers=headers)
