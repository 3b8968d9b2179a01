"""A database with Supabase's roles and default privileges: what browsers can read, write and call after migrating."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from accessa.checks.database import check_client_access
from accessa.embedded_postgres.server import EmbeddedServer

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
ANA, BEN = uuid4(), uuid4()
ROLES = """
    CREATE ROLE anon NOLOGIN;
    CREATE ROLE authenticated NOLOGIN;
    CREATE ROLE service_role NOLOGIN BYPASSRLS;
    GRANT authenticated TO accessa_app WITH INHERIT FALSE, SET TRUE;
"""
AUTH_SCHEMA = """
    CREATE SCHEMA auth;
    CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS
        $$ SELECT (current_setting('request.jwt.claims', true)::jsonb ->> 'sub')::uuid $$;
    GRANT USAGE ON SCHEMA auth TO anon, authenticated, service_role, accessa_app;
    GRANT USAGE ON SCHEMA public TO anon, authenticated, service_role;
"""
DEFAULT_PRIVILEGES = "".join(
    f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON {kind} TO anon, authenticated, service_role;"
    for kind in ("TABLES", "FUNCTIONS", "SEQUENCES")
)
OURS = "NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = o.oid AND d.deptype = 'e')"
TABLES = f"""
    SELECT relname, EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = o.oid) FROM pg_class o
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND {OURS} ORDER BY 1"""
SEQUENCES = f"""
    SELECT relname FROM pg_class o WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' AND {OURS}"""
FUNCTIONS = f"""
    SELECT proname, format('SELECT %I(%s)', proname, (
        SELECT string_agg('NULL::' || type::regtype, ', ') FROM unnest(proargtypes) type))
    FROM pg_proc o WHERE pronamespace = 'public'::regnamespace AND {OURS} ORDER BY 1"""
# Whatever they may hold: these tables are here to be read by the wrong people.
DROP_CONSTRAINTS = """
    SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
    WHERE contype IN ('c', 'f') AND connamespace = 'public'::regnamespace"""
REQUIRED_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attidentity = ''
        AND (attnotnull AND NOT atthasdef OR attname = 'user_id')"""
VALUES = {
    "uuid": "gen_random_uuid()",
    "text": "md5(random()::text)",
    "character varying": "md5(random()::text)",
    "timestamp with time zone": "now()",
    "date": "now()",
    "boolean": "false",
    "vector": "array_fill(0.1::real, ARRAY[1536])",
    "bytea": "''",
}


def _value(kind: str) -> str:
    return VALUES.get(kind.partition("(")[0], "'{}'" if kind.endswith(("[]", "json", "jsonb")) else "'1'")


class Database:
    def __init__(self, connection: Connection[Any]) -> None:
        self.connection = connection
        self.tables: dict[str, bool] = dict(connection.execute(TABLES).fetchall())  # and whether tenants read it

    def run(self, role: str, sql: str, tenant: UUID = ANA) -> list[Any]:
        """Run a statement as a browser's session does, and undo it. Raises ``InsufficientPrivilege``."""
        with self.connection.transaction(force_rollback=True):
            claims = json.dumps({"sub": str(tenant), "role": role})
            self.connection.execute(
                "SELECT set_config('request.jwt.claims', %s, true), set_config('role', %s, true)", [claims, role]
            )
            cursor = self.connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def is_refused(self, role: str, sql: str) -> bool:
        try:
            self.run(role, sql)
        except InsufficientPrivilege:
            return True
        return False

    def visible(self, role: str, table: str, tenant: UUID = ANA) -> int | None:
        """Return the number of rows that a role sees, None where it may not read."""
        try:
            return int(self.run(role, f"SELECT count(*) FROM {table}", tenant)[0][0])
        except InsufficientPrivilege:
            return None

    def fill(self) -> None:
        """Insert a row of each tenant into every table."""
        self.connection.execute("SET session_replication_role = replica")
        for (statement,) in self.connection.execute(DROP_CONSTRAINTS).fetchall():
            self.connection.execute(statement)
        for table in self.tables:
            columns = dict(self.connection.execute(REQUIRED_COLUMNS, [table]).fetchall())
            values = {name: f"({_value(kind)})::{kind}" for name, kind in columns.items()}
            for tenant in (ANA, BEN) if "user_id" in columns else (ANA,):
                row = values | ({"user_id": f"'{tenant}'"} if columns.get("user_id") == "uuid" else {})
                self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})")


@pytest.fixture(scope="module")
def supabase() -> Iterator[Database]:
    """Start a server for this file alone: all databases of a server share its roles."""
    folder = Path(tempfile.mkdtemp(prefix="accessa-s-", dir="/tmp"))
    server = EmbeddedServer(folder / "postgres")
    server.ensure_running()
    try:
        with psycopg.connect(make_conninfo(**server.params() | {"user": "postgres"}), autocommit=True) as superuser:
            superuser.execute("ALTER SYSTEM SET fsync = off")
            superuser.execute("SELECT pg_reload_conf()")
            superuser.execute(ROLES)
            superuser.execute(AUTH_SCHEMA)
            superuser.execute(f"SET ROLE accessa_app; {DEFAULT_PRIVILEGES} RESET ROLE")
            migrate = [sys.executable, "manage.py", "migrate", "-v0"]
            settings = {"ACCESSA_VAR": str(folder), "DATABASE_URL": "", "TENANT_ROLE": "authenticated"}
            subprocess.run(migrate, cwd=REPOSITORY, env=os.environ | settings, check=True)
            database = Database(superuser)
            database.fill()
            yield database
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)


def test_a_signed_in_browser_reads_the_users_own_rows_and_no_others(supabase: Database) -> None:
    seen = {table: supabase.visible("authenticated", table) for table in supabase.tables}

    assert seen == {table: 1 if is_tenants else None for table, is_tenants in supabase.tables.items()}
    for table in (table for table, is_tenants in supabase.tables.items() if is_tenants):
        assert supabase.run("authenticated", f"SELECT user_id FROM {table}") == [(ANA,)]
        assert supabase.visible("authenticated", table, uuid4()) == 0


def test_an_anonymous_browser_reads_no_table(supabase: Database) -> None:
    assert {supabase.visible("anon", table) for table in supabase.tables} == {None}


@pytest.mark.parametrize("role", ["anon", "authenticated"])
def test_no_browser_writes(role: str, supabase: Database) -> None:
    verbs = ("INSERT INTO {} DEFAULT VALUES", "DELETE FROM {}", "TRUNCATE {}", "SELECT 1 FROM {} FOR UPDATE")
    statements = [verb.format(table) for table in supabase.tables for verb in verbs]
    statements += [f"SELECT nextval('{name}')" for (name,) in supabase.connection.execute(SEQUENCES)]

    assert [statement for statement in statements if not supabase.is_refused(role, statement)] == []


@pytest.mark.parametrize(
    ("role", "callable_ones"), [("anon", []), ("authenticated", ["find_clients", "find_source_documents"])]
)
def test_no_browser_calls_a_function_that_is_not_for_tenants(
    role: str, callable_ones: list[str], supabase: Database
) -> None:
    functions = supabase.connection.execute(FUNCTIONS).fetchall()

    assert [name for name, call in functions if not supabase.is_refused(role, call)] == callable_ones


def test_a_table_that_is_granted_again_shows_no_rows_of_others(supabase: Database) -> None:
    with supabase.connection.transaction(force_rollback=True):
        supabase.connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO anon, authenticated")

        assert {supabase.visible("anon", table) for table in supabase.tables} == {0}
        for table, is_tenants in supabase.tables.items():
            assert supabase.visible("authenticated", table) == int(is_tenants), table


def test_the_application_and_the_service_role_read_everything(supabase: Database) -> None:
    for table in supabase.tables:
        rows = supabase.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert rows == (supabase.visible("accessa_app", table),) == (supabase.visible("service_role", table),), table
    ingestion = "SELECT has_function_privilege('service_role', 'ingestion_read(text, integer, integer)', 'EXECUTE')"
    assert supabase.connection.execute(ingestion).fetchone() == (True,)  # spec 002 §6a


EXPOSURES = {
    "nothing": ("", []),
    "a grant on a hidden table": ("GRANT SELECT ON users TO anon", ["table users is open to anon"]),
    "a grant to everybody": ("GRANT SELECT ON laws TO PUBLIC", ["table laws is open to anon, authenticated, public"]),
    "a grant on one column": ("GRANT SELECT (email) ON users TO authenticated", ["users is open to authenticated"]),
    "a write": ("GRANT UPDATE ON documents TO authenticated", ["table documents is open to authenticated"]),
    "a truncate": ("GRANT TRUNCATE ON documents TO anon", ["table documents is open to anon"]),
    "no row-level security": ("ALTER TABLE events DISABLE ROW LEVEL SECURITY", ["events is open to authenticated"]),
    "a policy for everybody": ("CREATE POLICY p ON users USING (true)", ["policy p opens the table users"]),
    "a policy for anon": ("CREATE POLICY p ON events TO anon USING (true)", ["policy p opens the table events"]),
    "a role that may become a tenant": ("GRANT authenticated TO anon", []),
}


@pytest.mark.parametrize("name", EXPOSURES)
def test_the_check_names_a_role_that_reads_too_much(name: str, supabase: Database, settings: Any) -> None:
    settings.TENANT_ROLE = "authenticated"
    change, expected = EXPOSURES[name]
    with supabase.connection.transaction(force_rollback=True), supabase.connection.cursor() as cursor:
        if change:
            supabase.connection.execute(change)

        messages = [message.msg for message in check_client_access(cursor)]  # type: ignore[arg-type]

    assert len(messages) == len(expected)
    assert all(part in message for part, message in zip(expected, messages, strict=True))
