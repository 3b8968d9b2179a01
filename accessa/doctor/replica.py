"""Check of the replica (DATABASE_REPLICA_URL): reachable, a standby of this primary, in time, with the same roles."""

from collections.abc import Iterator

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections

from accessa.checks.database import ROLES, check_roles
from accessa.doctor.database import explain_connect_error
from accessa.doctor.findings import Finding, error, note, skipped, system_check_findings, warning
from accounts import read_replica

MAX_LAG_BYTES = 64 * 1024**2
READS_PRIMARY = "Until then searches read the primary."
STATE = "SELECT pg_is_in_recovery(), current_database()"


def check_replica() -> Iterator[Finding]:
    if not read_replica.is_configured():
        yield skipped("DATABASE_REPLICA_URL is not set")
        return
    replica = connections[read_replica.REPLICA]
    try:
        replica.ensure_connection()
        yield from _check_standby()
    except (DatabaseError, InterfaceError) as failure:
        reason = explain_connect_error(failure)
        yield error(
            f"The replica cannot be read: {reason}.", f"Start it, or correct DATABASE_REPLICA_URL. {READS_PRIMARY}"
        )
    finally:
        replica.close()


def _check_standby() -> Iterator[Finding]:
    with connections[read_replica.REPLICA].cursor() as cursor:
        cursor.execute(STATE)
        in_recovery, database = cursor.fetchone()
        cursor.execute(ROLES, {"tenant": settings.TENANT_ROLE})
        roles = cursor.fetchone()
    if not in_recovery:
        remedy = "Let DATABASE_REPLICA_URL lead to a streaming standby: after a failover it may name the new primary."
        yield error("The replica is not in recovery: it is a primary of its own.", f"{remedy} {READS_PRIMARY}")
        return
    lag = read_replica.lag_bytes()
    if lag is None or database != connections[DEFAULT_DB_ALIAS].settings_dict["NAME"]:
        remedy = f"Let DATABASE_REPLICA_URL name the same database of a standby of this primary. {READS_PRIMARY}"
        yield error("The replica is not a standby of this primary, or another of its databases.", remedy)
        return
    yield from system_check_findings(check_roles(*roles))
    if lag > MAX_LAG_BYTES:
        remedy = f"Look at its disk and network, and for long queries there. {READS_PRIMARY}"
        yield warning(f"The replica is {lag / 1024**2:.0f} MB of the log behind.", remedy)
    if missing := _applied(DEFAULT_DB_ALIAS) - _applied(read_replica.REPLICA):
        message = f"The replica lacks {len(missing)} of the primary's migrations."
        yield warning(message, f"Wait until it has replayed them. {READS_PRIMARY}")
    yield note(f"{lag} bytes of the log behind.")


def _applied(alias: str) -> set[tuple[str, str]]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT app, name FROM django_migrations")
        return set(cursor.fetchall())
