"""Staff admin of sources, syncs and archived messages: ids, codes and counts."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Case, OuterRef, QuerySet, Subquery, UUIDField, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from accounts import admin_base
from accounts.admin_base import ChoiceFilter, ReadOnlyAdmin, choice_filter, column, datetime_range_filter, nowrap
from accounts.admin_cells import id_cell, named_cell, row_id, row_names
from accounts.errors import ApiError
from accounts.models import User
from integrations.models import ArchivedMessage, ConnectedSource, IngestionJob, Provider
from integrations.sync.lifecycle import replay_messages

COUNTS = ("seen", "written", "unchanged", "embedded", "deleted", "failed")
IS_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
IS_ID = re.compile(r"[0-9]{1,18}")
MOST = 200  # pages put back at once


def body_column(description: str, name: str) -> Callable[[ReadOnlyAdmin, ArchivedMessage], str]:
    return admin.display(description=description)(lambda self, message: nowrap(_body_field(message, name)))


def _body_field(message: ArchivedMessage, name: str) -> str:
    """Return a field of the message's body, "" where the message is malformed."""
    body: Any = message.message
    text = body.get(name) if isinstance(body, dict) else None
    return str(text)[:40] if isinstance(text, str | int) else ""


class CreatedWithin(ChoiceFilter):
    """Limits the list to recent syncs, unless an id is searched for: after some years there are millions."""

    title, parameter_name = "within", "within"
    filter_choices = (("86400", "a day"), ("2592000", "30 days"))
    all_option = ("", "a week")
    default = 604_800

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if request.GET.get("q"):
            return queryset  # the id's own index serves
        choice = self.value()
        seconds = int(choice) if choice in dict(self.filter_choices) else self.default
        return queryset.filter(created_at__gte=Now() - timedelta(seconds=seconds))


@admin.register(ConnectedSource)
class ConnectedSourceAdmin(ReadOnlyAdmin):
    """Shows no token, no vault id, and no account name: it may be a person's."""

    list_display = ("provider", "user_id", "status", "status_message", "transport", "last_synced_at")
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
        """Return the tool or argument that the MCP server lacked at the last call."""
        return str(source.capabilities.get("missing", ""))


@admin.register(IngestionJob)
class IngestionJobAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "user_id", "kind", "status", "error_message", "counts", "page", "of_source")
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
    of_source = column("source", lambda job: id_cell(job.source_id))

    def get_queryset(self, request: HttpRequest) -> QuerySet[IngestionJob]:
        return IngestionJob.objects.defer("cursor")

    @admin.display(description="records")
    def counts(self, job: IngestionJob) -> str:
        counts = ((name, getattr(job, f"items_{name}")) for name in COUNTS)
        return ", ".join(f"{count} {name}" for name, count in counts if count)

    @admin.display(description="records that failed")
    def failures(self, job: IngestionJob) -> str:
        rows = ((each.get("external_id", ""), each.get("code", "")) for each in job.error_details)
        return format_html_join("", "<div>{}: {}</div>", rows)


@admin.register(ArchivedMessage)
class ArchivedMessageAdmin(ReadOnlyAdmin):
    list_display = (
        "msg_id", "archived_at", "provider", "kind", "code", "stream", "page", "read_ct", "job", "of_source", "user_id",
    )  # fmt: skip
    list_filter = (datetime_range_filter("archived_at", "archived"),)
    list_disable_select_all = True
    id_fields = ("msg_id",)
    ordering = ("-archived_at", "msg_id")
    # Not the message itself: its ``page_token`` is the provider's own text.
    fields = (
        ("msg_id", "read_ct"), ("enqueued_at", "archived_at"), ("provider", "kind", "code"), ("stream", "page"), "job",
        "of_source",
    )  # fmt: skip
    readonly_fields = ("provider", "kind", "code", "stream", "page", "job", "of_source")
    actions = ("replay",)
    kind, stream, page = body_column("sync", "kind"), body_column("stream", "stream"), body_column("page", "page")
    of_source = body_column("source", "source_id")

    @admin.display(description="tenant")
    def user_id(self, message: ArchivedMessage) -> str:
        """Return the tenant that the message's body names."""
        tenant_id = row_id(message, "user_id")
        return named_cell("tenant", tenant_id, row_names(message)) if tenant_id else _body_field(message, "user_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ArchivedMessage]:
        job_uuid = Case(When(message__job_id__regex=IS_UUID, then=Cast(KT("message__job_id"), UUIDField())))
        jobs = IngestionJob.objects.filter(pk=OuterRef("job_uuid"))
        return ArchivedMessage.objects.annotate(job_uuid=job_uuid, user_id=KT("message__user_id")).annotate(
            sync=Subquery(jobs.values("pk")),
            sync_code=Subquery(jobs.values("error_message")),
            sync_provider=Subquery(jobs.values("source__provider")),
        )

    def response_action(self, request: HttpRequest, queryset: QuerySet[ArchivedMessage]) -> HttpResponse | None:
        if not all(IS_ID.fullmatch(chosen) for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            messages.error(request, "The selection contains no message; select again.")
            return HttpResponseRedirect(request.get_full_path())
        return cast("HttpResponse | None", super().response_action(request, queryset))

    @admin.display(description="provider")
    def provider(self, message: ArchivedMessage) -> str:
        return getattr(message, "sync_provider", None) or ""

    @admin.display(description="sync's code")
    def code(self, message: ArchivedMessage) -> str:
        return getattr(message, "sync_code", None) or ""

    @admin.display(description="job")
    def job(self, message: ArchivedMessage) -> str:
        sync = getattr(message, "sync", None)
        if sync is None:
            return nowrap(_body_field(message, "job_id"))
        page = reverse("admin:integrations_ingestionjob_change", args=[sync])
        return format_html('<a class="whitespace-nowrap underline" href="{}">{}</a>', page, sync)

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("integrations.replay_archivedmessage")

    @admin.action(description="Put back into the queue", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: QuerySet[ArchivedMessage]) -> HttpResponse | None:
        msg_ids = [int(each) for each in request.POST.getlist(ACTION_CHECKBOX_NAME)[:MOST]]
        form = admin_base.ReasonForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            hidden: list[tuple[str, object]] = [(ACTION_CHECKBOX_NAME, msg_id) for msg_id in msg_ids]
            hidden += [("action", "replay"), ("index", "0"), ("confirmed", "yes")]
            line = f"{len(msg_ids)} chosen. Each sync continues from its archived page, if no other has begun since."
            return admin_base.reason_page(
                request, self.admin_site, form, title="Put back into the queue", button="Put back", lines=(line,),
                back=request.get_full_path(), hidden=hidden,
            )  # fmt: skip
        outcomes = replay_messages(msg_ids, by=cast(User, request.user), reason=form.cleaned_data["reason"])
        errors = Counter(outcome.code for outcome in outcomes.values() if isinstance(outcome, ApiError))
        if count := len(outcomes) - errors.total():
            messages.success(request, f"{count} put back.")
        for code, count in sorted(errors.items()):
            messages.warning(request, f"{count} not put back: {code}.")
        return HttpResponseRedirect(request.get_full_path())
