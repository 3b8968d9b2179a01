"""The cast and its empty store, for every app's tests."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from testing.people import Person


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
