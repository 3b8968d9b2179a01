"""Helpers: signed-in clients."""

from typing import Any

import pytest
from django.test import Client

from testing.browser import browser, visit  # noqa: F401 - fixtures
from testing.personas import Person

PASSWORD = "a long enough password"


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def signed_in(person: Person) -> Client:
    """Return a client that sends a browser's headers."""
    client = Client(headers={"accept": "text/html,*/*"}, raise_request_exception=False)
    client.force_login(person.user)
    return client


def with_password(person: Person) -> Person:
    person.user.set_password(PASSWORD)
    person.user.save()
    return person
