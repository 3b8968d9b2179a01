"""Periodic tasks of accounts: delete expired sessions, rate windows and idempotency keys, invitations."""

from django.db.models.functions import Now

from accounts import rate_limit
from accounts.models import IdempotencyKey, Invitation, UserSession

BATCH = 1_000


def delete_expired_sessions() -> None:
    """Delete some sessions along the index on their end: a flood of them delays no other task."""
    expired = UserSession.objects.filter(expire_date__lt=Now()).order_by("expire_date")
    UserSession.objects.filter(pk__in=list(expired.values_list("pk", flat=True)[:BATCH])).delete()


def delete_expired_rate_windows() -> None:
    rate_limit.delete_expired()


def delete_expired_idempotency_keys() -> None:
    IdempotencyKey.objects.filter(expires_at__lt=Now()).delete()


def delete_expired_invitations() -> None:
    Invitation.objects.filter(expires_at__lt=Now()).delete()
