"""Periodic tasks of accounts: delete expired sessions, rate windows and idempotency keys."""

from django.contrib.sessions.models import Session
from django.db.models.functions import Now

from accounts.models import IdempotencyKey, RateWindow

BATCH = 1_000


def delete_expired_sessions() -> None:
    """Delete some sessions along the index on their end: a flood of them delays no other task."""
    expired = Session.objects.filter(expire_date__lt=Now()).order_by("expire_date")
    Session.objects.filter(pk__in=list(expired.values_list("pk", flat=True)[:BATCH])).delete()


def delete_expired_rate_windows() -> None:
    RateWindow.objects.filter(expires_at__lt=Now()).delete()


def delete_expired_idempotency_keys() -> None:
    IdempotencyKey.objects.filter(expires_at__lt=Now()).delete()
