"""System checks of the database: server version, pgvector, roles."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

OLDEST_VECTOR = (0, 8, 4)  # 0.8.2 to 0.8.4 fixed an overflow in parallel HNSW builds and corruption by vacuum
OLDEST_SERVER = 160_000  # GRANT … WITH INHERIT FALSE, SET TRUE
ROLES = """
SELECT to_regrole('accessa_client') IS NOT NULL,
       pg_has_role(current_user, to_regrole('accessa_client'), 'SET'),
       (SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user),
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
       (SELECT quote_ident(current_user))
"""
VECTOR = """
SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
"""


def check_database(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Run where a database is named: by `migrate` and `check --database default`."""
    if "default" not in (databases or ()):
        return []
    with connections["default"].cursor() as cursor:
        if cursor.connection.info.server_version < OLDEST_SERVER:
            return [Error("The database server is too old.", hint="Use PostgreSQL 16 or newer.", id="accessa.E003")]
        cursor.execute(VECTOR)
        messages = list(check_vector_extension(*cursor.fetchone()))
        cursor.execute(ROLES)
        return messages + list(check_roles(*cursor.fetchone()))


def check_vector_extension(installed: str | None, available: str | None) -> Iterator[CheckMessage]:
    name = connections["default"].settings_dict["NAME"]
    if installed is None:
        first = "" if available else "install pgvector 0.8.4 or newer on its server (github.com/pgvector/pgvector), "
        yield Error(
            f"The database {name!r} has no extension 'vector'.",
            hint=f"As a superuser {first}run in that database: CREATE EXTENSION vector;",
            id="accessa.E001",
        )
    elif tuple(int(part) for part in installed.split(".")) < OLDEST_VECTOR:
        yield Warning(
            f"The database {name!r} has pgvector {installed}, whose HNSW indexes can be corrupted; 0.8.4 fixes that.",
            hint="Update the server's pgvector, then run in that database: ALTER EXTENSION vector UPDATE;",
            id="accessa.W001",
        )


def check_roles(
    client_exists: bool, may_become_client: bool | None, bypasses_rls: bool, is_superuser: bool, role: str
) -> Iterator[CheckMessage]:
    missing = []
    if not client_exists:
        missing.append("CREATE ROLE accessa_client NOLOGIN;")
    if not may_become_client:
        missing.append(f"GRANT accessa_client TO {role} WITH INHERIT FALSE, SET TRUE;")
    if not bypasses_rls:
        missing.append(f"ALTER ROLE {role} BYPASSRLS;")
    if missing:
        yield Error(
            "The database's roles are not those that keep tenants apart (DESIGN §8).",
            hint="Run as a superuser: " + " ".join(missing),
            id="accessa.E002",
        )
    if is_superuser:
        yield Warning(
            "The application connects as a superuser.",
            hint="Connect as a role made by: "
            "CREATE ROLE accessa_app LOGIN BYPASSRLS PASSWORD '…'; GRANT accessa_client TO accessa_app "
            "WITH INHERIT FALSE, SET TRUE; and let it own the database.",
            id="accessa.W002",
        )
