"""Row-level security, the second layer of tenancy: tenant reads run as the database's client role, under policies."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.migrations import RunSQL
from psycopg.rows import dict_row

from accounts import prepared_statements
from accounts.prepared_statements import Row

# In a SELECT list; until the transaction ends.
SET_TENANT_ROLE = "set_config('request.jwt.claims', %s, true), set_config('role', %s, true)"
ENTER_TENANT_ROLE = f"""
    SELECT current_setting('role'), coalesce(current_setting('request.jwt.claims', true), ''), {SET_TENANT_ROLE}"""
RESTORE_ROLE = "SELECT set_config('role', %s, true), set_config('request.jwt.claims', %s, true)"


def tenant_role_params(user_id: UUID) -> list[str]:
    """Return the parameters of ``SET_TENANT_ROLE``: the tenant's claims and the client role."""
    return [json.dumps({"sub": str(user_id), "role": "authenticated"}), settings.TENANT_ROLE]


class BoundCursor(psycopg.Cursor[Any]):
    """Sends parameters apart from the SQL; Django's own cursor writes them into it.

    pg_stat_statements shows the text of a statement that changes the role as it was sent, to every tenant's session.
    """

    def execute(self, query: Any, params: Any = None, **_: Any) -> Self:
        return super().execute(query, params, prepare=False)  # Django's log has no text of a prepared statement


def bound_cursor() -> CursorWrapper:
    raw: Any = BoundCursor(connection.connection)
    return connection.make_debug_cursor(raw) if connection.queries_logged else connection.make_cursor(raw)


@contextmanager
def as_tenant(user_id: UUID) -> Iterator[None]:
    """Read as ``user_id``. Evaluate querysets inside: a lazy one would run later, past the policies.

    Role and claims last until the transaction ends. Within a caller's transaction they are restored on leaving, nested
    or not; after an exception the rollback to the savepoint restores them.
    """
    is_outermost = connection.get_autocommit()
    with transaction.atomic():
        if is_outermost:
            # One round trip with BEGIN, which psycopg sends before the first statement.
            with connection.wrap_database_errors, connection.connection.pipeline(), bound_cursor() as cursor:
                cursor.execute(f"SELECT {SET_TENANT_ROLE}", tenant_role_params(user_id))
            yield
            return
        with bound_cursor() as cursor:
            cursor.execute(ENTER_TENANT_ROLE, tenant_role_params(user_id))
            role, outer_claims, *_ = cursor.fetchone()
            yield
            cursor.execute(RESTORE_ROLE, [role, outer_claims])


def fetch_as_tenant(user_id: UUID, sql: str, params: Mapping[str, Any]) -> list[Row]:
    """Return the rows of one prepared statement that reads as ``user_id``, with its transaction in one round trip."""
    if not connection.get_autocommit():
        with as_tenant(user_id):
            return prepared_statements.execute(sql, params)
    connection.ensure_connection()
    raw = connection.connection
    with connection.wrap_database_errors, raw.pipeline(), raw.transaction(), bound_cursor() as role:
        role.execute(f"SELECT {SET_TENANT_ROLE}", tenant_role_params(user_id))
        rows = psycopg.Cursor(raw, row_factory=dict_row).execute(sql, params, prepare=True)
    return rows.fetchall()


# Supabase grants all rights on each new object of the schema public to its roles of browsers.
_REVOKE = """
DO $revoke$ DECLARE object text; BEGIN
    FOR object IN {objects} LOOP
        EXECUTE 'REVOKE ALL ON ' || object || ' FROM ' || concat_ws(', ', 'PUBLIC', (
            SELECT string_agg(quote_ident(rolname), ', ') FROM pg_roles
            WHERE rolname IN ('anon', 'authenticated', '{role}')));
    END LOOP;
END $revoke$;
"""
_TABLE_AND_SEQUENCES = """
    SELECT 'TABLE {table}' UNION ALL
    SELECT 'SEQUENCE ' || s.oid::regclass FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = d.classid AND d.refobjid = '{table}'::regclass
"""


def revoke_table(table: str) -> str:
    """Return SQL that takes all rights on a table and its sequences from tenants and browsers."""
    return _REVOKE.format(objects=_TABLE_AND_SEQUENCES.format(table=table), role=settings.TENANT_ROLE)


def revoke_function(signature: str) -> str:
    """Return SQL that takes the right to execute a function from tenants and browsers."""
    return _REVOKE.format(objects=f"SELECT 'FUNCTION {signature}'", role=settings.TENANT_ROLE)


def enable_rls(table: str, policy: str, *, columns: Sequence[str] = ()) -> RunSQL:
    """Return the migration operation that forces row-level security: users read only their own rows.

    With ``columns`` they read these alone.
    """
    readable = f"({', '.join(columns)})" if columns else ""
    return RunSQL(
        f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY {policy} ON {table} FOR SELECT TO {settings.TENANT_ROLE}
            USING (user_id = (SELECT auth.uid()));
        {revoke_table(table)}
        GRANT SELECT {readable} ON {table} TO {settings.TENANT_ROLE};
        """,
        f"""
        REVOKE ALL ON {table} FROM {settings.TENANT_ROLE};
        DROP POLICY {policy} ON {table};
        ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;
        ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
        """,
    )


def hide_tables(*tables: str) -> RunSQL:
    """Return the migration operation that hides tables from clients: row-level security, no policy, no grants.

    Not forced: the owner goes on reading them even without BYPASSRLS.
    """
    return RunSQL(
        "".join(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; {revoke_table(table)}" for table in tables),
        "".join(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;" for table in tables),
    )


def hide_functions(*functions: str) -> RunSQL:
    """Return the migration operation that lets no client execute the functions."""
    return RunSQL("".join(revoke_function(name) for name in functions), RunSQL.noop)
