"""Embedded PostgreSQL: concurrent starts, crashes, accounts, socket folders, stop."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest
from django.db import connections
from psycopg.conninfo import make_conninfo

from accessa.doctor.embedded_server import embedded_server_running
from accessa.embedded_postgres import data_directory, os_user, roles_and_extensions
from accessa.embedded_postgres.installation import EmbeddedError
from accessa.embedded_postgres.server import EmbeddedServer

START = "from accessa.embedded_postgres.server import EmbeddedServer; print(EmbeddedServer().ensure_running())"
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    """0700 like pytest's own, but short: see `test_a_path_too_long_for_a_socket_still_serves`."""
    path = Path(tempfile.mkdtemp(prefix="accessa-e-", dir="/tmp"))
    yield path
    EmbeddedServer(path / "postgres").stop("immediate")
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedServer]:
    path = Path(tempfile.mkdtemp(prefix="accessa-e-", dir="/tmp"))
    server = EmbeddedServer(path / "postgres")
    yield server
    server.stop("immediate")
    shutil.rmtree(path)


@pytest.fixture
def server(shared: EmbeddedServer) -> EmbeddedServer:
    """Up, whatever the test before did to it."""
    shared.ensure_running()
    return shared


def ask(server: EmbeddedServer, sql: str, *, user: str = "accessa_app", database: str = "accessa") -> object:
    with psycopg.connect(make_conninfo(**{**server.params(database), "user": user})) as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return row[0] if len(row) == 1 else row


def kill(server: EmbeddedServer) -> None:
    os.kill(int((server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    while server.is_running:
        time.sleep(0.01)


def start_elsewhere(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "ACCESSA_VAR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", START], cwd=REPOSITORY, env=environment, text=True, stdout=-1)


def tell(server: EmbeddedServer, sql: str, *, user: str = "accessa_app", database: str = "accessa") -> None:
    with psycopg.connect(make_conninfo(**{**server.params(database), "user": user}), autocommit=True) as connection:
        connection.execute(sql)


@pytest.mark.slow
def test_it_starts_once_stops_and_keeps_its_rows(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres")
    assert not server.is_running

    assert server.ensure_running()
    assert not server.ensure_running()
    tell(server, "CREATE TABLE kept AS SELECT 7 AS it")
    assert server.stop()

    assert not server.is_running
    assert not server.stop()
    assert server.ensure_running()
    assert ask(server, "SELECT it FROM kept") == 7


@pytest.mark.slow
def test_asking_whether_it_runs_costs_less_than_a_millisecond(server: EmbeddedServer) -> None:
    seconds = min(timeit.repeat(server.ensure_running, number=10, repeat=20)) / 10  # the best: others work beside it

    assert seconds < 0.001


@pytest.mark.slow
def test_processes_that_race_share_one_server(folder: Path) -> None:
    racers = [start_elsewhere(folder) for _ in range(3)]

    outputs = sorted(racer.communicate()[0].strip() for racer in racers)

    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert outputs == ["False", "False", "True"]
    assert EmbeddedServer(folder / "postgres").is_running


def test_processes_that_race_for_the_account_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made"
    useradd = tmp_path / "useradd"
    useradd.write_text(f"#!/bin/sh\nsleep 0.1\necho made >> {made}\n")
    useradd.chmod(0o700)
    own = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(shutil, "which", lambda name, path: str(useradd))
    monkeypatch.setattr(pwd, "getpwall", lambda: [own] if made.exists() else [])
    monkeypatch.setattr(os_user, "SYSTEM_ACCOUNT", own.pw_name)

    with ThreadPoolExecutor(3) as racers:
        uids = [future.result() for future in [racers.submit(os_user._system_account_uid) for _ in range(3)]]

    assert (uids, made.read_text()) == ([own.pw_uid] * 3, "made\n")


@pytest.mark.slow
def test_it_comes_back_after_the_server_was_killed(server: EmbeddedServer) -> None:
    tell(server, "CREATE TABLE kept AS SELECT 7 AS it")
    kill(server)

    assert server.ensure_running()

    assert ask(server, "SELECT it FROM kept") == 7


def test_it_comes_back_while_a_killed_servers_query_still_runs(server: EmbeddedServer) -> None:
    query = "SELECT count(*) FROM generate_series(1, 3000000000)"  # never looks whether its server lives
    busy = psycopg.connect(make_conninfo(**server.params()))
    busy.pgconn.send_query(query.encode())
    orphan = psutil.Process(busy.info.backend_pid)
    kill(server)
    assert orphan.is_running()

    assert server.ensure_running()

    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert ask(server, "SELECT 1") == 1
    busy.close()


def test_a_pidfile_with_another_process_is_stale(server: EmbeddedServer) -> None:
    left = (server.data / "postmaster.pid").read_text()
    server.stop()
    stranger = left.replace(left.split()[0], str(os.getpid()), 1)
    os_user.account_for(server.data).write(server.data / "postmaster.pid", stranger)

    assert not server.is_running
    assert not server.stop()
    assert server.ensure_running()


@pytest.mark.slow
def test_an_interrupted_initdb_is_done_again(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres")
    (folder / "postgres.init" / "base").mkdir(parents=True)
    (folder / "postgres.init" / "PG_VERSION").write_text("18")

    server.ensure_running()

    assert not (folder / "postgres.init").exists()
    assert ask(server, "SELECT 1") == 1


def test_an_interrupted_bootstrap_is_finished_before_anybody_is_let_in(server: EmbeddedServer) -> None:
    (server.data / "accessa.bootstrap").unlink()
    assert not server.is_running

    assert not server.ensure_running()

    assert server.is_running


def test_a_folder_that_is_not_a_database_is_left_alone(folder: Path) -> None:
    (folder / "postgres").mkdir()
    (folder / "postgres" / "thesis.txt").write_text("mine")

    with pytest.raises(EmbeddedError, match="Move it away"):
        EmbeddedServer(folder / "postgres").ensure_running()

    assert (folder / "postgres" / "thesis.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_path_too_long_for_a_socket_still_serves(folder: Path) -> None:
    deep = folder / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True, mode=0o700)
    server = EmbeddedServer(deep / "postgres")

    server.ensure_running()
    found = server.socket_folder.stat()
    try:
        assert ask(server, "SELECT 1") == 1
        assert server.socket_folder != server.data
        assert found.st_mode & 0o777 == 0o700
    finally:
        server.stop()
    assert not server.socket_folder.exists()


def test_a_socket_folder_of_somebody_else_is_refused(folder: Path) -> None:
    deep = folder / ("a" * 60) / ("b" * 60) / "postgres"
    squatted = data_directory.socket_folder(deep)
    squatted.mkdir(mode=0o777)
    squatted.chmod(0o777)

    try:
        with pytest.raises(EmbeddedError, match="only its owner"):
            data_directory.open_socket_folder(deep, os_user.account_for(deep))
    finally:
        squatted.rmdir()


def test_a_late_process_does_not_bring_back_a_removed_folder(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        EmbeddedServer(folder / "gone" / "var" / "postgres").ensure_running()


def test_roles_extensions_and_settings_are_as_designed(server: EmbeddedServer) -> None:
    role = "SELECT rolcanlogin, rolcreatedb, rolbypassrls, rolsuper, rolcreaterole FROM pg_roles WHERE rolname = '{}'"
    grant = (
        "SELECT set_option, inherit_option, admin_option FROM pg_auth_members "
        "WHERE roleid = 'accessa_client'::regrole AND member = 'accessa_app'::regrole"
    )
    settings = (
        "SELECT array_agg(name || '=' || current_setting(name) ORDER BY name) FROM pg_settings WHERE name IN ('{}')"
    )
    pinned = [
        "fsync=on", "idle_in_transaction_session_timeout=1min", "jit=off", "listen_addresses=", "max_connections=200",
        "shared_buffers=256MB", "shared_preload_libraries=pg_stat_statements", "synchronous_commit=on",
    ]  # fmt: skip

    assert ask(server, role.format("accessa_app")) == (True, True, True, False, False)
    assert ask(server, role.format("accessa_client")) == (False, False, False, False, False)
    assert ask(server, grant) == (True, False, False)
    names = "', '".join(line.split("=")[0] for line in pinned)
    assert ask(server, settings.format(names), user="postgres") == pinned
    assert (
        ask(server, "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = 'accessa'") == "accessa_app"
    )


def test_a_new_database_has_the_extensions(server: EmbeddedServer) -> None:
    tell(server, "CREATE DATABASE test_x", database="postgres")
    names = "SELECT array_agg(extname::text) FROM pg_extension"
    version = "SELECT string_to_array(extversion, '.')::int[] >= '{0,8,4}' FROM pg_extension WHERE extname = 'vector'"

    found = ask(server, names, database="test_x")

    assert isinstance(found, list)
    assert {"vector", "pg_trgm", "unaccent"} <= set(found)
    assert ask(server, version, database="test_x") is True


def test_bootstrap_can_run_again(server: EmbeddedServer) -> None:
    tell(server, "ALTER ROLE accessa_app NOBYPASSRLS", user="postgres")

    roles_and_extensions.prepare(server.socket_folder)

    assert ask(server, "SELECT rolbypassrls FROM pg_roles WHERE rolname = 'accessa_app'") is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_of_the_machine_cannot_connect(server: EmbeddedServer, tmp_path: Path) -> None:
    nobody = os_user.Account("nobody", 65534, 65534)
    outputs = tmp_path / "said"

    def knock(user: str) -> str:
        with outputs.open("wb") as output, pytest.raises(subprocess.CalledProcessError):
            nobody.run("psql", "-h", str(server.socket_folder), "-U", user, "-d", "postgres", "-c", "", output=output)
        return outputs.read_text()

    assert "Permission denied" in knock("postgres")
    assert "Permission denied" in knock("accessa_app")

    for path, mode in ((server.data.parent, 0o755), (server.data, 0o755), (server.data / ".s.PGSQL.5432", 0o777)):
        path.chmod(mode)  # even if it stood open: the server asks the kernel who is calling
    assert "Peer authentication failed" in knock("postgres")
    assert "Peer authentication failed" in knock("accessa_app")
    server.data.chmod(0o700)


def test_tenants_text_does_not_reach_the_log(server: EmbeddedServer) -> None:
    for sql in (
        "SELECT 'broken knee'::int",
        "SELECT 'broken knee' FROM nowhere",
        "DO $$ BEGIN RAISE 'broken knee'; END $$",
    ):
        with pytest.raises(psycopg.Error, match=r"broken knee|nowhere"):
            tell(server, sql)

    assert "ready to accept connections" in server.log.read_text()
    assert "broken knee" not in server.log.read_text()


@pytest.mark.slow
def test_the_command_line_reports_the_server_state(folder: Path) -> None:
    def run(action: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "accessa.embedded_postgres", action]
        environment = {**os.environ, "ACCESSA_VAR": str(folder)}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout.split(" /")[0]

    outputs = [run(action) for action in ("status", "start", "start", "status", "stop", "stop")]

    assert outputs == [
        (3, "not running"), (0, "started"), (0, "already running"), (0, "running"), (0, "stopped"), (0, "not running"),
    ]  # fmt: skip


def test_doctor_stops_the_database_it_started_unless_others_connected(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections["default"], "server", server)

    with embedded_server_running():
        pass
    assert server.is_running  # as it was

    server.stop()
    with embedded_server_running():
        other = psycopg.connect(make_conninfo(**server.params()))
    assert server.is_running
    other.close()

    server.stop()
    with embedded_server_running():
        assert server.is_running
    assert not server.is_running
