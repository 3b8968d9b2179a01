"""Metric tables: rollups of counters and gauges, measurement runs, daily spend and storage by tenant."""

from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class Resolution(models.TextChoices):
    MINUTES = "5m"
    HOUR = "1h"
    DAY = "1d"
    EVER = "ever"  # Prometheus' counters, which never fall


class MetricRollup(models.Model):
    """One metric over one interval. Labels name stages, codes, vendors: nothing of any tenant.

    Of a counter, ``count`` is the number of events and ``total`` the sum of their seconds, pages or cents. Of a gauge
    (jobs by status), ``count`` is the number of samples, so ``total / count`` is the mean.
    """

    pk = models.CompositePrimaryKey("metric", "resolution", "starts_at", "labels")
    metric = models.TextField()
    resolution = models.TextField(choices=Resolution.choices)
    starts_at = models.DateTimeField()
    labels = ArrayField(models.TextField(), default=list)
    count = models.BigIntegerField()
    total = models.FloatField()
    peak = models.FloatField()
    histogram = ArrayField(models.BigIntegerField(), default=list)  # by distributions.BOUNDS; empty: nothing was timed

    class Meta:
        db_table = "metric_rollups"
        default_permissions = ("view",)
        # Read by the task that deletes expired rollups.
        indexes = [models.Index("resolution", "starts_at", name="ix_rollups_age")]
        constraints = [
            models.CheckConstraint(
                condition=Q(resolution__in=["5m", "1h", "1d", "ever"]), name="rollup_resolution_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.metric} {self.resolution} {self.starts_at}"


class MeasurementRun(models.Model):
    class Name(models.TextChoices):
        MOVES = "moves"  # job events, syncs and vendor calls, counted
        STANDING = "standing"  # gauges
        SPENDING = "spending"
        STORAGE = "storage"

    name = models.TextField(primary_key=True)
    counted_until = models.DateTimeField(null=True)  # of moves
    measured_at = models.DateTimeField()
    seconds = models.FloatField()
    snapshot = models.JSONField(default=dict)

    class Meta:
        db_table = "measurement_runs"
        default_permissions = ()

    def __str__(self) -> str:
        return self.name

    def age(self, now: datetime) -> float:
        """Return its age in seconds; that of moves is the age of the last event that was counted."""
        return (now - (self.counted_until or self.measured_at)).total_seconds()


class DailySpend(models.Model):
    """A tenant's purchases of one UTC day, by vendor and unit. ``retry_cents``: of them, in retries of a stage."""

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
