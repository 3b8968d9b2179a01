"""Are tenants kept apart? By the catalog, and by reading as somebody else what was planted for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import ProgrammingError, connection, transaction

from accessa.doctor.runner import Finding, note, wrong
from accessa.doctor.schema_drift import POLICY, named_by_migrations
from accounts.rls import as_tenant
from documents.models import Document
from jobs.errors import safe_error_name

TABLES = """
SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, has_table_privilege(%(role)s, c.oid, 'SELECT'),
       has_table_privilege(%(role)s, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'),
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped)
FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1
"""
# A view reads as its owner does, past every policy, unless it is told not to.
VIEWS = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('v', 'm')
    AND has_table_privilege(%(role)s, c.oid, 'SELECT')
    AND coalesce(c.reloptions::text, '') !~ 'security_invoker=(true|on|1)' AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1
"""
ROLES = """
SELECT me.rolbypassrls OR me.rolsuper, client.rolbypassrls OR client.rolsuper, client.rolcanlogin
FROM pg_roles me, pg_roles client WHERE me.rolname = current_user AND client.rolname = %s
"""


def apart() -> Iterator[Finding]:
    role = settings.TENANT_ROLE
    with connection.cursor() as cursor:
        cursor.execute(ROLES, [role])
        yield from _roles(cursor.fetchone(), role)
        cursor.execute(TABLES, {"role": role})
        tables = cursor.fetchall()
        cursor.execute(VIEWS, {"role": role})
        for (name,) in cursor.fetchall():
            remedy = f"REVOKE SELECT ON {name} FROM {role}; or ALTER VIEW {name} SET (security_invoker = true);"
            yield wrong(f"Tenants read the view {name} past the policies.", remedy)
    protected = {name.partition(".")[0] for name in named_by_migrations(POLICY)}
    readable = []
    for name, enabled, forced, may_read, may_write, has_owner in tables:
        if may_write:
            yield wrong(
                f"Tenants' role may write {name}.", f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {name} FROM {role};"
            )
        if (may_read or name in protected) and not (enabled and forced):
            verb = "FORCE" if enabled else "ENABLE"
            yield wrong(
                f"Row-level security is not {'forced' if enabled else 'enabled'} on {name}.",
                f"ALTER TABLE {name} {verb} ROW LEVEL SECURITY; (and look for who switched it off)",
            )
        if may_read and has_owner:
            readable.append(name)
    yield from _as_a_stranger(readable)
    yield from _planted()
    yield note(f"({len(readable)} tables)")


def _roles(found: tuple[bool, bool, bool] | None, role: str) -> Iterator[Finding]:
    if found is None:  # the database's own check names the remedy
        yield wrong(f"The role {role} does not exist.", f"As a superuser: CREATE ROLE {role} NOLOGIN;")
        return
    bypasses, client_bypasses, logs_in = found
    if not bypasses:
        yield wrong("The application's own role is under the tenants' policies.", "ALTER ROLE accessa_app BYPASSRLS;")
    if client_bypasses:
        yield wrong(f"The role {role} bypasses the policies.", f"ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS;")
    if logs_in:
        yield wrong(f"The role {role} may log in by itself.", f"ALTER ROLE {role} NOLOGIN;")


def _as_a_stranger(tables: list[str]) -> Iterator[Finding]:
    """Somebody who owns nothing must see nothing, whatever there is."""
    for table in tables:
        try:
            with rolled_back(), as_tenant(uuid4()), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = '3s'")
                cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")
                (seen,) = cursor.fetchone()
        except ProgrammingError as error:
            yield wrong(f"As a tenant {table} cannot be read: {safe_error_name(error)}.", "Run: manage.py migrate")
            continue
        if seen:
            yield wrong(
                f"A tenant sees rows of others in {table}.", f"Drop the policy on {table} that shows them, at once."
            )


def _planted() -> Iterator[Finding]:
    """Plant a row of Ben's and read it as Ben and as Ana. Nothing of it is committed."""
    ana, ben = uuid4(), uuid4()
    with rolled_back():
        planted = _document(ben)
        seen_by_ana, seen_by_ben = _seen(planted, ana), _seen(planted, ben)
    if seen_by_ana:
        yield wrong(
            "A tenant sees another tenant's document.",
            "Stop the API. Then: manage.py migrate, and look at pg_policies.",
        )
    if not seen_by_ben:
        yield wrong(
            "A tenant does not see its own document.",
            f"GRANT SELECT ON documents TO {settings.TENANT_ROLE}; and look for the policy doc_select_self.",
        )


def _document(user_id: UUID) -> Document:
    return Document.objects.create(
        document_id=uuid4(), user_id=user_id, filename="doctor.pdf", mime="application/pdf", bytes_len=1,
        file_sha256=uuid4().hex, raw_path="storage://raw/doctor",
    )  # fmt: skip


def _seen(planted: Document, user_id: UUID) -> bool:
    try:
        with as_tenant(user_id):
            return Document.objects.filter(pk=planted.pk).exists()
    except ProgrammingError:  # no right to read at all
        return False


@contextmanager
def rolled_back() -> Iterator[Any]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
