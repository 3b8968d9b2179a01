"""What the product did, counted: small tables that the dashboard and ``/metrics`` read."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class Resolution(models.TextChoices):
    """How long a time one row of figures is about."""

    MINUTES = "5m"
    HOUR = "1h"
    DAY = "1d"
    EVER = "ever"  # what Prometheus' counters are: they never fall


class MetricRollup(models.Model):
    """What happened in one span of time. Labels name stages, codes, vendors: nothing of any tenant.

    Of something that happens, ``count`` is how often and ``total`` the seconds, pages or cents of all. Of something
    that is looked at (jobs by status), ``count`` is how often it was, so ``total / count`` is the mean.
    """

    pk = models.CompositePrimaryKey("measure", "span", "begin", "labels")
    measure = models.TextField()
    span = models.TextField(choices=Resolution.choices)
    begin = models.DateTimeField()
    labels = ArrayField(models.TextField(), default=list)
    count = models.BigIntegerField()
    total = models.FloatField()
    peak = models.FloatField()
    histogram = ArrayField(models.BigIntegerField(), default=list)  # by histograms.BOUNDS; empty: nothing was timed

    class Meta:
        db_table = "metric_rollups"
        default_permissions = ("view",)
        # Read by the sweep that forgets.
        indexes = [models.Index("span", "begin", name="ix_rollups_age")]
        constraints = [
            models.CheckConstraint(condition=Q(span__in=["5m", "1h", "1d", "ever"]), name="rollup_resolution_known")
        ]

    def __str__(self) -> str:
        return f"{self.measure} {self.span} {self.begin}"


class MeasurementRun(models.Model):
    """One kind of measuring: up to when it has looked, when it last did, and what it then saw."""

    name = models.TextField(primary_key=True)
    upto = models.DateTimeField(null=True)
    measured_at = models.DateTimeField()
    seconds = models.FloatField()
    told = models.JSONField(default=dict)

    class Meta:
        db_table = "measurement_runs"
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class DailySpend(models.Model):
    """What a tenant's work cost on one UTC day, by vendor. ``retry_cents``: of it, in tries after a failed one."""

    pk = models.CompositePrimaryKey("day", "user_id", "vendor", "unit")
    day = models.DateField()
    user_id = models.UUIDField()
    vendor = models.TextField()
    unit = models.TextField()
    calls = models.BigIntegerField()
    quantity = models.BigIntegerField()
    cents = models.DecimalField(max_digits=18, decimal_places=6)
    unsettled_calls = models.BigIntegerField()
    unsettled_cents = models.DecimalField(max_digits=18, decimal_places=6)
    retry_cents = models.DecimalField(max_digits=18, decimal_places=6)

    class Meta:
        db_table = "daily_spends"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.day} {self.vendor}"


class StorageUsage(models.Model):
    """What a tenant keeps here, by type of document."""

    pk = models.CompositePrimaryKey("user_id", "mime")
    user_id = models.UUIDField()
    mime = models.TextField()
    documents = models.BigIntegerField()
    pages = models.BigIntegerField()
    bytes = models.BigIntegerField()

    class Meta:
        db_table = "storage_usage"
        default_permissions = ()

    def __str__(self) -> str:
        return self.mime
