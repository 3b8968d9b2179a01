"""Which consumers are alive: those that have said so lately, and have not stopped since."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from statutes.models import Consumer

SILENT = timedelta(seconds=60)  # three long polls, during which a consumer says nothing
ALIVE = Q(seen_at__gt=Now() - SILENT) & ~Q(state=Consumer.State.SHUTDOWN)


def alive() -> QuerySet[Consumer]:
    return Consumer.objects.filter(ALIVE)
