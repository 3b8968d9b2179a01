"""Vendor state shared by all processes: rate limits, circuit breakers, purchases, budgets and calls not yet counted."""

import uuid

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

_NEWEST = F("created_at").desc()
_TENANTS, _OF_CAMPAIGNS = Q(campaign_id__isnull=True), Q(campaign_id__isnull=False)


class RateLimit(models.Model):
    """The rate limit of one vendor key, in requests or in tokens."""

    key = models.TextField(primary_key=True)
    # GCRA's: when all that was spent is paid off at the rate of the limit.
    theoretical_arrival = models.DateTimeField(null=True)
    # By the vendor's own words: Retry-After, a used-up quota, a refused key.
    paused_until = models.DateTimeField(null=True)
    pause_reason = models.TextField(null=True)
    throttles = models.IntegerField(db_default=0)  # pauses in a row because of a 429

    class Meta:
        db_table = "vendor_rate_limits"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.key


class Breaker(models.Model):
    key = models.TextField(primary_key=True)
    state = models.TextField(db_default="closed")
    faults = models.IntegerField(db_default=0)
    opened_at = models.DateTimeField(null=True)
    # One call at a time probes whether the vendor is back.
    probe_until = models.DateTimeField(null=True)

    class Meta:
        db_table = "vendor_breakers"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(condition=Q(state__in=["closed", "open", "half-open"]), name="breaker_state_known")
        ]

    def __str__(self) -> str:
        return self.key


class Purchase(models.Model):
    """One paid call, inserted before it is made.

    One that is never settled may have been charged and counts for ever: only the vendor's invoice knows better. It
    outlives its document.
    """

    class State(models.TextChoices):
        RESERVED = "reserved"
        SETTLED = "settled"

    purchase_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    document_id = models.UUIDField(null=True)
    job_id = models.UUIDField(null=True)
    # The campaign whose budget pays, if not the tenant's own: only staff see such a purchase.
    campaign_id = models.UUIDField(null=True)
    stage = models.TextField()
    vendor = models.TextField()
    model = models.TextField()
    unit = models.TextField()  # "pages" or "tokens"
    quantity = models.BigIntegerField()
    cents = models.DecimalField(max_digits=16, decimal_places=6)
    state = models.TextField(choices=State.choices, db_default=State.RESERVED)
    created_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "purchases"
        default_permissions = ("view",)
        indexes = [
            # Staff's list, the newest first; and the purchases of a day, of all tenants.
            models.Index(_NEWEST, "purchase_id", name="ix_purchases_newest"),
            models.Index(_NEWEST, "purchase_id", name="ix_purchases_reserved", condition=Q(state="reserved")),
            # Read before every purchase: the tenant's spending of today.
            models.Index("user_id", "created_at", include=["cents"], name="ix_purchases_user_day", condition=_TENANTS),
            models.Index("campaign_id", include=["cents"], name="ix_purchases_campaign", condition=_OF_CAMPAIGNS),
            models.Index("document_id", "created_at", name="ix_purchases_document"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(unit__in=["pages", "tokens"]), name="purchase_unit_known"),
            models.CheckConstraint(condition=Q(state__in=["reserved", "settled"]), name="purchase_state_known"),
            models.CheckConstraint(condition=Q(cents__gte=0, quantity__gte=0), name="purchase_not_negative"),
        ]

    def __str__(self) -> str:
        return str(self.purchase_id)


class Budget(models.Model):
    """A tenant's own daily budget, in the place of TENANT_DAILY_CENTS; 0 is no limit."""

    user_id = models.UUIDField(primary_key=True)
    cents_per_day = models.DecimalField(max_digits=16, decimal_places=6)

    class Meta:
        db_table = "tenant_budgets"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.user_id)


class VendorCall(models.Model):
    """One vendor call, until it is counted (``metrics``). Inserted only: no caller waits for another's row."""

    vendor = models.TextField()
    operation = models.TextField()
    outcome = models.TextField()  # "ok", an HTTP status, or the code of the failure
    seconds = models.FloatField()

    class Meta:
        db_table = "vendor_calls"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.vendor} {self.operation} {self.outcome}"
