"""Prepared statements, sent past Django's cursors: planning a small statement costs more than running it."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import connection
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


def load(model: type[M], row: Row) -> M:
    """Return the instance of a row; columns that it lacks are deferred."""
    names = [field.attname for field in model._meta.concrete_fields if field.attname in row]
    return model.from_db(connection.alias, names, [row[name] for name in names])
