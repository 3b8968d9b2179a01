"""Admin of received callbacks: read-only."""

from django.contrib import admin

from accounts.admin_base import ReadOnlyAdmin, choice_filter, datetime_range_filter
from webhooks.models import Delivery

CODES = ("JOB_WOKEN", "PARSE_STORED", "ALREADY_PARSED", "ALREADY_ENDED", "EVENT_IGNORED")


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = ("key", "code", "received_at", "expires_at")
    # The filter by code has no index: the table holds one day's callbacks.
    list_filter = (
        choice_filter("code", "what it did", [(code, code) for code in CODES]),
        datetime_range_filter("received_at", "received"),
    )
    id_fields = ("key",)
    ordering = ("-received_at", "key")
    fields = ("key", "body_sha256", "code", ("received_at", "expires_at"))
