"""Fixtures for every app's tests: the personas, an empty store and a clean database."""

import os
import shutil
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlencode

import hypothesis
import psycopg
import pytest
from django.conf import settings as configured
from django.db import connection, transaction
from django.test import Client, RequestFactory, TransactionTestCase, client
from structlog.contextvars import clear_contextvars

from accessa.embedded_postgres.server import EmbeddedServer
from accounts.api_tokens import ALL_SCOPES
from accounts.audit import roles
from integrations.sync import pgmq
from testing import planner_statistics
from testing.milvus import milvus, milvus_server
from testing.personas import Person
from vendors import calls

__all__ = ["milvus", "milvus_server"]  # fixtures

MIGRATED = {"django_migrations", "django_content_type", "auth_permission"}
FORM = "application/x-www-form-urlencoded"
AUDITED = "audit_entries"  # refuses to be emptied
FORGET = f"""
    DO $$ BEGIN
        IF EXISTS (SELECT FROM {AUDITED}) THEN
            ALTER TABLE {AUDITED} DISABLE TRIGGER USER;
            DELETE FROM {AUDITED};
            ALTER TABLE {AUDITED} ENABLE TRIGGER USER;
        END IF;
    END $$"""
# Django does not know pgmq's tables.
QUEUED = [f"DELETE FROM {table}" for table in (pgmq.TABLE, pgmq.ARCHIVE)]


# A loaded machine fails no test: examples have no time limit, and may be generated slowly.
hypothesis.settings.register_profile("accessa", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("accessa")


def pytest_configure() -> None:
    configured.WHITENOISE_AUTOREFRESH = True  # each client would look at 170 files of the admin's
    TransactionTestCase._fixture_teardown = _empty
    _post_forms_as_browsers_do()


def _post_forms_as_browsers_do() -> None:
    """Let the test client post urlencoded forms, as the pages do: multipart, its default, is refused."""
    for post in (Client.post, RequestFactory.post):
        post.__defaults__ = tuple(FORM if it is client.MULTIPART_CONTENT else it for it in post.__defaults__ or ())
    client.MULTIPART_CONTENT = FORM
    client.encode_multipart = lambda boundary, form: urlencode(form, doseq=True).encode()


def _empty(test: TransactionTestCase) -> None:
    """Take out the rows that a test has committed: Django's TRUNCATE makes new files for every table and index."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_deletions())


@cache
def _deletions() -> str:
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - MIGRATED
    return "; ".join([FORGET, *QUEUED, *(f'DELETE FROM "{table}"' for table in sorted(tables - {AUDITED}))])


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """Let the session's own server not wait for the disk: a process that is killed loses nothing by it."""
    server = EmbeddedServer()
    if os.environ.get("DATABASE_URL"):
        return
    server.ensure_running()
    with psycopg.connect(**server.params("postgres") | {"user": "postgres"}, autocommit=True) as superuser:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            superuser.execute(f"ALTER SYSTEM SET {name} = off")
        superuser.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let the test database be dropped: the heartbeat's thread may have a connection of its own to it, for good."""
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = current_user"
        )


@pytest.fixture(autouse=True)
def reset_log_context() -> None:
    """Each test begins with a log that is about nothing: a service that another called turned to a job.

    And with no call noted: where no gate was asked, nobody has written it down.
    """
    clear_contextvars()
    calls._buffer.clear()


@pytest.fixture
def never_vacuumed(db: None) -> None:
    """For tests of plans: what autovacuum noted of tables that an earlier test had filled and emptied is forgotten."""
    for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
        planner_statistics.set_table_statistics(table)


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
    person = Person("sam", staff=True)
    person.user.groups.add(roles.sync_group("support"))
    return person


@pytest.fixture
def platform(db: None, store: None) -> Person:
    return Person("platform", scopes=ALL_SCOPES)
