"""Row-level security, the second layer of tenancy: tenant reads run as the database's client role, under policies."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.migrations import RunSQL

ENTER_TENANT_ROLE = """
    SELECT current_setting('role'), coalesce(current_setting('request.jwt.claims', true), ''),
           set_config('request.jwt.claims', %s, true), set_config('role', %s, true)
"""
# Until the transaction ends.
SET_TENANT_ROLE = "SELECT set_config('request.jwt.claims', %s, true), set_config('role', %s, true)"
RESTORE_ROLE = "SELECT set_config('role', %s, true), set_config('request.jwt.claims', %s, true)"


def tenant_role_params(user_id: UUID) -> list[str]:
    """Return the parameters of ``SET_TENANT_ROLE``: the tenant's claims and the client role."""
    return [json.dumps({"sub": str(user_id), "role": "authenticated"}), settings.TENANT_ROLE]


@contextmanager
def as_tenant(user_id: UUID) -> Iterator[None]:
    """Read as ``user_id``. Evaluate querysets inside: a lazy one would run later, past the policies.

    Role and claims are restored on leaving, nested or not: SET LOCAL lasts until the outer transaction ends. After an
    exception the rollback to the savepoint restores them.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ENTER_TENANT_ROLE, tenant_role_params(user_id))
        role, outer_claims, *_ = cursor.fetchone()
        yield
        with connection.cursor() as leaving:
            leaving.execute(RESTORE_ROLE, [role, outer_claims])


def enable_rls(table: str, policy: str, *, readable: bool = True) -> RunSQL:
    """Return the migration operation that forces row-level security: users read only their own rows."""
    grant = f"GRANT SELECT ON {table} TO {settings.TENANT_ROLE};" if readable else ""
    return RunSQL(
        f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY {policy} ON {table} FOR SELECT TO {settings.TENANT_ROLE}
            USING (user_id = (SELECT auth.uid()));
        {grant}
        """,
        f"""
        REVOKE ALL ON {table} FROM {settings.TENANT_ROLE};
        DROP POLICY {policy} ON {table};
        ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;
        ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
        """,
    )
