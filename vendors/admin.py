"""Admin of purchases, budgets, breakers and rate limits: read-only. `manage.py budget` sets budgets."""

from django.contrib import admin

from accounts.admin_base import ReadOnlyAdmin, choice_filter, column, datetime_range_filter, exact_filter
from vendors.models import Breaker, Budget, Purchase, RateLimit


@admin.register(Purchase)
class PurchaseAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "user_id", "document_id", "bought_from", "amount", "cents", "state")
    list_filter = (
        choice_filter("state", "state", Purchase.State.choices),
        exact_filter("user_id", "tenant's id (not campaigns)", campaign_id__isnull=True),
        exact_filter("document_id", "document's id"), exact_filter("campaign_id", "campaign's id"),
        datetime_range_filter("created_at", "bought"),
    )  # fmt: skip
    id_fields = ("purchase_id", "document_id")
    ordering = ("-created_at", "purchase_id")
    fields = (
        ("purchase_id", "user_id"), ("document_id", "job_id", "campaign_id"), ("stage", "vendor", "model"),
        ("quantity", "unit", "cents"), ("state", "created_at", "settled_at"),
    )  # fmt: skip

    bought_from = column("vendor", lambda row: f"{row.vendor}, {row.model}")
    amount = column("amount", lambda row: f"{row.quantity:,} {row.unit}")


@admin.register(Budget)
class BudgetAdmin(ReadOnlyAdmin):
    list_display = ("user_id", "cents_per_day")
    id_fields = ("user_id",)
    ordering = ("user_id",)


@admin.register(Breaker)
class BreakerAdmin(ReadOnlyAdmin):
    list_display = ("key", "state", "faults", "opened_at", "probe_until")
    id_fields = ("key",)
    ordering = ("key",)


@admin.register(RateLimit)
class RateLimitAdmin(ReadOnlyAdmin):
    list_display = ("key", "theoretical_arrival", "paused_until", "pause_reason")
    id_fields = ("key",)
    ordering = ("key",)
