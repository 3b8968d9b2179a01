"""The database itself: is it there, is it prepared, does it hold what this program expects of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor

from accessa import checks
from accessa.doctor.runner import Finding, doubtful, note, wrong
from accessa.embedded_postgres.os_user import EmbeddedError
from jobs.cluster import registry
from jobs.errors import safe_error_name

GIGABYTE = 1024**3
A_WORKER_NEEDS, A_CLUSTER_NEEDS = 3, 6  # connections: its own, its heart's, a batch's; keeper, ears, sweeps aside
SETTINGS = """
SELECT name, setting::float * CASE unit WHEN 's' THEN 1000 WHEN 'min' THEN 60000 ELSE 1 END FROM pg_settings
WHERE name IN ('max_connections', 'superuser_reserved_connections', 'statement_timeout', 'lock_timeout',
               'idle_in_transaction_session_timeout')
"""
UNVACUUMED = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    AND reloptions::text ~ 'autovacuum_enabled=(false|off|0)' ORDER BY 1
"""


def is_made() -> bool:
    """Tell whether there is a database to look at: the embedded one would be made by the first connection."""
    server = getattr(connection, "server", None)
    return server is None or (server.data / "PG_VERSION").exists()


def reachable() -> Iterator[Finding]:
    if not is_made():
        yield wrong("There is no database yet.", "Make it: manage.py serve (make serve), or manage.py migrate.")
        return
    try:
        connection.ensure_connection()
    except EmbeddedError as error:
        yield wrong(f"The embedded PostgreSQL does not start: {str(error).splitlines()[0]}", "Read its log.")
        return
    except (DatabaseError, InterfaceError) as error:
        yield wrong(f"The database cannot be reached: {_why(error)}.", "Start it, or correct DATABASE_URL.")
        return
    yield from (told(message) for message in checks.check_database(app_configs=None, databases=["default"]))
    with connection.cursor() as cursor:
        cursor.execute(checks.VECTOR)
        yield note(f"PostgreSQL {_version()}, pgvector {cursor.fetchone()[0]}.")


def _why(error: Exception) -> str:
    """Return the reason without host, user or password; libpq has no codes for most of them."""
    said = str(error).lower()
    signs = {
        "password authentication": "the password is refused",
        "no password": "it wants a password",
        "does not exist": "the database or the role does not exist",
        "refused": "nobody listens there",
        "timeout": "no answer in time",
        "could not translate": "its name is unknown",
        "resolve": "its name is unknown",
        "too many": "it has no connection left",
        "no such file": "nobody listens there",
    }
    return next((why for sign, why in signs.items() if sign in said), safe_error_name(error))


def _version() -> str:
    number = connection.connection.info.server_version
    return f"{number // 10000}.{number % 10000}"


def told(message: CheckMessage) -> Finding:
    """Turn what a system check says into a finding."""
    says, remedy = f"{message.msg} ({message.id})", str(message.hint or "")
    return wrong(says, remedy) if isinstance(message, Error) or message.is_serious() else doubtful(says, remedy)


def migrations() -> Iterator[Finding]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        first = plan[0][0]
        says = f"{len(plan)} migrations are not applied, {first.app_label}.{first.name} first."
        yield wrong(says, "Run: manage.py migrate")
    ours = {app for app, _ in executor.loader.disk_migrations}
    unknown = sorted(key for key in executor.loader.applied_migrations if key not in executor.loader.disk_migrations)
    ahead = [f"{app}.{name}" for app, name in unknown if app in ours]
    if ahead:
        says = f"The database is ahead of this program: it has {ahead[0]}."
        yield wrong(says, "Deploy the version that was migrated, here and for all workers.")


def limits() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(SETTINGS)
        found = dict(cursor.fetchall())
        cursor.execute("SELECT current_setting('autovacuum')::boolean, current_setting('track_counts')::boolean")
        vacuums = all(cursor.fetchone())
        cursor.execute(UNVACUUMED)
        unvacuumed = [name for (name,) in cursor.fetchall()]
    yield from _connections(found)
    yield from _timeouts(found)
    if not vacuums or unvacuumed:
        where = f"for {', '.join(unvacuumed)}" if vacuums else "altogether"
        remedy = "ALTER TABLE … RESET (autovacuum_enabled);" if vacuums else "ALTER SYSTEM SET autovacuum = on;"
        yield wrong(f"Autovacuum is off {where}: claims slow down with every job.", f"As a superuser: {remedy}")
    yield from _room()


def _connections(found: dict[str, Any]) -> Iterator[Finding]:
    clusters = max(registry.live_clusters().count(), 1)
    workers = max(registry.count_workers(), settings.WORKERS)
    web = int(os.environ.get("WEB_WORKERS", "2")) * int(os.environ.get("WEB_THREADS", "16"))
    needed = workers * A_WORKER_NEEDS + clusters * A_CLUSTER_NEEDS + web
    offered = int(found["max_connections"] - found["superuser_reserved_connections"])
    if needed > offered:
        says = f"{workers} workers and {web} web threads may need {needed} connections, and {offered} are offered."
        yield doubtful(says, "Raise max_connections, or lower WORKERS, WEB_WORKERS or WEB_THREADS.")


def _timeouts(found: dict[str, Any]) -> Iterator[Finding]:
    if not found["idle_in_transaction_session_timeout"]:
        yield doubtful(
            "A forgotten transaction would make every claim slower, for ever.",
            "ALTER ROLE accessa_app SET idle_in_transaction_session_timeout = '60s';",
        )
    for name in ("statement_timeout", "lock_timeout"):
        if 0 < found[name] < 10_000:
            says = f"{name} of {found[name] / 1000:g} s ends commits of large documents, and index builds."
            yield doubtful(says, f"ALTER ROLE accessa_app SET {name} = 0; the machine has limits of its own.")


def _room() -> Iterator[Finding]:
    """Only the embedded server's disk can be known from here."""
    if settings.DATABASES["default"]["ENGINE"] != checks.EMBEDDED:
        return
    free = shutil.disk_usage(settings.VAR).free
    if free < GIGABYTE:
        yield wrong(f"{free // 1024**2} MB are free for the database.", "Make room on the disk that holds ACCESSA_VAR.")
