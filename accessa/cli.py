"""Runs a command of manage.py, and tells in one sentence what whoever typed it can mend."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError, ProgrammingError, connection, connections
from django.db.migrations.executor import MigrationExecutor

MISSING = ("42P01", "42703")  # undefined_table, undefined_column


def run_command(arguments: Sequence[str]) -> None:
    """Exit with 1 and a sentence for a wrong setting or a database to migrate; ``--traceback`` shows the rest."""
    try:
        execute_from_command_line(list(arguments))
    except ImproperlyConfigured as error:
        if "--traceback" in arguments:
            raise
        sys.exit(str(error))
    except ProgrammingError as error:
        if "--traceback" in arguments or not _wants_migrations(error):
            raise
        sys.exit("The database is not migrated: run manage.py migrate")


def _wants_migrations(error: ProgrammingError) -> bool:
    """A table may also be missing by a fault of ours, which must be seen."""
    if getattr(error.__cause__, "sqlstate", "") not in MISSING:
        return False
    connections.close_all()
    try:
        executor = MigrationExecutor(connection)
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError:
        return False
