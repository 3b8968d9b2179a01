"""Doctor before an upgrade: pending migrations, unfinished jobs, connections, transactions, archived logs."""

import io
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.db.migrations import Migration, operations
from django.db.migrations.executor import MigrationExecutor

from accessa.doctor import upgrade
from accessa.doctor.findings import Finding, Level
from jobs.models import UploadJob
from testing.factories.pending_documents import create_chunked_job

pytestmark = pytest.mark.django_db(transaction=True)
PENDING = [
    (operations.AddField("document", "hue", models.IntegerField(null=True)), Level.OK, "1 pending."),
    (operations.RenameField("document", "hue", "tint"), Level.ERROR, "documents.0099_hue is not only expanding"),
    (operations.RemoveField("document", "hue"), Level.WARNING, "documents.0099_hue removes hue."),
]


def only(found: Iterator[Finding]) -> Finding:
    (finding,) = (each for each in found if not (each.level is Level.OK and "workers finish" in each.message))
    return finding


def answer(monkeypatch: pytest.MonkeyPatch, statement: str, row: str) -> None:
    monkeypatch.setattr(upgrade, statement, f"SELECT {row}")


def run_doctor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("doctor", "--before-upgrade", *arguments, stdout=out)
    return out.getvalue()


def test_a_deployment_that_may_be_upgraded_ends_with_0_and_a_sentence() -> None:
    out = run_doctor("--skip", "limits", "--skip", "sessions", "--skip", "configuration")

    assert "Migrations only add. None is pending." in out
    assert out.splitlines()[-1] == "All is well."


def test_a_job_of_a_plan_that_the_new_version_lacks_ends_it_with_1() -> None:
    job = create_chunked_job(["Dental care is covered."], user_id=uuid4())
    UploadJob.objects.filter(pk=job.pk).update(pipeline="retired")

    with pytest.raises(SystemExit) as leaving:
        run_doctor("--only", "jobs")

    assert leaving.value.code == 1


def test_checks_of_the_other_mode_are_refused() -> None:
    with pytest.raises(CommandError, match="No check with --before-upgrade: workers"):
        run_doctor("--only", "workers")


@pytest.mark.parametrize(("operation", "level", "says"), PENDING)
def test_pending_migrations_that_the_old_version_does_not_survive_are_found(
    operation: Any, level: Level, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migration = type("Migration", (Migration,), {"operations": [operation]})("0099_hue", "documents")
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *args: [(migration, False)])

    found = list(upgrade.check_pending_migrations())

    assert found[0].level is level
    assert found[0].message.startswith(says)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"pipeline": "retired"}, "of retired, which this version does not have."),
        ({"pipeline": "reembed", "stage": "parsing"}, "the stage parsing of reembed"),
        ({"chunks_version": "retired@7"}, "the chunker retired@7"),
    ],
)
def test_unfinished_jobs_of_plans_that_this_version_lacks_are_found(columns: dict[str, str], says: str) -> None:
    job = create_chunked_job(["Dental care is covered."], user_id=uuid4())
    assert [each.level for each in upgrade.check_unfinished_jobs()] == [Level.OK]

    UploadJob.objects.filter(pk=job.pk).update(**columns)

    assert says in only(upgrade.check_unfinished_jobs()).message


def test_too_few_connections_for_two_versions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "SESSIONS", "100, 69, 0.0")

    assert only(upgrade.check_sessions()).message.startswith("69 of 100 connections are in use")


def test_a_transaction_that_migrations_would_wait_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "OLD_TRANSACTION_SECONDS", -1)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN; SELECT 1")
            assert any("A transaction has been open for 0 s" in each.message for each in upgrade.check_sessions())
    finally:
        other.close()


@pytest.mark.parametrize(
    ("row", "level", "says"),
    [
        ("false, NULL, false", Level.OK, "the age of your backup is not known"),
        ("true, NULL, false", Level.WARNING, "No log was archived yet."),
        ("true, 30.0, false", Level.WARNING, "The last log was archived 30 hours ago."),
        ("true, 0.1, true", Level.ERROR, "last try to archive its log failed"),
    ],
)
def test_archived_logs_that_are_old_or_failed_are_found(
    row: str, level: Level, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(list(upgrade.check_backups())) == 1  # the real statement
    answer(monkeypatch, "ARCHIVE", row)

    finding = only(upgrade.check_backups())

    assert (finding.level, says in finding.message) == (level, True)
