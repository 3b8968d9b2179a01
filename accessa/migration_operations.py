"""Rules for migrations that the program of the release before runs beside: columns and tables are only added."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from django.db.migrations import Migration, operations
from django.db.models import NOT_PROVIDED, Field

RENAMES = (operations.RenameField, operations.RenameModel, operations.AlterModelTable, operations.AlterField)
REMOVING_SQL = re.compile(r"\bDROP\s+(?:TABLE|COLUMN)\s+(?:IF\s+EXISTS\s+)?(\w+)", re.IGNORECASE)
NARROWING_SQL = re.compile(r"\bRENAME\b|\bSET\s+NOT\s+NULL\b", re.IGNORECASE)


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
