"""Check of tenant isolation: roles and row-level security in the catalog, and rows read as another tenant."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from django.conf import settings
from django.db import ProgrammingError, connection, transaction

from accessa.doctor.findings import Finding, error, note
from accounts.rls import as_tenant
from documents.models import Document
from jobs.safe_errors import safe_error_name

TABLES = """
SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, has_table_privilege(%(role)s, c.oid, 'SELECT'),
       has_table_privilege(%(role)s, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'),
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped),
       EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)
FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1
"""
# A view reads with its owner's rights, past every policy, unless it is a security invoker.
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


def check_isolation() -> Iterator[Finding]:
    role = settings.TENANT_ROLE
    with connection.cursor() as cursor:
        cursor.execute(ROLES, [role])
        yield from _check_roles(cursor.fetchone(), role)
        cursor.execute(TABLES, {"role": role})
        tables = cursor.fetchall()
        cursor.execute(VIEWS, {"role": role})
        for (name,) in cursor.fetchall():
            remedy = f"REVOKE SELECT ON {name} FROM {role}; or ALTER VIEW {name} SET (security_invoker = true);"
            yield error(f"Tenants read the view {name} past the policies.", remedy)
    readable = []
    for name, enabled, forced, may_read, may_write, has_owner, has_policy in tables:
        if may_write:
            remedy = f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {name} FROM {role};"
            yield error(f"Tenants' role may write {name}.", remedy)
        if (may_read or has_policy) and not (enabled and forced):
            verb = "FORCE" if enabled else "ENABLE"
            yield error(
                f"Row-level security is not {'forced' if enabled else 'enabled'} on {name}.",
                f"ALTER TABLE {name} {verb} ROW LEVEL SECURITY; (and look for who switched it off)",
            )
        if may_read and has_owner:
            readable.append(name)
    yield from _read_as_stranger(readable)
    yield from _read_planted_document()
    yield note(f"({len(readable)} tables)")


def _check_roles(roles: tuple[bool, bool, bool] | None, role: str) -> Iterator[Finding]:
    if roles is None:  # the database's own check names the remedy
        yield error(f"The role {role} does not exist.", f"As a superuser: CREATE ROLE {role} NOLOGIN;")
        return
    bypasses, client_bypasses, logs_in = roles
    if not bypasses:
        yield error("The application's own role is under the tenants' policies.", "ALTER ROLE accessa_app BYPASSRLS;")
    if client_bypasses:
        yield error(f"The role {role} bypasses the policies.", f"ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS;")
    if logs_in:
        yield error(f"The role {role} may log in by itself.", f"ALTER ROLE {role} NOLOGIN;")


def _read_as_stranger(tables: list[str]) -> Iterator[Finding]:
    for table in tables:
        try:
            with rolled_back(), as_tenant(uuid4()), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = '3s'")
                cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")
                (sees_rows,) = cursor.fetchone()
        except ProgrammingError as failure:
            name = safe_error_name(failure)
            yield error(
                f"As a tenant {table} cannot be read: {name}.",
                "Run: manage.py migrate. Or TENANT_ROLE has changed since.",
            )
            continue
        if sees_rows:
            remedy = f"Drop the policy on {table} that shows them, at once."
            yield error(f"A tenant sees rows of others in {table}.", remedy)


def _read_planted_document() -> Iterator[Finding]:
    """Insert a document of Ben's and read it as Ben and as Ana. Nothing is committed."""
    ana, ben = uuid4(), uuid4()
    with rolled_back():
        document = Document.objects.create(
            document_id=uuid4(), user_id=ben, filename="doctor.pdf", mime="application/pdf", bytes_len=1,
            file_sha256=uuid4().hex, raw_path="storage://raw/doctor",
        )  # fmt: skip
        seen_by_ana, seen_by_ben = _is_visible(document, ana), _is_visible(document, ben)
    if seen_by_ana:
        remedy = "Stop the API. Then: manage.py migrate, and look at pg_policies."
        yield error("A tenant sees another tenant's document.", remedy)
    if not seen_by_ben:
        yield error(
            "A tenant does not see its own document.",
            f"GRANT SELECT ON documents TO {settings.TENANT_ROLE}; and look for the policy doc_select_self.",
        )


def _is_visible(document: Document, user_id: UUID) -> bool:
    try:
        with as_tenant(user_id):
            return Document.objects.filter(pk=document.pk).exists()
    except ProgrammingError:  # no right to read at all
        return False


@contextmanager
def rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
