"""System checks of the database: server version, pgvector, roles, what clients may read."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections
from django.db.backends.utils import CursorWrapper

OLDEST_VECTOR = (0, 8, 4)  # 0.8.2 to 0.8.4 fixed an overflow in parallel HNSW builds and corruption by vacuum
OLDEST_SERVER = 160_000  # GRANT … WITH INHERIT FALSE, SET TRUE
ROLES = """
SELECT to_regrole(%(tenant)s) IS NOT NULL,
       pg_has_role(current_user, to_regrole(%(tenant)s), 'SET'),
       (SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user),
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
       (SELECT quote_ident(current_user))
"""
VECTOR = """
SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
"""
# A role that is granted the tenant role reads what tenants read. A table without a policy is not theirs.
EXPOSED_TABLES = """
WITH client AS (
    SELECT name, CASE WHEN name <> 'public' THEN pg_has_role(name, %(tenant)s, 'USAGE') END AS is_tenant
    FROM unnest(ARRAY['public', 'anon', 'authenticated', %(tenant)s]) name
    WHERE name = 'public' OR name IN (SELECT rolname FROM pg_roles)
)
SELECT c.relname, string_agg(DISTINCT client.name, ', ')
FROM client, pg_class c
WHERE c.oid IN (SELECT to_regclass(quote_ident(name)) FROM unnest(%(tables)s::text[]) name) AND (
    has_any_column_privilege(client.name, c.oid, 'INSERT, UPDATE, REFERENCES')
    OR has_table_privilege(client.name, c.oid, 'DELETE, TRUNCATE, TRIGGER')
    OR has_any_column_privilege(client.name, c.oid, 'SELECT') AND NOT (
        coalesce(client.is_tenant, false) AND c.relrowsecurity
        AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)))
GROUP BY 1 ORDER BY 1
"""
OPEN_POLICIES = """
SELECT polname, polrelid::regclass::text FROM pg_policy
WHERE polrelid IN (SELECT to_regclass(quote_ident(name)) FROM unnest(%(tables)s::text[]) name)
    AND polroles <> ARRAY[to_regrole(%(tenant)s)::oid]
    AND polroles && ARRAY[0, to_regrole('anon')::oid, to_regrole('authenticated')::oid]
ORDER BY 2, 1
"""
STATEMENT_STATISTICS = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.proname = 'pg_stat_statements' AND has_schema_privilege(to_regrole(%(tenant)s), p.pronamespace, 'USAGE')
    AND has_function_privilege(to_regrole(%(tenant)s), p.oid, 'EXECUTE')
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
        cursor.execute(ROLES, {"tenant": settings.TENANT_ROLE})
        messages += check_roles(*(roles := cursor.fetchone()))
        return messages + list(check_client_access(cursor)) if roles[0] else messages


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
        missing.append(f"CREATE ROLE {settings.TENANT_ROLE} NOLOGIN;")
    if not may_become_client:
        missing.append(f"GRANT {settings.TENANT_ROLE} TO {role} WITH INHERIT FALSE, SET TRUE;")
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
            f"CREATE ROLE accessa_app LOGIN BYPASSRLS PASSWORD '…'; GRANT {settings.TENANT_ROLE} TO accessa_app "
            "WITH INHERIT FALSE, SET TRUE; and let it own the database.",
            id="accessa.W002",
        )


def check_client_access(cursor: CursorWrapper) -> Iterator[CheckMessage]:
    """Yield an error for each table of ours that tenants or browsers could read past the policies, or write."""
    tables = [*connections["default"].introspection.django_table_names(include_views=False), "django_migrations"]
    params = {"tenant": settings.TENANT_ROLE, "tables": tables}
    cursor.execute(EXPOSED_TABLES, params)
    for table, roles in cursor.fetchall():
        yield Error(
            f"More than a tenant's own rows of the table {table} is open to {roles}.",
            hint=f"REVOKE ALL ON {table} FROM {roles}; and to the tenants' role, if tenants read this table: "
            f"GRANT SELECT ON {table} TO {settings.TENANT_ROLE};",
            id="accessa.E004",
        )
    cursor.execute(OPEN_POLICIES, params)
    for policy, table in cursor.fetchall():
        yield Error(
            f"The policy {policy} opens the table {table} to other roles than {settings.TENANT_ROLE}.",
            hint=f"DROP POLICY {policy} ON {table};",
            id="accessa.E004",
        )
    cursor.execute(STATEMENT_STATISTICS, params)
    for (function,) in cursor.fetchall():
        yield Warning(
            "Tenants' sessions may read the statements of others in pg_stat_statements.",
            hint=f"As a superuser: REVOKE ALL ON FUNCTION {function} FROM PUBLIC, {settings.TENANT_ROLE};",
            id="accessa.W005",
        )
