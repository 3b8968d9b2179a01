"""Rules for migrations since a release: only added, and each fit for the released program, which runs beside it.

The file RELEASED names the commit of the newest release. Without the file there is none, and migrations may change.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.db.migrations import Migration, operations
from django.db.models import NOT_PROVIDED, Field

RENAMES = (operations.RenameField, operations.RenameModel, operations.AlterModelTable, operations.AlterField)
REMOVING_SQL = re.compile(r"\bDROP\s+(?:TABLE|COLUMN)\s+(?:IF\s+EXISTS\s+)?(\w+)", re.IGNORECASE)
NARROWING_SQL = re.compile(r"\bRENAME\b|\bSET\s+NOT\s+NULL\b", re.IGNORECASE)


def released_commit(root: Path) -> str | None:
    """Return the commit that RELEASED names; None without the file."""
    path = root / "RELEASED"
    return path.read_text().split()[0] if path.exists() else None


def changed_migrations(root: Path, commit: str) -> list[str]:
    """Return the migrations of the release that have changed or are gone."""
    lines = _git(root, "diff", "--no-renames", "--name-status", "--diff-filter=MDT", commit, "--", "*/migrations/*.py")
    return [line.partition("\t")[2] for line in lines]


def added_migrations(root: Path, commit: str) -> set[tuple[str, str]]:
    """Return app and name of the migrations that the release does not have."""
    before = _git(root, "ls-tree", "-r", "--name-only", commit)
    now = [str(path.relative_to(root)) for path in root.glob("**/migrations/[0-9]*.py")]
    return {(Path(path).parts[-3], Path(path).stem) for path in now if path not in before}


def is_read_by(root: Path, commit: str) -> Callable[[str], bool]:
    """Return a function that tells whether the release's program names a field, column, table or model."""

    def is_read(name: str) -> bool:
        paths = ("*.py", ":!*/migrations/*", ":!*/tests/*")
        return bool(_git(root, "grep", "-iwl", "-e", name, commit, "--", *paths, codes=(0, 1)))

    return is_read


def unfit_operations(migration: Migration, is_read: Callable[[str], bool]) -> Iterator[str]:
    """Yield why the released program would fail beside this migration.

    Columns and tables are removed (contract) once the release does not name them; what it inserts must stay valid.
    """
    for operation in _database_operations(migration.operations):
        match operation:
            case operations.RemoveField(name=name) | operations.DeleteModel(name=name) if is_read(name):
                yield f"removes {name}, which the release reads"
            case operations.AddField(field=field) if not _may_be_left_out(field):
                yield f"adds {operation.name}, which the release does not insert: null=True or a db_default"
            case operations.RunSQL(sql=sql):
                yield from (f"removes {name}, which the release reads" for name in _removed(sql) if is_read(name))
                if NARROWING_SQL.search(str(sql)):
                    yield "renames or narrows by SQL: add a column, and remove the old one after the next release"
            case _ if isinstance(operation, RENAMES):
                name = getattr(operation, "old_name", "") or getattr(operation, "name", "")
                yield f"changes {name}: add another column, or SeparateDatabaseAndState if the database stays the same"


def _database_operations(each: Any) -> Iterator[Any]:
    for operation in each:
        if isinstance(operation, operations.SeparateDatabaseAndState):
            yield from _database_operations(operation.database_operations)
        else:
            yield operation


def _may_be_left_out(field: "Field[Any, Any]") -> bool:
    return field.null or field.many_to_many or field.generated or field.db_default is not NOT_PROVIDED


def _removed(sql: Any) -> list[str]:
    return REMOVING_SQL.findall(str(sql))


def _git(root: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> list[str]:
    ran = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if ran.returncode not in codes:
        raise RuntimeError(f"git {arguments[0]} failed: {ran.stderr.strip()}")
    return ran.stdout.splitlines()
