"""The cast and its empty store, for every app's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from testing.people import Person


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let the test database be dropped: the heartbeat's thread may have a connection of its own to it, for good."""
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = current_user"
        )


@pytest.fixture
def store(settings: Any) -> None:
    """Nothing is stored yet."""
    shutil.rmtree(settings.STORAGE_ROOT, ignore_errors=True)


@pytest.fixture
def ana(db: None, store: None) -> Person:
    return Person("ana")


@pytest.fixture
def ben(db: None, store: None) -> Person:
    return Person("ben")


@pytest.fixture
def sam(db: None, store: None) -> Person:
    return Person("sam", staff=True)


@pytest.fixture
def platform(db: None, store: None) -> Person:
    return Person("platform", scope="service")
