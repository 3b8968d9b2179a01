"""Admin of the audit log: list and export."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldAdminUUIDInputWidget

from accounts.audit import log
from accounts.audit.admin_base import ReadOnlyAdmin
from accounts.audit.admin_filters import choice_filter, datetime_range_filter, exact_filter, parse_utc_datetime
from accounts.audit.export import CONTENT_TYPES, EntrySelection, export_lines
from accounts.audit.forms import reason_field, reason_page
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
    widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})
    return forms.CharField(label=f"{label} (UTC)", required=False, widget=widget)


class ExportForm(forms.Form):
    since, until = _datetime_field("From"), _datetime_field("Until")
    action = forms.ChoiceField(required=False, widget=UnfoldAdminSelectWidget)
    actor_id = forms.UUIDField(label="Actor", required=False, widget=UnfoldAdminUUIDInputWidget)
    tenant_id = forms.UUIDField(label="Tenant", required=False, widget=UnfoldAdminUUIDInputWidget)
    object_id = forms.CharField(label="Object", required=False, widget=UnfoldAdminTextInputWidget)
    format = forms.ChoiceField(
        choices=[("csv", "CSV for a spreadsheet"), ("jsonl", "JSON lines")], widget=UnfoldAdminSelectWidget
    )
    reason = reason_field()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["action"].choices = [("", "All"), *actions()]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        for name in ("since", "until"):
            text = self.cleaned_data.get(name)
            self.cleaned_data[name] = parse_utc_datetime(text) if text else None
            if text and self.cleaned_data[name] is None:
                self.add_error(name, "This is not a valid date and time.")
        return self.cleaned_data

    @property
    def selection(self) -> EntrySelection:
        return EntrySelection(**{name: self.cleaned_data[name] or None for name in EntrySelection.__slots__})


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor", "action", "object_type", "object_id", "tenant_id", "reason")
    list_filter = (
        choice_filter("action", "action", actions), exact_filter("actor_id", "actor's id"),
        exact_filter("tenant_id", "tenant's id"), exact_filter("object_id", "object's id"),
        datetime_range_filter("at", "at"),
    )  # fmt: skip
    id_fields = ("entry_id", "object_id", "tenant_id", "actor_id")
    ordering = ("-at", "entry_id")
    fields = (
        ("at", "entry_id"), ("actor", "actor_id"), ("action", "reason"), ("object_type", "object_id"), "tenant_id",
        "details",
    )  # fmt: skip
    actions_list = ("export",)

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
        lines = export_lines(selection, file_format)
        return StreamingHttpResponse(lines, content_type=CONTENT_TYPES[file_format], headers=headers)
