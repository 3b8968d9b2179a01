"""Embedded server during a run of doctor: started if it is stopped, and stopped again."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from django.db import connection
from psycopg.conninfo import make_conninfo

from accessa.embedded_postgres.installation import EmbeddedError
from accessa.embedded_postgres.server import EmbeddedServer

OTHER_CLIENTS = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
"""


def database_exists() -> bool:
    """Tell whether there is a database to check: the first connection would create the embedded one."""
    server = getattr(connection, "server", None)
    return server is None or (server.data / "PG_VERSION").exists()


@contextmanager
def embedded_server_running() -> Iterator[None]:
    """Start the embedded server if it is stopped, and stop it again unless others have connected."""
    server: EmbeddedServer | None = getattr(connection, "server", None)
    started = False
    if server and database_exists():
        with suppress(EmbeddedError):  # reported by the check of the database
            started = server.ensure_running()
    try:
        yield
    finally:
        connection.close()
        if server and started and not _has_other_clients(server):
            server.stop()


def _has_other_clients(server: EmbeddedServer) -> bool:
    try:
        with psycopg.connect(make_conninfo(**server.params())) as own:
            row = own.execute(OTHER_CLIENTS).fetchone()
    except psycopg.Error:  # somebody is stopping it
        return True
    return row is None or bool(row[0])
