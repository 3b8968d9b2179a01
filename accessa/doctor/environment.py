"""What doctor must find before it looks, and leave as it was: the running serve's address, a server that slept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from accessa.doctor.database import is_made
from accessa.embedded_postgres.os_user import EmbeddedError
from accessa.embedded_postgres.server import EmbeddedServer
from accessa.server.programs import Address, published_url

UNSET = Address("127.0.0.1", 8000).url  # PUBLIC_URL's default
OTHERS = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
"""


@contextmanager
def where_it_is_served() -> Iterator[None]:
    """Without a PUBLIC_URL of one's own the running `serve` has one by its bind address: doctor's is the same."""
    before = settings.PUBLIC_URL
    if not os.environ.get("PUBLIC_URL") and before == UNSET:
        settings.PUBLIC_URL = published_url(settings.VAR) or before
    try:
        yield
    finally:
        settings.PUBLIC_URL = before


@contextmanager
def as_it_was() -> Iterator[None]:
    """Start the embedded server if it sleeps, and let it sleep again unless others have come to use it."""
    server: EmbeddedServer | None = getattr(connection, "server", None)
    started = False
    if server and is_made():
        with suppress(EmbeddedError):  # told by the check of the database
            started = server.ensure_running()
    try:
        yield
    finally:
        connection.close()
        if server and started and not _is_used(server):
            server.stop()


def _is_used(server: EmbeddedServer) -> bool:
    try:
        with psycopg.connect(make_conninfo(**server.params())) as own:
            row = own.execute(OTHERS).fetchone()
    except psycopg.Error:  # whoever stops it now
        return True
    return row is None or bool(row[0])
