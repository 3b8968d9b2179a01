"""Embedded PostgreSQL of `manage.py serve`: started, migrated, stopped."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command
from django.db import connection, connections


@contextmanager
def migrated_database() -> Iterator[None]:
    """Start the embedded PostgreSQL, if the database is that one, and migrate. Stop it after the block."""
    server = getattr(connection, "server", None)
    started = server.ensure_running() if server else False
    try:
        call_command("migrate", interactive=False, verbosity=0, skip_checks=False)
        connections.close_all()
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):  # an impatient second one must not leave PostgreSQL behind
            signal.signal(number, signal.SIG_IGN)
        connections.close_all()
        if server and started:
            server.stop()
