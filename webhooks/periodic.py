"""What the keeper does for callbacks from time to time."""

from __future__ import annotations

from django.db.models.functions import Now

from webhooks.models import Delivery


def delete_expired_deliveries() -> None:
    """Drop what no replay can match any more: a signature is good for minutes, its delivery is known for a day."""
    Delivery.objects.filter(expires_at__lt=Now()).delete()
