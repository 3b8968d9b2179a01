"""Migrations since the commit in RELEASED are only added, and fit for the released program that runs beside them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import models
from django.db.migrations import Migration, operations
from django.db.migrations.loader import MigrationLoader

from accessa import migration_operations
from testing import released_migrations

REMOVED = operations.RunSQL("ALTER TABLE documents DROP COLUMN IF EXISTS colour;", operations.RunSQL.noop)
UNFIT = {
    "removed field": operations.RemoveField("document", "colour"),
    "removed model": operations.DeleteModel("colour"),
    "removed column": REMOVED,
    "renamed": operations.RenameField("document", "hue", "tint"),
    "altered": operations.AlterField("document", "hue", models.IntegerField()),
    "narrowed": operations.RunSQL("ALTER TABLE documents ALTER COLUMN hue SET NOT NULL"),
    "required": operations.AddField("document", "hue", models.IntegerField(default=1)),
}
FIT = {
    "removed after its release": operations.RemoveField("document", "unread"),
    "nullable": operations.AddField("document", "hue", models.IntegerField(null=True)),
    "default of the database": operations.AddField("document", "hue", models.IntegerField(db_default=1)),
    "state alone": operations.SeparateDatabaseAndState(state_operations=[UNFIT["removed field"], UNFIT["altered"]]),
    "table": operations.CreateModel("hue", [("id", models.AutoField(primary_key=True))]),
}


def reasons(*each: Any) -> list[str]:
    migration = type("Migration", (Migration,), {"operations": each})("0002_hue", "documents")
    return list(migration_operations.unfit_operations(migration, lambda name: name == "colour"))


@pytest.mark.parametrize("name", UNFIT)
def test_an_operation_that_breaks_the_released_program_is_unfit(name: str) -> None:
    assert len(reasons(UNFIT[name])) == 1
    assert reasons(operations.SeparateDatabaseAndState(database_operations=[UNFIT[name]]))


@pytest.mark.parametrize("name", FIT)
def test_an_operation_that_the_released_program_does_not_notice_is_fit(name: str) -> None:
    assert reasons(FIT[name]) == []


def test_changed_and_added_migrations_and_what_the_release_reads_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "shop" / "migrations"
    folder.mkdir(parents=True)
    (folder / "0001_initial.py").write_text("first")
    (tmp_path / "shop" / "models.py").write_text("colour = 1\n")
    assert released_migrations.released_commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Release"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "RELEASED").write_text("HEAD\n")
    commit = released_migrations.released_commit(tmp_path)
    assert commit == "HEAD"
    assert released_migrations.changed_migrations(tmp_path, commit) == []

    (folder / "0001_initial.py").write_text("other")
    (folder / "0002_hue.py").write_text("second")

    assert released_migrations.changed_migrations(tmp_path, commit) == ["shop/migrations/0001_initial.py"]
    assert released_migrations.added_migrations(tmp_path, commit) == {("shop", "0002_hue")}
    is_read = released_migrations.is_read_by(tmp_path, commit)
    assert (is_read("Colour"), is_read("colours")) == (True, False)


def test_migrations_since_the_release_are_added_and_fit() -> None:
    commit = released_migrations.released_commit(settings.BASE_DIR)
    if commit is None:
        return  # nothing is released yet
    added = released_migrations.added_migrations(settings.BASE_DIR, commit)
    is_read = released_migrations.is_read_by(settings.BASE_DIR, commit)
    migrations = MigrationLoader(None).disk_migrations

    assert released_migrations.changed_migrations(settings.BASE_DIR, commit) == []
    assert {key: list(migration_operations.unfit_operations(migrations[key], is_read)) for key in added} == {
        key: [] for key in added
    }
