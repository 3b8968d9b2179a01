"""Periodic tasks of accounts."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from accounts import periodic
from accounts.models import UserSession
from accounts.sessions import session_id

pytestmark = pytest.mark.django_db


def create_session(key: str, hours: float) -> None:
    now = timezone.now()
    UserSession.objects.create(
        session_key=key, session_id=session_id(key), session_data="", last_used_at=now,
        expire_date=now + timedelta(hours=hours),
    )  # fmt: skip


def test_expired_sessions_are_deleted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "BATCH", 2)
    for key, hours in (("older", -2.0), ("oldest", -3.0), ("old", -0.01), ("lasts", 0.01)):
        create_session(key, hours)

    periodic.delete_expired_sessions()
    left = set(UserSession.objects.values_list("pk", flat=True))
    periodic.delete_expired_sessions()

    assert left == {"old", "lasts"}
    assert [session.pk for session in UserSession.objects.all()] == ["lasts"]


def test_the_tasks_are_configured() -> None:
    assert "accounts.periodic.delete_expired_sessions" in settings.JOBS_PERIODIC_TASKS
    assert "accounts.periodic.delete_expired_idempotency_keys" in settings.JOBS_PERIODIC_TASKS
