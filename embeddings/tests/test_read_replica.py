"""Searches that read a replica: a real standby, which streams from the tests' server."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections
from django.db.backends.base.base import NO_DB_ALIAS

from accessa.doctor.replica import check_replica
from accessa.embedded_postgres.server import EmbeddedServer
from accounts import read_replica
from embeddings.search import hybrid_search, postings
from metrics import prometheus_collector
from testing.personas import Person, plan_pdf
from testing.standby import administer, start_standby

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
MARGIN_SECONDS = 30.0


@pytest.fixture(scope="module")
def standby(django_db_setup: None) -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="accessa-standby-", dir="/tmp") as folder:  # a socket's path is short
        Path(folder).chmod(0o755)
        server = EmbeddedServer(Path(folder) / "two" / "postgres")
        server.data.parent.mkdir()
        start_standby(server, primary=EmbeddedServer())
        yield server
        server.stop("immediate")


@pytest.fixture
def replica(standby: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedServer]:
    """Configure the standby as DATABASE_REPLICA_URL does."""
    standby.ensure_running()
    config = {**connection.settings_dict, "HOST": str(standby.socket_folder), "PORT": "5432"}
    config["ENGINE"] = "accessa.postgres_backend"
    monkeypatch.setitem(connections.settings, read_replica.REPLICA, config)
    monkeypatch.setattr(read_replica, "_paused_until", 0.0)
    monkeypatch.setattr(read_replica, "WAIT_SECONDS", MARGIN_SECONDS)
    connections[read_replica.REPLICA].alias = NO_DB_ALIAS  # Django's tests refuse a database that is not theirs
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")  # the tests' server has it off
    yield standby
    with connection.cursor() as cursor:
        cursor.execute("RESET synchronous_commit")
    connections[read_replica.REPLICA].close()
    del connections[read_replica.REPLICA]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the server, primary or replica, of each attempt to retrieve passages."""
    seen: list[str] = []
    retrieve = hybrid_search._retrieve

    def note(*args: Any, **kwargs: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_is_in_recovery()")
            seen.append("replica" if cursor.fetchone()[0] else "primary")
        return retrieve(*args, **kwargs)

    monkeypatch.setattr(hybrid_search, "_retrieve", note)
    return seen


def found(person: Person, query: str) -> set[UUID]:
    answer = person.post("/search", {"query": query})
    assert answer.status_code == 200, answer.content
    return {UUID(passage["document_id"]) for passage in answer.json()["passages"]}


def metric(name: str) -> list[float]:
    families = prometheus_collector._storage()
    return [sample.value for family in families for sample in family.samples if sample.name == name]


def test_a_search_of_the_replica_has_what_was_just_committed_of_the_tenant_alone(
    replica: EmbeddedServer, servers: list[str], ana: Person, ben: Person
) -> None:
    of_ben = ben.ingest(plan_pdf("dental care")).document_id

    for _ in range(2):
        of_ana = ana.ingest(plan_pdf("dental care")).document_id
        assert found(ana, "dental care") == {of_ana}
        assert ana.delete(f"/documents/{of_ana}").status_code in (202, 204)
        assert found(ana, "dental care") == set()

    assert found(ben, "dental care") == {of_ben}
    assert set(servers) == {"replica"}
    assert metric("accessa_replica_up") == [1]


def test_row_level_security_hides_other_tenants_rows_on_the_replica(
    replica: EmbeddedServer, ana: Person, ben: Person
) -> None:
    mine, _ = ana.ingest(plan_pdf("dental care")), ben.ingest(plan_pdf("dental care"))

    def read_all() -> list[Any]:
        with hybrid_search.search_snapshot(ana.id), connection.cursor() as cursor:
            cursor.execute("SELECT DISTINCT pg_is_in_recovery(), document_id FROM document_chunks")
            return list(cursor.fetchall())

    assert read_replica.read(read_all) == [(True, mine.document_id)]


def test_a_replica_that_is_late_is_not_read(
    replica: EmbeddedServer, servers: list[str], ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_replica, "WAIT_SECONDS", 0.0)
    administer(replica, "SELECT pg_wal_replay_pause()")
    try:
        uploaded = ana.ingest(plan_pdf("dental care"))
        assert found(ana, "dental care") == {uploaded.document_id}
        assert metric("accessa_replica_lag_bytes")[0] > 0
    finally:
        administer(replica, "SELECT pg_wal_replay_resume()")

    assert servers == ["primary"]


def test_a_replica_that_ends_during_a_search_is_replaced_by_the_primary(
    replica: EmbeddedServer, servers: list[str], ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = ana.ingest(plan_pdf("dental care"))
    send_reads = postings.send_reads

    def stop_first(*args: Any) -> Any:
        replica.stop("immediate")
        return send_reads(*args)

    monkeypatch.setattr(postings, "send_reads", stop_first)

    assert found(ana, "dental care") == {uploaded.document_id}
    assert found(ana, "dental care") == {uploaded.document_id}
    assert servers == ["replica", "primary", "primary"]
    assert metric("accessa_replica_up") == [0]


def test_a_server_that_does_not_follow_this_primary_is_not_read(
    replica: EmbeddedServer, servers: list[str], ana: Person
) -> None:
    connections[read_replica.REPLICA].settings_dict.update(connection.settings_dict)
    uploaded = ana.ingest(plan_pdf("dental care"))

    assert found(ana, "dental care") == {uploaded.document_id}
    assert servers == ["primary"]
    assert metric("accessa_replica_up") == [0]


def test_doctor_reports_a_sound_replica_and_what_makes_searches_read_the_primary(
    replica: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_replica = connections[read_replica.REPLICA]
    sound = dict(of_replica.settings_dict)

    def doctor(**changed: Any) -> str:
        of_replica.settings_dict.update(sound, **changed)
        return " ".join(each.message for each in check_replica())

    assert doctor().endswith("bytes of the log behind.")
    assert "cannot be read: nobody listens there" in doctor(HOST="/tmp", PORT="1")
    assert "cannot be read: the database or the role does not exist" in doctor(USER="nobody")
    assert "another of its databases" in doctor(NAME="postgres")
    assert "a primary of its own" in doctor(**connection.settings_dict)
    administer(replica, "SELECT pg_wal_replay_pause()")
    try:
        monkeypatch.setattr("accessa.doctor.replica.MAX_LAG_BYTES", 0)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '9999_later', now())")
        assert "of the log behind. The replica lacks 1 of the primary's migrations." in doctor()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM django_migrations WHERE name = '9999_later'")
        administer(replica, "SELECT pg_wal_replay_resume()")
