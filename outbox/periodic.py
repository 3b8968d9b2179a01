"""Periodic task of the outbox: delete messages that were delivered, or failed for good, some time ago."""

from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now

from outbox.models import Message

BATCH = 1_000


def delete_finished_messages() -> None:
    """Delete some messages along the index on their end: a flood of them delays no other task."""
    finished = Message.objects.exclude(state=Message.State.QUEUED).order_by("finished_at")
    expired = finished.filter(finished_at__lt=Now() - timedelta(days=settings.OUTBOX_KEEP_DAYS))
    Message.objects.filter(pk__in=list(expired.values_list("pk", flat=True)[:BATCH])).delete()
