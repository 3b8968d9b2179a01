"""Prepared statements, sent past Django's cursors: planning a small statement costs more than running it."""

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Model
from psycopg import Cursor
from psycopg.rows import dict_row

Row = dict[str, Any]
M = TypeVar("M", bound=Model)


def execute(sql: str, params: Mapping[str, Any]) -> list[Row]:
    """Run a statement that returns rows, or one whose last step does. Raises Django's database errors."""
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection, row_factory=dict_row) as cursor:
        cursor.execute(sql, params, prepare=True)
        return cursor.fetchall()


class PreparedCursor(Cursor[Any]):
    """Prepares every statement, and reads rows as binary: half as many bytes, and little to decode."""

    def execute(self, query: Any, params: Any = None, **_: Any) -> Self:
        return super().execute(query, params, prepare=True, binary=True)


def prepared_cursor() -> CursorWrapper:
    """Return a cursor of Django's for statements whose text stays the same: each is planned once a connection.

    Within a pipeline, fetch after the last statement has been sent: that is one round trip for all.
    """
    connection.ensure_connection()
    raw: Any = PreparedCursor(connection.connection)
    return connection.make_cursor(raw)


def load(model: type[M], row: Row) -> M:
    """Return the instance of a row; columns that it lacks are deferred."""
    names = [field.attname for field in model._meta.concrete_fields if field.attname in row]
    return model.from_db(connection.alias, names, [row[name] for name in names])
