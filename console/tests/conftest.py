"""Fixtures: staff with permissions, and dead letters."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import User
from jobs.models import UploadJob
from testing.factories import JobFactory

Staff = Callable[..., Client]


@pytest.fixture(autouse=True)
def _plans(settings: Any) -> None:
    settings.JOBS_PIPELINES = "testing.stub_pipelines.PIPELINES"


@pytest.fixture
def staff(db: None) -> Staff:
    """Sign in somebody of the staff who may do what is named: ``staff("view_uploadjob", name="tom")``."""

    def sign_in(*codenames: str, name: str = "sue", strict: bool = False) -> Client:
        user = User.objects.create_user(name, f"{name}@example.org", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client(enforce_csrf_checks=strict)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def sue(staff: Staff) -> Client:
    return staff("view_uploadjob", "retry_uploadjob", "cancel_uploadjob", "discard_uploadjob", "read_text")


@pytest.fixture
def dead() -> Callable[..., UploadJob]:
    """Make a dead letter of a stage and a code."""

    def make(code: str = "ALWAYS_FAILS", stage: str = "embedding", **columns: Any) -> UploadJob:
        error = {"code": code, "detail": f"What {code} says.", "stage": stage, "attempt": 4}
        fields = {"state": "deadletter", "pipeline": "stages", "attempts": 4, "last_error": error} | columns
        job: UploadJob = JobFactory.create(stage=stage, **fields)
        return job

    return make
