"""manage.py serve: refusals, and commands that start no server."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from accessa.server import pidfile
from accessa.server.address import ADDRESS, PIDFILE, Address, publish_address, published_url
from accessa.server.programs import first_account_code, mcp_url, programs
from testing.personas import Person
from testing.ports import free_port

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _signals_as_before() -> object:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_port_in_use_is_named_and_exits_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(CommandError, match=f"{bind} is in use") as refusal:
            call_command("serve", bind=bind)

    assert refusal.value.returncode == 2


def test_a_second_serve_names_the_first() -> None:
    with (
        pidfile.lock_pidfile(settings.VAR / PIDFILE),
        pytest.raises(CommandError, match=f"by process {os.getpid()}") as refusal,
    ):
        call_command("serve")

    assert refusal.value.returncode == 2


@pytest.mark.parametrize(
    ("text", "bind", "url"),
    [
        ("127.0.0.1:8000", "127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("8001", "127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("0.0.0.0:80", "0.0.0.0:80", "http://127.0.0.1:80"),
        ("[::]:8000", "[::]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_bound_and_found(text: str, bind: str, url: str) -> None:
    address = Address.parse(text)

    assert (address.bind, address.url) == (bind, url)


@pytest.mark.django_db
def test_a_code_is_made_while_there_is_no_account_and_nobody_else_can_reach_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PUBLIC_URL", raising=False)
    here, everywhere = Address("127.0.0.1", 8123), Address("0.0.0.0", 8123)

    code, other = first_account_code(here), first_account_code(here)
    served = {program.name: program.environment.get("FIRST_ACCOUNT_CODE") for program in programs(here, None, code)}

    assert re.fullmatch(r"[A-Z2-9]{4}-[A-Z2-9]{4}", code)
    assert code != other
    assert served == {"the API": code, "the workers": None}
    assert first_account_code(everywhere) == ""
    monkeypatch.setenv("PUBLIC_URL", "https://accessa.example.org")
    assert first_account_code(here) == ""
    monkeypatch.delenv("PUBLIC_URL")
    Person("ana")
    assert first_account_code(here) == ""


def test_signed_urls_lead_back_to_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBLIC_URL", raising=False)

    urls = {program.environment["PUBLIC_URL"] for program in programs(Address("127.0.0.1", 8123))}

    assert urls == {"http://127.0.0.1:8123"}


def test_the_mcp_server_has_the_next_port_unless_another_or_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBLIC_URL", raising=False)
    monkeypatch.delenv("MCP_URL", raising=False)
    *_, server = programs(Address("127.0.0.1", 8123), Address("127.0.0.1", 8124))
    assert server.command[-2:] == ["--bind", "127.0.0.1:8124"]
    assert server.environment["MCP_URL"] == "http://127.0.0.1:8124/mcp"
    assert server.environment["PUBLIC_URL"] == "http://127.0.0.1:8123"

    monkeypatch.setenv("PUBLIC_URL", "https://accessa.example.org")
    assert mcp_url(Address("127.0.0.1", 8124)) == "https://accessa.example.org/mcp"


def test_an_mcp_port_in_use_is_named_and_exits_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"127.0.0.1:{port}, for assistants, is in use") as refusal:
            call_command("serve", bind="127.0.0.1:0", mcp_port=port)

    assert refusal.value.returncode == 2


def test_milvus_lite_runs_beside_the_workers_unless_a_milvus_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILVUS_URI", raising=False)
    port = free_port()
    settings.SEARCH_ENGINE, settings.MILVUS_URI = "milvus", f"http://127.0.0.1:{port}"

    *_, server = programs(Address("127.0.0.1", 8123))

    assert server.name == "the search engine"
    assert server.command[-6:] == [
        "--data-dir",
        str(settings.VAR / "milvus"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(CommandError, match=f":{port}, for Milvus Lite, is in"),
    ):
        programs(Address("127.0.0.1", 8123))
    monkeypatch.setenv("MILVUS_URI", "https://milvus.example.org")
    assert len(programs(Address("127.0.0.1", 8123))) == 2


def test_a_file_is_no_uri_of_a_milvus() -> None:
    environment = {**os.environ, "SEARCH_ENGINE": "milvus", "MILVUS_URI": "./milvus.db"}

    command = [sys.executable, "manage.py", "search_engine", "status"]
    tried = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)

    assert tried.returncode
    assert "A file of Milvus Lite belongs to one process" in tried.stderr


@pytest.mark.parametrize(("queue", "kept"), [("", 2), ("https://sqs.us-east-1.amazonaws.com/1/laws", 3)])
def test_statutes_are_consumed_beside_the_workers_where_there_is_a_queue(
    queue: str, kept: int, settings: Settings
) -> None:
    settings.SQS_QUEUE_URL = queue

    urls = programs(Address("127.0.0.1", 8123))

    assert len(urls) == kept
    assert [list(program.command[-1:]) for program in urls[2:]] == [["consume_sqs"]] * (kept - 2)


def test_where_it_is_served_is_known_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBLIC_URL", raising=False)

    with pidfile.lock_pidfile(tmp_path / PIDFILE), publish_address(tmp_path, Address("0.0.0.0", 8123)):
        assert published_url(tmp_path) == "http://127.0.0.1:8123"

    assert published_url(tmp_path) == ""


def test_the_address_file_of_a_killed_serve_is_ignored(tmp_path: Path) -> None:
    (tmp_path / PIDFILE).write_text("7")
    (tmp_path / ADDRESS).write_text("http://127.0.0.1:8123")

    assert published_url(tmp_path) == ""


def test_a_command_that_needs_no_rows_starts_no_database(tmp_path: Path) -> None:
    environment = {**os.environ, "ACCESSA_VAR": str(tmp_path / "var")}
    command = [sys.executable, "manage.py", "check", "--deploy"]

    subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True)

    assert not (tmp_path / "var" / "postgres").exists()


@pytest.mark.skipif("DATABASE_URL" in os.environ, reason="tests use the server that DATABASE_URL names")
@pytest.mark.django_db
def test_tests_connect_as_the_application_to_a_server_of_their_own() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('is_superuser'), current_database()")
        user, is_superuser, database = cursor.fetchone()
    assert (user, is_superuser) == ("accessa_app", "off")
    assert database.startswith("test_accessa")
