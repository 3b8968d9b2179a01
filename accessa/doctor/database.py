"""Checks of the database: reachable, migrated, enough connections, timeouts, autovacuum, disk."""

import os
import shutil
from collections.abc import Iterator

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from accessa.checks.database import VECTOR, check_database
from accessa.checks.deployment import EMBEDDED
from accessa.doctor.embedded_server import database_exists
from accessa.doctor.findings import Finding, error, note, system_check_findings, warning
from accessa.embedded_postgres.installation import EmbeddedError
from jobs.cluster import live_clusters
from jobs.safe_errors import safe_error_name

GIGABYTE = 1024**3
# Connections of a worker: its own, the heartbeat's, a batch's. Of a cluster: maintenance, listener, periodic tasks.
WORKER_CONNECTIONS, CLUSTER_CONNECTIONS = 3, 6
LIMITS = """
SELECT name, setting::float * CASE unit WHEN 's' THEN 1000 WHEN 'min' THEN 60000 ELSE 1 END FROM pg_settings
WHERE name IN ('max_connections', 'superuser_reserved_connections', 'statement_timeout', 'lock_timeout',
               'idle_in_transaction_session_timeout')
"""
AUTOVACUUM = "SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean"
UNVACUUMED = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    AND reloptions::text ~ 'autovacuum_enabled=(false|off|0)' ORDER BY 1
"""
#   in libpq's message         reason, without host, user or password; most of its errors have no code
CONNECT_ERRORS = {
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


def check_connection() -> Iterator[Finding]:
    if not database_exists():
        yield error("There is no database yet.", "Make it: manage.py serve (make serve), or manage.py migrate.")
        return
    try:
        connection.ensure_connection()
    except EmbeddedError as failure:
        yield error(f"The embedded PostgreSQL does not start: {str(failure).splitlines()[0]}", "Read its log.")
        return
    except (DatabaseError, InterfaceError) as failure:
        reason = explain_connect_error(failure)
        yield error(f"The database cannot be reached: {reason}.", "Start it, or correct DATABASE_URL.")
        return
    yield from system_check_findings(check_database(app_configs=None, databases=["default"]))
    version = connection.connection.info.server_version
    with connection.cursor() as cursor:
        cursor.execute(VECTOR)
        yield note(f"PostgreSQL {version // 10000}.{version % 10000}, pgvector {cursor.fetchone()[0]}.")


def explain_connect_error(failure: Exception) -> str:
    message = str(failure).lower()
    return next((reason for sign, reason in CONNECT_ERRORS.items() if sign in message), safe_error_name(failure))


def check_migrations() -> Iterator[Finding]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        first = plan[0][0]
        message = f"{len(plan)} migrations are not applied, {first.app_label}.{first.name} first."
        yield error(message, "Run: manage.py migrate")
    yield from check_ahead(executor.loader)


def check_ahead(loader: MigrationLoader) -> Iterator[Finding]:
    on_disk = loader.disk_migrations
    apps = {app for app, _ in on_disk}
    for app, name in sorted(key for key in loader.applied_migrations or () if key not in on_disk):
        if app in apps:
            message = f"The database is ahead of this program: it has {app}.{name}."
            yield error(message, "Deploy the version that was migrated, here and for all workers.")
            return


def check_limits() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(LIMITS)
        limits = dict(cursor.fetchall())
        cursor.execute(AUTOVACUUM)
        (vacuums,) = cursor.fetchone()
        cursor.execute(UNVACUUMED)
        unvacuumed = [name for (name,) in cursor.fetchall()]
    clusters = max(live_clusters.live_clusters().count(), 1)
    workers = max(live_clusters.count_workers(), settings.WORKERS)
    web = int(os.environ.get("WEB_WORKERS", "2")) * int(os.environ.get("WEB_THREADS", "16"))
    web += settings.MCP_THREADS
    needed = workers * WORKER_CONNECTIONS + clusters * CLUSTER_CONNECTIONS + web
    offered = int(limits["max_connections"] - limits["superuser_reserved_connections"])
    if needed > offered:
        message = f"{workers} workers and {web} web threads may need {needed} connections, and {offered} are offered."
        yield warning(message, "Raise max_connections, or lower WORKERS, WEB_WORKERS, WEB_THREADS or MCP_THREADS.")
    if not limits["idle_in_transaction_session_timeout"]:
        yield warning(
            "An abandoned transaction would slow down every claim, for ever.",
            "ALTER ROLE accessa_app SET idle_in_transaction_session_timeout = '60s';",
        )
    for name in ("statement_timeout", "lock_timeout"):
        if 0 < limits[name] < 10_000:
            message = f"{name} of {limits[name] / 1000:g} s aborts commits of large documents, and index builds."
            yield warning(message, f"ALTER ROLE accessa_app SET {name} = 0; each stage has a time limit of its own.")
    if not vacuums or unvacuumed:
        where = f"for {', '.join(unvacuumed)}" if vacuums else "altogether"
        remedy = "ALTER TABLE … RESET (autovacuum_enabled);" if vacuums else "ALTER SYSTEM SET autovacuum = on;"
        yield error(f"Autovacuum is off {where}: claims slow down with every job.", f"As a superuser: {remedy}")
    if settings.DATABASES["default"]["ENGINE"] == EMBEDDED:  # the disk of another server is not visible here
        free = shutil.disk_usage(settings.VAR).free
        if free < GIGABYTE:
            message = f"{free // 1024**2} MB are free for the database."
            yield error(message, "Make room on the disk that holds ACCESSA_VAR.")
