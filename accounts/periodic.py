"""What the keeper does for who is signed in from time to time."""

from __future__ import annotations

from django.contrib.sessions.models import Session
from django.db.models.functions import Now

BATCH = 1_000


def delete_expired_sessions() -> None:
    """Drop sessions that have ended, some at a time along the index on their end: a flood of them delays nobody."""
    ended = Session.objects.filter(expire_date__lt=Now()).order_by("expire_date")
    Session.objects.filter(pk__in=list(ended.values_list("pk", flat=True)[:BATCH])).delete()
