"""Heartbeat: closes the connections of an idle worker, never during a drain; watches nothing in a transaction."""

from contextlib import AbstractContextManager, nullcontext

import pytest
from django.db import connection, transaction

from jobs.cluster.heartbeat import Heartbeat
from testing.concurrency import run_concurrently

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heartbeat(monkeypatch: pytest.MonkeyPatch) -> Heartbeat:
    monkeypatch.setattr("jobs.cluster.heartbeat.IDLE_SECONDS", 0.0)
    instance = Heartbeat()
    instance.may_kill_process = True  # as in a worker process
    monkeypatch.setattr(instance, "_start", lambda: None)
    return instance


def close_from_its_thread(heartbeat: Heartbeat) -> None:
    run_concurrently(heartbeat.close_idle_connections)


def test_the_connection_of_an_idle_worker_is_closed_and_opened_again(heartbeat: Heartbeat) -> None:
    with heartbeat.draining():
        connection.ensure_connection()
    close_from_its_thread(heartbeat)

    assert connection.connection is None
    with heartbeat.draining(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_no_connection_is_closed_during_a_drain(heartbeat: Heartbeat) -> None:
    with heartbeat.draining():
        connection.ensure_connection()
    with heartbeat.draining():
        close_from_its_thread(heartbeat)
        assert connection.connection is not None


def test_no_connection_is_closed_soon_after_a_drain(heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.cluster.heartbeat.IDLE_SECONDS", 60.0)
    with heartbeat.draining():
        connection.ensure_connection()
    close_from_its_thread(heartbeat)

    assert connection.connection is not None


def test_only_worker_processes_close_theirs(heartbeat: Heartbeat) -> None:
    heartbeat.may_kill_process = False
    with heartbeat.draining():
        connection.ensure_connection()
    close_from_its_thread(heartbeat)

    assert connection.connection is not None


class Work:
    time_limit, renew_seconds = 60.0, 1.0

    def renew(self) -> None: ...

    def release(self, *, timed_out: bool) -> None: ...

    def log_context(self) -> AbstractContextManager[object]:
        return nullcontext()


def test_nothing_is_watched_in_an_open_transaction(heartbeat: Heartbeat) -> None:
    heartbeat.may_kill_process = False
    with transaction.atomic():
        heartbeat.watch(Work())
        unwatched = heartbeat._watched
    heartbeat.watch(Work())

    assert unwatched is None
    assert heartbeat._watched is not None
