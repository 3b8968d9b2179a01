"""Deliveries: callbacks that were applied."""

from django.db import models
from django.db.models import F
from django.db.models.functions import Now


class Delivery(models.Model):
    """A callback that was answered with 200, inserted in the transaction of its effect."""

    key = models.TextField(primary_key=True)
    body_sha256 = models.TextField()
    code = models.TextField(db_default="")
    received_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "webhook_deliveries"
        verbose_name = "received webhook"
        default_permissions = ("view",)
        verbose_name_plural = "received webhooks"
        # Staff's list, the newest first.
        indexes = [models.Index(F("received_at").desc(), "key", name="ix_deliveries_received")]

    def __str__(self) -> str:
        return self.key
