"""Database backend: a kept connection that the server has ended is replaced, without a statement to find out."""

from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.utils import DataError

from accessa.env import Env
from testing.cluster import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@pytest.fixture
def terminate() -> Any:
    other = connections.create_connection("default")

    def terminate(pid: int) -> None:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
            wait_until(lambda: cursor.execute(sql, [pid]) or cursor.fetchone()[0] == 0, seconds=10)

    yield terminate
    other.close()


def start_request() -> None:
    """Do what Django does with a kept connection before its first use in a request."""
    kept: Any = connection
    kept.close_if_unusable_or_obsolete()
    kept.health_check_enabled, kept.health_check_done = True, False


@pytest.mark.parametrize("url", ["postgres://user:secret@host:5432/name", "postgresql://user@/name"])
def test_a_database_url_selects_the_backend(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_DATABASE_URL", url)

    assert Env().postgres("SOME_DATABASE_URL")["ENGINE"] == "accessa.postgres_backend"


def test_a_connection_that_the_server_ended_is_replaced(terminate: Any) -> None:
    pid = backend_pid()
    terminate(pid)
    assert not connection.is_usable()

    start_request()

    assert backend_pid() != pid


def test_a_usable_connection_is_kept_without_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = backend_pid()

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("no statement is needed")

    with monkeypatch.context() as patched:
        patched.setattr(connection.connection, "cursor", forbidden, raising=False)
        assert connection.is_usable()
    assert backend_pid() == pid


def test_a_notification_that_waits_to_be_read_is_no_end() -> None:
    other = connections.create_connection("default")
    try:
        with connection.cursor() as cursor, other.cursor() as sender:
            cursor.execute("LISTEN something")
            sender.execute("NOTIFY something")
            assert connection.is_usable()
            cursor.execute("UNLISTEN something")
    finally:
        other.close()


def test_a_connection_whose_transaction_has_failed_is_not_usable() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        with pytest.raises(DataError):
            cursor.execute("SELECT 1 / 0")
        assert not connection.is_usable()
        transaction.set_rollback(True)
    assert connection.is_usable()


def test_a_connection_that_was_closed_is_not_usable() -> None:
    backend_pid()
    raw = connection.connection
    raw.close()
    assert not connection.is_usable()
    connection.close()
    assert not connection.is_usable()


def test_a_url_with_two_servers_lets_libpq_choose_the_one_that_takes_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "SOME_DATABASE_URL", "postgres://me:pw@db1:5432,db2:5433/accessa?target_session_attrs=read-write"
    )

    config = Env().postgres("SOME_DATABASE_URL")

    assert (config["HOST"], config["PORT"]) == ("db1,db2", "5432,5433")
    assert config["OPTIONS"] == {"target_session_attrs": "read-write"}
