"""Log lines: form, fields, redaction, correlation ids of requests and jobs. Readiness."""

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import Client

from accessa import health, settings_logs
from accessa.observability.logs import LogFormatter
from accessa.observability.redaction import redact
from accessa.server import gunicorn_worker
from jobs import services, telemetry, worker
from jobs.models import Event, UploadJob
from testing.pdfs import text_pdf
from testing.personas import Person, run_all_jobs

GIVEN = "0b8e6a52-3a0f-4c5e-8f6a-6d1f0a2b3c4d"
PDF = text_pdf("The plan pays 80 percent after the deductible.")


class Lines(logging.Handler):
    """What the project's handler would write, parsed."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(LogFormatter("json"))
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def log_lines() -> Any:
    root, ear = logging.getLogger(), Lines()
    before = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    logging.getLogger("accessa").setLevel(logging.DEBUG)
    yield ear.lines
    logging.getLogger("accessa").setLevel(logging.NOTSET)
    root.setLevel(before)
    root.removeHandler(ear)


def test_a_log_line_has_time_level_logger_event_and_context(log_lines: list[dict[str, Any]]) -> None:
    with structlog.contextvars.bound_contextvars(job="j"):
        structlog.get_logger("accessa.jobs").warning("Stage ended.", outcome="ADVANCED", duration_ms=1.5)
        logging.getLogger("library").warning("%s of %d", "one", 2)

    ours, theirs = log_lines
    assert list(ours)[:4] == list(theirs)[:4] == ["timestamp", "level", "logger", "event"]
    assert ours["timestamp"].endswith("Z")
    assert (ours["level"], ours["logger"], ours["event"], ours["outcome"], ours["job"]) == (
        "warning", "accessa.jobs", "Stage ended.", "ADVANCED", "j",
    )  # fmt: skip
    assert (theirs["event"], theirs["job"]) == ("one of 2", "j")


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_entry_is_one_line_whatever_it_says(form: str) -> None:
    record = logging.makeLogRecord({"msg": "one\ntwo\r\x1b[31m", "levelname": "INFO", "name": "x"})

    written = LogFormatter(form).format(record)

    assert "\n" not in written
    assert "\x1b[31m" not in written


@pytest.mark.parametrize(
    ("given", "debug", "terminal", "form"),
    [("", False, False, "json"), ("", True, False, "text"), ("", False, True, "text"), ("json", True, True, "json")],
)
def test_machines_read_json_and_people_text(
    given: str, debug: bool, terminal: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)

    assert settings_logs.logging("INFO", given, debug=debug)["formatters"]["line"]["form"] == form


@pytest.mark.parametrize(("level", "form"), [("LOUD", "json"), ("INFO", "xml")])
def test_a_wrong_level_or_form_is_named(level: str, form: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"LOG_(LEVEL|FORMAT) must be"):
        settings_logs.logging(level, form)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("GET https://h/p/q?token=abc HTTP/1.1", "GET https://h/p/q?… HTTP/1.1"),
        ("open /srv/var/storage/raw/ana/My plan.pdf", "open /srv/var/storage/… plan.pdf"),
        ("storage://raw/a/b.pdf is gone", "/storage/… is gone"),
        ("redis://user:pass@host:1/0", "redis://…@host:1/0"),
        ("Authorization: Bearer acc_1234567890", "Authorization: Bearer …"),
        ("jwt eyJhbGciOi.eyJzdWIi.c2ln!", "jwt …!"),
        ("Key (user_id)=(1) already exists.\nmore", "…"),
        ("DETAIL:  Failing row contains (1, 2)", "…"),
        ("member 078-05-1120 unknown", "member … unknown"),
        ("at [0.1, -0.25, 3e-2, 0.5]: no", "at […: no"),
        ("Stage chunking took 1.5 s of 30.0, 2 tries", "Stage chunking took 1.5 s of 30.0, 2 tries"),
        ("127.0.0.1 at 2026-11-22T08:00:00.123Z 1.2.3", "127.0.0.1 at 2026-11-22T08:00:00.123Z 1.2.3"),
        (f"job {GIVEN} of llama_cloud 2.19.1", f"job {GIVEN} of llama_cloud 2.19.1"),
    ],
)
def test_secrets_are_redacted_and_other_text_stays(said: str, left: str) -> None:
    assert redact(said) == left


def test_named_arguments_of_library_logs_are_redacted(log_lines: list[dict[str, Any]]) -> None:
    logging.getLogger("library").error("%(what)s", {"what": ValueError("canary")})

    assert log_lines[-1]["event"] == "ValueError"


# A request's id


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Correlation-ID": GIVEN.upper()}, GIVEN),
        ({"traceparent": f"00-{GIVEN.replace('-', '')}-00f067aa0ba902b7-01"}, GIVEN),
        ({"X-Correlation-ID": GIVEN, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, GIVEN),
    ],
)
def test_a_request_keeps_the_id_that_it_came_with(headers: dict[str, str], expected: str) -> None:
    assert Client().get("/healthz", headers=headers)["X-Correlation-ID"] == expected


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Correlation-ID": "POLICY-XJ9"},
        {"X-Correlation-ID": f"{GIVEN}, {GIVEN}"},
        {"X-Correlation-ID": f"{{{GIVEN}}}"},
        {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
        {"traceparent": "00-nonsense-01"},
    ],
)
def test_a_request_without_a_good_id_gets_a_new_one(headers: dict[str, str]) -> None:
    first, second = (Client().get("/healthz", headers=headers)["X-Correlation-ID"] for _ in range(2))

    assert UUID(first) != UUID(second)
    assert GIVEN not in (first, second)


def test_a_request_is_one_log_line_with_its_route(ana: Person, log_lines: list[dict[str, Any]]) -> None:
    document = uuid4()

    ana.client.get(f"/documents/{document}?name=canary", headers={"X-Correlation-ID": GIVEN})

    (line,) = [line for line in log_lines if line["logger"] == "accessa.requests"]
    assert (line["method"], line["route"], line["status"]) == ("GET", "/documents/{document_id}", 404)
    assert (line["correlation"], line["document"], line["user"]) == (GIVEN, str(document), str(ana.id))
    assert "canary" not in json.dumps(log_lines)


def test_one_request_leaves_nothing_behind_for_the_next(ana: Person, log_lines: list[dict[str, Any]]) -> None:
    ana.client.get(f"/documents/{uuid4()}", headers={"X-Correlation-ID": GIVEN})
    ana.get("/documents")

    last = log_lines[-1]
    assert last["route"] == "/documents"
    assert "document" not in last
    assert last["correlation"] != GIVEN
    assert structlog.contextvars.get_contextvars() == {}


# A job's id


def lines_of_job(lines: list[dict[str, Any]], job_id: UUID) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("job") == str(job_id)]


def test_the_correlation_id_reaches_every_event_and_log_line(ana: Person, log_lines: list[dict[str, Any]]) -> None:
    ana.client.defaults["HTTP_X_CORRELATION_ID"] = GIVEN

    uploaded = ana.ingest(PDF)

    events = Event.objects.filter(job_id=uploaded.job_id).values_list("correlation_id", flat=True)
    assert {*events} == {UUID(GIVEN)}
    lines = lines_of_job(log_lines, uploaded.job_id)
    assert {line["correlation"] for line in lines} == {GIVEN}
    assert {"document", "user", "pipeline"} <= set.intersection(*(set(line) for line in lines))
    ended = [line for line in lines if line["event"] == "Stage ended."]
    assert {"stage", "attempt", "worker", "outcome", "duration_ms"} <= set.intersection(*(set(line) for line in ended))
    assert ended[-1]["outcome"] == "FINALIZED"
    assert structlog.contextvars.get_contextvars() == {}


def test_a_retry_and_a_repeated_declaration_keep_the_jobs_id(ana: Person, log_lines: list[dict[str, Any]]) -> None:
    ana.client.defaults["HTTP_X_CORRELATION_ID"] = GIVEN
    uploaded = ana.upload(PDF)
    services.cancel(uploaded.job, by="test")
    ana.client.defaults["HTTP_X_CORRELATION_ID"] = other = str(uuid4())

    ana.request_upload(PDF)
    run_all_jobs(2)

    assert uploaded.job.state == "done"
    events = Event.objects.filter(job_id=uploaded.job_id).values_list("correlation_id", flat=True)
    assert {*events} == {UUID(GIVEN)}
    ended = next(line for line in reversed(log_lines) if line.get("route") == "/upload")
    assert (ended["request"], ended["correlation"], ended["job"]) == (other, GIVEN, str(uploaded.job_id))


@pytest.mark.django_db
def test_the_log_context_ends_with_the_job(ana: Person) -> None:
    ana.upload(PDF)

    worker.drain()

    assert structlog.contextvars.get_contextvars() == {}


def test_outside_of_requests_each_thing_has_an_id_of_its_own() -> None:
    assert telemetry.correlation_id() != telemetry.correlation_id()


def test_a_bug_outside_of_stages_is_logged_by_class_only(ana: Person, log_lines: list[dict[str, Any]]) -> None:
    ana.upload(PDF)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        cursor.execute("ALTER TABLE events ADD CONSTRAINT none CHECK (false) NOT VALID")

    with pytest.raises(worker.DrainFailed) as broke:
        worker.drain()

    assert "IntegrityError" in str(broke.value) or "CheckViolation" in str(broke.value)
    assert broke.value.__cause__ is None
    assert broke.value.__suppress_context__


# Ready


@pytest.fixture
def stopping() -> Any:
    class Worker:
        alive = False

    gunicorn_worker.register_worker(Worker())
    yield
    gunicorn_worker._workers.clear()


@pytest.mark.django_db
def test_ready_names_each_part() -> None:
    assert Client().get("/readyz").json() == {"status": "ok", "parts": dict.fromkeys(health.CHECKS, "ok")}


@pytest.mark.django_db
def test_a_process_that_is_stopping_is_not_ready_and_still_alive(stopping: None) -> None:
    answer = Client().get("/readyz")

    assert (answer.status_code, answer.json()["code"], answer.json()["parts"]["process"]) == (503, "STOPPING", "failed")
    assert int(answer["Retry-After"]) > 0
    assert Client().get("/healthz").status_code == 200


@pytest.mark.django_db
def test_a_database_without_a_migration_is_not_ready() -> None:
    health._require_migrated.cache_clear()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'jobs'")

    answer = Client().get("/readyz")

    assert (answer.status_code, answer.json()["code"]) == (503, "NOT_MIGRATED")
    assert answer.json()["parts"] == {"process": "ok", "database": "ok", "migrations": "failed", "storage": "ok"}


def unwritable(settings: Any) -> None:
    settings.STORAGE_ROOT = Path(__file__) / "below"


def no_bucket(settings: Any) -> None:
    settings.STORAGE, settings.S3_RAW_BUCKET = "s3", ""


@pytest.mark.django_db
@pytest.mark.parametrize("break_it", [unwritable, no_bucket])
def test_a_store_that_is_not_configured_is_not_ready(break_it: Callable[[Any], None], settings: Any) -> None:
    break_it(settings)

    answer = Client().get("/readyz")

    assert (answer.status_code, answer.json()["code"]) == (503, "STORAGE_NOT_CONFIGURED")


@pytest.mark.django_db
@pytest.mark.parametrize(("store", "free"), [("local", 0), ("local", 4 * 25 * 1024 * 1024 - 4096), ("s3", 0)])
def test_a_full_disk_is_not_ready(store: str, free: int, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.STORAGE = store
    disk = os.statvfs("/")
    fields = {name: getattr(disk, name) for name in dir(disk) if name.startswith("f_")}
    full = SimpleNamespace(**fields | {"f_bavail": free // 4096, "f_frsize": 4096})
    monkeypatch.setattr(os, "statvfs", lambda path: full)

    answer = Client().get("/readyz")

    assert (answer.status_code, answer.json()["code"]) == (507, "INSUFFICIENT_STORAGE")
    assert answer.json()["parts"] == {"process": "ok", "database": "ok", "migrations": "ok", "storage": "failed"}
    assert int(answer["Retry-After"]) > 0


def test_a_jobs_lines_say_only_ids_and_words_of_ours() -> None:
    job = UploadJob(user_id=uuid4(), document_id=uuid4(), raw_path="storage://x", pipeline="insurance")

    assert {*telemetry.job_fields(job)} == {"correlation", "job", "document", "user", "pipeline"}
