"""Unfit databases and laptop's defaults are named before they hurt."""

from typing import Any

import pytest
from django.core.checks import CheckMessage

from accessa import checks


def ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


@pytest.mark.django_db
def test_the_embedded_database_is_prepared() -> None:
    assert checks.database_is_prepared(app_configs=None, databases=["default"]) == []


def test_no_database_is_asked_unless_one_is_named() -> None:
    assert checks.database_is_prepared(app_configs=None) == []


@pytest.mark.parametrize(
    ("installed", "available", "expected", "advice"),
    [
        (None, None, "accessa.E001", "install pgvector"),
        (None, "0.8.6", "accessa.E001", "As a superuser run in that database: CREATE EXTENSION vector;"),
        ("0.8.3", "0.8.6", "accessa.W001", "ALTER EXTENSION vector UPDATE;"),
        ("0.5.1", "0.5.1", "accessa.W001", "Update the server's pgvector"),
    ],
)
def test_a_missing_or_old_vector_extension_is_explained(
    installed: str | None, available: str | None, expected: str, advice: str
) -> None:
    (message,) = checks._vector(installed, available)

    assert message.id == expected
    assert advice in str(message.hint)


@pytest.mark.parametrize("installed", ["0.8.4", "0.8.6", "0.10.0", "1.0.0"])
def test_a_sound_vector_extension_passes(installed: str) -> None:
    assert ids(checks._vector(installed, installed)) == []


@pytest.mark.parametrize(
    ("state", "sql"),
    [
        ((False, None, True, False, "me"), "CREATE ROLE accessa_client NOLOGIN; GRANT accessa_client TO me"),
        ((True, False, True, False, "me"), "superuser: GRANT accessa_client TO me WITH INHERIT FALSE, SET TRUE;"),
        ((True, True, False, False, '"My App"'), 'superuser: ALTER ROLE "My App" BYPASSRLS;'),
    ],
)
def test_missing_roles_are_explained_with_their_sql(state: tuple[Any, ...], sql: str) -> None:
    (message,) = checks._roles(*state)

    assert message.id == "accessa.E002"
    assert sql in str(message.hint)


def test_a_superuser_is_warned_about() -> None:
    assert ids(checks._roles(True, True, True, True, "postgres")) == ["accessa.W002"]


def test_deployment_refuses_every_default_of_a_laptop(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "accessa.embedded.backend")
    monkeypatch.setitem(settings.STORAGES["raw"], "BACKEND", "documents.storage.LocalSignedStorage")
    settings.SECRET_KEY_IS_LOCAL = True
    settings.DEBUG = True

    assert ids(_unfit()) == ["accessa.E101", "accessa.E102", "accessa.E103", "accessa.E104"]


def test_deployment_accepts_what_was_chosen(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    monkeypatch.setitem(settings.STORAGES["raw"], "BACKEND", "storages.backends.s3.S3Storage")
    settings.SECRET_KEY_IS_LOCAL = False

    assert ids(_unfit()) == []


def _unfit() -> list[CheckMessage]:
    return checks.fit_for_production(app_configs=None)
