"""Entry point of manage.py: configuration errors, an absent database and missing migrations end as a sentence."""

import sys
from collections.abc import Sequence

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError, OperationalError, ProgrammingError, connection, connections
from django.db.migrations.executor import MigrationExecutor

MISSING_RELATION = ("42P01", "42703")  # undefined_table, undefined_column


def run_command(arguments: Sequence[str]) -> None:
    """Run a management command. Exit 1 with a sentence for a wrong setting, and a database that is away or unmigrated.

    ``--traceback`` raises the error instead.
    """
    try:
        execute_from_command_line(list(arguments))
    except ImproperlyConfigured as error:
        if "--traceback" in arguments:
            raise
        sys.exit(str(error))
    except ProgrammingError as error:
        if "--traceback" in arguments or not _needs_migrations(error):
            raise
        sys.exit("The database is not migrated: run manage.py migrate")
    except OperationalError as error:
        # The server gives its own errors a code; a connection that failed has none.
        cause = error.__cause__
        if "--traceback" in arguments or not isinstance(cause, psycopg.OperationalError) or cause.sqlstate:
            raise
        reason = str(cause).partition("\n")[0]
        sys.exit(f"The database cannot be used: {reason}\nCorrect DATABASE_URL, or start the server it names.")


def _needs_migrations(error: ProgrammingError) -> bool:
    """Tell whether migrations explain the missing relation; otherwise it is a bug."""
    if getattr(error.__cause__, "sqlstate", "") not in MISSING_RELATION:
        return False
    connections.close_all()
    try:
        executor = MigrationExecutor(connection)
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError:
        return False
