"""One-sentence errors of commands: unreadable settings, missing migrations. Doctor without a database."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import OperationalError, ProgrammingError, connection

from accessa import command_line_errors
from accessa.checks.settings import NOT_NEGATIVE, POSITIVE, check_settings
from accessa.doctor.public_urls import DEFAULT_URL
from accessa.env import Env
from accessa.server import pidfile
from accessa.server.address import PIDFILE, Address, publish_address
from accessa.tests.doctor_fixtures import temporary_sql

REPOSITORY = Path(__file__).resolve().parents[2]


def run_manage(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | variables
    command = (sys.executable, "manage.py", *command)
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


# Values that cannot be read


@pytest.mark.parametrize(
    ("command", "name", "value", "expected"),
    [
        ("doctor", "MAX_FILE_BYTES", "abc", "MAX_FILE_BYTES must be a whole number."),
        ("check", "LOG_LEVEL", "LOUD", "LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL."),
    ],
)
def test_a_value_that_cannot_be_read_is_one_sentence(command: str, name: str, value: str, expected: str) -> None:
    ended = run_manage(command, **{name: value})

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", expected + "\n")


READINGS: list[tuple[str, str, Any]] = [
    ("bool", "ture", "true or false"),
    ("bool", "maybe", "true or false"),
    ("bool", "2", "true or false"),
    ("int", "25MB", "a whole number"),
    ("int", "2.5", "a whole number"),
    ("float", "fast", "a number"),
    ("float", "nan", "a number"),
    ("float", "1,5", "a number"),
    ("postgres", "postgres://h:abc/d", "postgres://user:password@host:port/database"),
    ("postgres", "mysql://u:secret@h/d", "postgres://user:password@host:port/database"),
    ("require_positive", "many", "a whole number of 1 or more"),
    ("require_positive", "0", "a whole number of 1 or more"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), READINGS)
def test_an_unreadable_value_is_reported_without_the_value(
    kind: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIKED", value)

    with pytest.raises(ImproperlyConfigured, match=f"^LIKED must be {re.escape(expected)}") as refused:
        getattr(Env(), kind)("LIKED")

    assert value not in str(refused.value)


def test_valid_values_are_parsed_and_empty_ones_are_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(kind: str, value: str) -> Any:
        monkeypatch.setenv("LIKED", value)
        return getattr(Env(), kind)("LIKED", default="the default")

    assert [read("bool", value) for value in ("True", "1", "on", "FALSE", "0", "no")] == [True] * 3 + [False] * 3
    assert [read("int", " 7 "), read("float", "1e-3")] == [7, 0.001]
    assert [read(kind, "") for kind in ("bool", "int", "float")] == ["the default"] * 3


def test_every_number_of_the_settings_has_a_least_value() -> None:
    files = ("settings.py", "settings_connectors.py", "settings_statutes.py")
    source = "".join((REPOSITORY / "accessa" / name).read_text() for name in files)

    numeric = re.findall(r'env\.(?:int|float)\(\s*"(\w+)"', source)

    assert sorted(numeric) == sorted((*POSITIVE, *NOT_NEGATIVE))
    assert check_settings(app_configs=None) == []


# A database that is not migrated


@pytest.mark.django_db(transaction=True)
def test_missing_migrations_are_one_sentence_and_other_errors_are_raised() -> None:
    hidden = temporary_sql("ALTER TABLE tenant_budgets RENAME TO hidden", "ALTER TABLE hidden RENAME TO tenant_budgets")
    row = "INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '0002_policies', now())"
    command = ["manage.py", "budget", str(uuid4())]

    with hidden:
        with pytest.raises(ProgrammingError):
            command_line_errors.run_command(command)
        forgotten = temporary_sql("DELETE FROM django_migrations WHERE (app, name) = ('jobs', '0002_policies')", row)
        with forgotten, pytest.raises(SystemExit) as leaving:
            command_line_errors.run_command(command)

    assert leaving.value.code == "The database is not migrated: run manage.py migrate"


def test_a_database_that_cannot_be_reached_ends_as_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect_to_nothing(arguments: list[str]) -> None:
        with connection.wrap_database_errors:
            psycopg.connect("host=127.0.0.1 port=1 user=ana password=hidden")

    monkeypatch.setattr(command_line_errors, "execute_from_command_line", connect_to_nothing)

    with pytest.raises(SystemExit) as leaving:
        command_line_errors.run_command(["manage.py", "migrate"])
    with pytest.raises(OperationalError):
        command_line_errors.run_command(["manage.py", "migrate", "--traceback"])

    assert "Connection refused" in str(leaving.value.code)
    assert "Correct DATABASE_URL" in str(leaving.value.code)
    assert "hidden" not in str(leaving.value.code)


# Doctor's surroundings


@pytest.mark.django_db(transaction=True)
def test_doctor_finds_the_serve_that_runs_at_another_address(
    live_server: Any, store: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delenv("PUBLIC_URL", raising=False)
    settings.PUBLIC_URL, settings.VAR = DEFAULT_URL, tmp_path
    host, _, port = live_server.url.removeprefix("http://").rpartition(":")

    address = Address(host, int(port))
    with pidfile.lock_pidfile(tmp_path / PIDFILE), publish_address(tmp_path, address):
        call_command("doctor", "--only", "api", "--only", "storage-raw")

    assert f"PUBLIC_URL leads to this deployment. (http://{host}:{port})" in capsys.readouterr().out
    assert settings.PUBLIC_URL == DEFAULT_URL


@pytest.mark.slow
def test_doctor_creates_no_database(tmp_path: Path) -> None:
    ended = run_manage("doctor", "--only", "embedder", "--skip", "database", ACCESSA_VAR=str(tmp_path))

    assert ended.returncode == 1
    assert re.search(r"FAIL  database +There is no database yet\.", ended.stdout)
    assert re.search(r"skip  embedder +needs database", ended.stdout)
    assert not (tmp_path / "postgres").exists()
