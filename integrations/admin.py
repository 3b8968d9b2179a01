"""Connected systems, their syncs and the pages that were given up, as staff look at them: ids, codes and counts."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Case, OuterRef, QuerySet, Subquery, UUIDField, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from accounts.audit import forms
from accounts.audit.admin_base import ReadOnlyAdmin
from accounts.audit.admin_filters import choice_filter, datetime_range_filter
from accounts.errors import ApiError
from accounts.models import User
from integrations.admin_filters import CreatedWithin
from integrations.models import ArchivedMessage, ConnectedSource, IngestionJob, Provider
from integrations.sync import replay as replaying

COUNTS = ("seen", "written", "unchanged", "embedded", "deleted", "failed")
IS_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
IS_ID = re.compile(r"[0-9]{1,18}")
MOST = 200  # pages put back at once


def nowrap(value: object) -> str:
    return format_html('<span class="whitespace-nowrap">{}</span>', value)


@admin.register(ConnectedSource)
class ConnectedSourceAdmin(ReadOnlyAdmin):
    """Neither a token nor where it is, and no name of an account: it may be a person's."""

    list_display = ("source", "provider", "status", "status_message", "transport", "last_synced_at", "tenant")
    list_filter = (
        choice_filter("status", "status", ConnectedSource.Status.choices),
        choice_filter("provider", "provider", Provider.choices),
    )  # fmt: skip
    id_fields = ("id", "user_id")
    ordering = ("-created_at", "id")
    fields = (
        ("id", "user_id"), ("provider", "transport"), ("status", "status_message"), "scopes",
        "missing", ("token_expires_at", "last_synced_at"), ("created_at", "updated_at"),
    )  # fmt: skip
    readonly_fields = ("missing",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ConnectedSource]:
        return ConnectedSource.objects.defer("cursor", "account")

    @admin.display(description="its server lacks")
    def missing(self, source: ConnectedSource) -> str:
        """Name the tool or the argument that an MCP server did not have when it was last asked."""
        return str(source.capabilities.get("missing", ""))

    @admin.display(description="source")
    def source(self, source: ConnectedSource) -> str:
        return nowrap(source.pk)

    @admin.display(description="tenant")
    def tenant(self, source: ConnectedSource) -> str:
        return nowrap(source.user_id)


@admin.register(IngestionJob)
class IngestionJobAdmin(ReadOnlyAdmin):
    list_display = ("job", "kind", "status", "error_message", "counts", "page", "created_at", "of_source", "tenant")
    list_filter = (
        CreatedWithin, choice_filter("status", "status", IngestionJob.Status.choices),
        choice_filter("kind", "kind", IngestionJob.Kind.choices),
        choice_filter("source__provider", "provider", Provider.choices),
    )  # fmt: skip
    id_fields = ("id", "source_id")
    ordering = ("-created_at", "id")
    fields = (
        ("id", "correlation_id"), ("user_id", "of_source"), ("kind", "status", "error_message"), ("page", "counts"),
        ("created_at", "started_at", "finished_at"), "failures",
    )  # fmt: skip
    readonly_fields = ("of_source", "counts", "failures")

    def get_queryset(self, request: HttpRequest) -> QuerySet[IngestionJob]:
        return IngestionJob.objects.defer("cursor")

    @admin.display(description="sync")
    def job(self, job: IngestionJob) -> str:
        return nowrap(job.pk)

    @admin.display(description="source")
    def of_source(self, job: IngestionJob) -> str:
        return nowrap(job.source_id)

    @admin.display(description="tenant")
    def tenant(self, job: IngestionJob) -> str:
        return nowrap(job.user_id)

    @admin.display(description="records")
    def counts(self, job: IngestionJob) -> str:
        found = ((name, getattr(job, f"items_{name}")) for name in COUNTS)
        return ", ".join(f"{number} {name}" for name, number in found if number)

    @admin.display(description="records that failed")
    def failures(self, job: IngestionJob) -> str:
        rows = ((each.get("external_id", ""), each.get("code", "")) for each in job.error_details)
        return format_html_join("", "<div>{}: {}</div>", rows)


@admin.register(ArchivedMessage)
class ArchivedMessageAdmin(ReadOnlyAdmin):
    list_display = (
        "msg_id", "archived_at", "provider", "kind", "code", "stream", "page", "read_ct", "job", "of_source", "tenant",
    )  # fmt: skip
    list_filter = (datetime_range_filter("archived_at", "archived"),)
    list_disable_select_all = True
    id_fields = ("msg_id",)
    ordering = ("-archived_at", "msg_id")
    # Not the message as it is: where a page begins is the provider's own text.
    fields = (
        ("msg_id", "read_ct"), ("enqueued_at", "archived_at"), ("provider", "kind", "code"), ("stream", "page"), "job",
        "of_source",
    )  # fmt: skip
    readonly_fields = ("provider", "kind", "code", "stream", "page", "job", "of_source")
    actions = ("replay",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ArchivedMessage]:
        named = Case(When(message__job_id__regex=IS_UUID, then=Cast(KT("message__job_id"), UUIDField())))
        jobs = IngestionJob.objects.filter(pk=OuterRef("named"))
        return ArchivedMessage.objects.annotate(named=named).annotate(
            sync=Subquery(jobs.values("pk")),
            sync_code=Subquery(jobs.values("error_message")),
            sync_provider=Subquery(jobs.values("source__provider")),
        )

    def response_action(self, request: HttpRequest, queryset: QuerySet[ArchivedMessage]) -> HttpResponse | None:
        if not all(IS_ID.fullmatch(chosen) for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            messages.error(request, "What was chosen is no message; choose again.")
            return HttpResponseRedirect(request.get_full_path())
        return cast("HttpResponse | None", super().response_action(request, queryset))

    @admin.display(description="sync")
    def kind(self, message: ArchivedMessage) -> str:
        return _said(message, "kind")

    @admin.display(description="stream")
    def stream(self, message: ArchivedMessage) -> str:
        return _said(message, "stream")

    @admin.display(description="page")
    def page(self, message: ArchivedMessage) -> str:
        return _said(message, "page")

    @admin.display(description="provider")
    def provider(self, message: ArchivedMessage) -> str:
        return getattr(message, "sync_provider", None) or ""

    @admin.display(description="sync's code")
    def code(self, message: ArchivedMessage) -> str:
        return getattr(message, "sync_code", None) or ""

    @admin.display(description="job")
    def job(self, message: ArchivedMessage) -> str:
        """Show the sync's id, as the way to its page while there is one."""
        sync = getattr(message, "sync", None)
        if sync is None:
            return nowrap(_said(message, "job_id"))
        page = reverse("admin:integrations_ingestionjob_change", args=[sync])
        return format_html('<a class="whitespace-nowrap underline" href="{}">{}</a>', page, sync)

    @admin.display(description="source")
    def of_source(self, message: ArchivedMessage) -> str:
        return nowrap(_said(message, "source_id"))

    @admin.display(description="tenant")
    def tenant(self, message: ArchivedMessage) -> str:
        return nowrap(_said(message, "user_id"))

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("integrations.replay_archivedmessage")

    @admin.action(description="Put back into the queue", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: QuerySet[ArchivedMessage]) -> HttpResponse | None:
        """Ask why, and put back what was chosen once that has been confirmed."""
        chosen = [int(each) for each in request.POST.getlist(ACTION_CHECKBOX_NAME)[:MOST]]
        form = forms.ReasonForm(request.POST if "confirmed" in request.POST else None)
        if form.is_valid():
            return self._replayed(request, chosen, form.cleaned_data["reason"])
        lines = (
            f"{len(chosen)} chosen. Each sync goes on from the page that was given up, if no other has begun since.",
        )
        hidden = [(ACTION_CHECKBOX_NAME, each) for each in chosen]
        return forms.reason_page(
            request, self.admin_site, form, title="Put back into the queue", button="Put back", lines=lines,
            back=request.get_full_path(), hidden=[*hidden, ("action", "replay"), ("index", "0"), ("confirmed", "yes")],
        )  # fmt: skip

    def _replayed(self, request: HttpRequest, msg_ids: list[int], reason: str) -> HttpResponse:
        became = replaying.replay_messages(msg_ids, by=cast(User, request.user), reason=reason)
        refused = Counter(each.code for each in became.values() if isinstance(each, ApiError))
        if done := len(became) - refused.total():
            messages.success(request, f"{done} put back.")
        for code, count in sorted(refused.items()):
            messages.warning(request, f"{count} not put back: {code}.")
        return HttpResponseRedirect(request.get_full_path())


def _said(message: ArchivedMessage, name: str) -> str:
    """Return one value of a message; what is no page of ours says nothing that is shown."""
    body: Any = message.message
    value = body.get(name) if isinstance(body, dict) else None
    return str(value)[:40] if isinstance(value, str | int) else ""
