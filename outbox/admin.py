"""Admin of the outbox: messages, with a resend of those that failed, and webhook endpoints, read-only."""

from collections import Counter
from typing import cast
from urllib.parse import urlsplit

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html_join

from accounts import admin_base
from accounts.admin_base import ReadOnlyAdmin, choice_filter, column, datetime_range_filter
from accounts.admin_cells import id_cell
from accounts.audit.log import record_action
from accounts.errors import ApiError
from accounts.models import User
from outbox.models import Message, WebhookEndpoint
from outbox.webhooks import endpoints

MOST = 200  # messages resent at once


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "user_id", "kind", "event", "state", "last_error", "attempts", "target")
    list_filter = (
        choice_filter("state", "state", Message.State.choices),
        datetime_range_filter("created_at", "created"),
    )
    list_disable_select_all = True
    id_fields = ("id", "target_id")
    ordering = ("-created_at", "id")
    fields = (
        ("id", "kind", "event"), ("user_id", "target_id"), ("state", "last_error", "attempts"),
        ("created_at", "due_at", "finished_at"), "tries",
    )  # fmt: skip
    readonly_fields = ("event", "tries")
    actions = ("resend",)
    target = column("endpoint", lambda row: id_cell(row.target_id))
    event = column("event", lambda row: row.payload.get("type", ""))

    @admin.display(description="attempts")
    def tries(self, message: Message) -> str:
        rows = ((try_["at"], try_["status"] or "", try_["code"] or "received", try_["ms"]) for try_ in message.log)
        return format_html_join("", "<div>{} {} {} {} ms</div>", rows)

    def has_resend_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("outbox.resend_message")

    @admin.action(description="Send again", permissions=["resend"])
    def resend(self, request: HttpRequest, queryset: QuerySet[Message]) -> HttpResponse | None:
        chosen = list(queryset[:MOST])
        form = admin_base.ReasonForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            hidden: list[tuple[str, object]] = [(ACTION_CHECKBOX_NAME, message.pk) for message in chosen]
            hidden += [("action", "resend"), ("index", "0"), ("confirmed", "yes")]
            line = f"{len(chosen)} chosen. Each is sent at once, and again for three days if that fails."
            return admin_base.reason_page(
                request, self.admin_site, form, title="Send again", button="Send", lines=(line,),
                back=request.get_full_path(), hidden=hidden,
            )  # fmt: skip
        errors: Counter[str] = Counter()
        for message in chosen:
            try:
                resend_as_staff(message, by=cast(User, request.user), reason=form.cleaned_data["reason"])
            except ApiError as error:
                errors[error.code] += 1
        if count := len(chosen) - errors.total():
            messages.success(request, f"{count} to be sent again.")
        for code, count in sorted(errors.items()):
            messages.warning(request, f"{count} not sent: {code}.")
        return HttpResponseRedirect(request.get_full_path())


def resend_as_staff(message: Message, *, by: User, reason: str) -> None:
    """Resend a message with its audit entry. Raises as ``endpoints.resend``, and ``ApiError("REASON_REQUIRED")``."""
    with transaction.atomic():
        endpoints.resend(message)
        record_action(
            by=by, action="outbox.resend", reason=reason, object_type="outbox_message", object_id=message.pk,
            tenant_id=message.user_id,
        )  # fmt: skip


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnlyAdmin):
    """Shows no secret, and of the URL the host only: the rest may be a key."""

    list_display = ("host", "user_id", "events", "enabled", "disabled_code", "failing_since", "created_at")
    list_filter = (datetime_range_filter("created_at", "created"),)
    id_fields = ("id", "user_id")
    ordering = ("-created_at", "id")
    fields = (
        ("id", "user_id"), "host", "events", ("enabled", "disabled_code"),
        ("failures", "failing_since", "paused_until"), ("previous_secret_until", "created_at", "updated_at"),
    )  # fmt: skip
    readonly_fields = ("host",)
    host = column("host", lambda row: urlsplit(row.url).hostname)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEndpoint]:
        return WebhookEndpoint.objects.defer(*endpoints.SECRETS)
