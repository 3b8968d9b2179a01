"""Periodic tasks of accounts."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from accounts import periodic

pytestmark = pytest.mark.django_db


def create_session(key: str, hours: float) -> None:
    Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + timedelta(hours=hours))


def test_expired_sessions_are_deleted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "BATCH", 2)
    for key, hours in (("older", -2.0), ("oldest", -3.0), ("old", -0.01), ("lasts", 0.01)):
        create_session(key, hours)

    periodic.delete_expired_sessions()
    left = set(Session.objects.values_list("pk", flat=True))
    periodic.delete_expired_sessions()

    assert left == {"old", "lasts"}
    assert [session.pk for session in Session.objects.all()] == ["lasts"]


def test_the_tasks_are_configured() -> None:
    assert "accounts.periodic.delete_expired_sessions" in settings.JOBS_PERIODIC_TASKS
    assert "accounts.periodic.delete_expired_idempotency_keys" in settings.JOBS_PERIODIC_TASKS
