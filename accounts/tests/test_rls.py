"""Row-level security by itself: raw SQL in the tenant block, on every tenant table of the catalog."""

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.utils import DataError, ProgrammingError

from accounts.rls import as_tenant, fetch_as_tenant
from embeddings.search.hybrid_search import search_snapshot
from testing.factories import DocumentFactory
from testing.personas import Person, claim_at_stage, plan_pdf

pytestmark = pytest.mark.django_db

TABLES = ("documents", "upload_jobs", "events", "document_chunk_buffer", "document_chunks", "document_vector_buffer")
Count = Callable[[str], int]


def one(sql: str, *params: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()[0]


def count(table: str) -> int:
    return int(one(f"SELECT count(*) FROM {table}"))


def identity() -> tuple[str, str]:
    return one("SELECT current_user::text"), one("SELECT coalesce(current_setting('request.jwt.claims', true), '')")


@pytest.fixture
def full(ana: Person) -> Person:
    """Ana, with at least one row in each of the tenant tables: her job stands before its last write."""
    ana.upload(plan_pdf("hospital care", "drugs"))
    claim_at_stage("embeddings_buffered")
    assert all(count(table) > 0 for table in TABLES)
    return ana


@pytest.fixture
def owner(ana: Person) -> Person:
    """Ana, with one document."""
    DocumentFactory.create(user_id=ana.id)
    return ana


def query_with_claims(claims: str) -> Any:
    """Become the client role with whatever claims somebody forged."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('request.jwt.claims', %s, true), set_config('role', %s, true)",
            [claims, settings.TENANT_ROLE],
        )


NOBODY = ("", "{}", '{"sub": null}', '{"role": "service_role"}', '{"user_id": "%s"}')
GARBAGE = ("garbage", '{"sub": "garbage"}', '{"sub": ""}', "[", "7", '{"sub": "%s\' OR true --"}')
FORBIDDEN = (
    "INSERT INTO {table} DEFAULT VALUES",
    "UPDATE {table} SET user_id = user_id",
    "DELETE FROM {table}",
    "TRUNCATE {table} CASCADE",
    "SELECT 1 FROM {table} FOR UPDATE",
    "COPY {table} FROM STDIN",
    "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
    "CREATE POLICY all_of_it ON {table} USING (true)",
)


def test_the_owner_reads_her_rows_under_active_policies(full: Person) -> None:
    everything = {table: count(table) for table in TABLES}

    with as_tenant(full.id):
        assert {table: one("SELECT row_security_active(%s)", table) for table in TABLES} == dict.fromkeys(TABLES, True)
        assert {table: count(table) for table in TABLES} == everything


def test_another_tenant_reads_no_rows(full: Person) -> None:
    with as_tenant(uuid4()):
        for table in TABLES:
            assert count(table) == 0
            assert one(f"SELECT count(*) FROM {table} WHERE user_id = %s", full.id) == 0
            assert one(f"SELECT count(*) FROM {table} WHERE user_id = %s OR true", full.id) == 0


@pytest.mark.parametrize("claims", NOBODY)
def test_claims_without_a_user_read_nothing(claims: str, full: Person) -> None:
    with transaction.atomic():
        query_with_claims(claims.replace("%s", str(full.id)))
        assert {table: count(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
        transaction.set_rollback(True)


def test_without_any_claims_the_role_reads_nothing(full: Person) -> None:
    with transaction.atomic():
        one("SELECT set_config('role', %s, true)", settings.TENANT_ROLE)
        assert {table: count(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
        transaction.set_rollback(True)


@pytest.mark.parametrize("claims", GARBAGE)
def test_invalid_claims_never_read_a_row(claims: str, full: Person) -> None:
    for table in TABLES:
        with transaction.atomic():
            query_with_claims(claims.replace("%s", str(full.id)))
            try:
                with transaction.atomic():
                    assert count(table) == 0
            except DataError:
                pass
            transaction.set_rollback(True)


UNPROTECTED = """
    SELECT relname FROM pg_class c
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relrowsecurity
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')"""


def test_every_table_has_row_level_security(db: None) -> None:
    """Also those of packages: whatever a host grants on new tables shows no rows."""
    with connection.cursor() as cursor:
        cursor.execute(UNPROTECTED)
        assert cursor.fetchall() == []


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_no_verb_but_select_is_allowed_even_to_the_owner(sql: str, full: Person) -> None:
    for table in TABLES:
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"), as_tenant(full.id):
            one(sql.format(table=table))


# The block itself


def test_the_block_changes_role_and_claims_and_restores_both(owner: Person) -> None:
    before = identity()

    with as_tenant(owner.id):
        role, claims = identity()
        assert role == "accessa_client"
        assert json.loads(claims)["sub"] == str(owner.id)

    assert identity() == before == ("accessa_app", "")


def test_a_block_in_a_block_restores_the_outer_one(owner: Person) -> None:
    with as_tenant(owner.id):
        with as_tenant(uuid4()):
            assert count("documents") == 0
        assert count("documents") == 1
        assert identity()[0] == "accessa_client"

    assert identity() == ("accessa_app", "")


@pytest.mark.parametrize("sql", ["SELECT 1/0", "SELECT 'x'::uuid", "DELETE FROM documents"])
def test_an_error_in_the_block_restores_the_role(sql: str, owner: Person) -> None:
    with pytest.raises((DataError, ProgrammingError)), as_tenant(owner.id):
        one(sql)

    assert identity() == ("accessa_app", "")
    assert count("documents") == 1


def test_an_error_in_an_inner_block_restores_the_outer_one(owner: Person) -> None:
    with as_tenant(owner.id):
        with pytest.raises(DataError), as_tenant(uuid4()):
            one("SELECT 1/0")
        assert identity()[0] == "accessa_client"
        assert count("documents") == 1


def test_python_errors_and_early_returns_restore_as_well(owner: Person) -> None:
    def peek() -> int:
        with as_tenant(owner.id):
            return count("documents")

    with pytest.raises(KeyError), as_tenant(owner.id):
        raise KeyError

    assert peek() == 1
    assert identity() == ("accessa_app", "")


def test_a_reused_connection_has_no_tenant_role(ana: Person) -> None:
    for tenant in (ana.id, uuid4(), ana.id):
        with as_tenant(tenant):
            assert identity()[0] == "accessa_client"
        assert identity() == ("accessa_app", "")


IDENTITY = "SELECT current_user::text AS role, (SELECT count(*) FROM documents)::int AS documents, %(n)s::int AS n"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_fetched_statement_reads_as_the_tenant_and_leaves_nothing_behind(owner: Person, is_nested: bool) -> None:
    before = identity()
    with transaction.atomic() if is_nested else nullcontext():
        for tenant, documents in ((owner.id, 1), (uuid4(), 0), (owner.id, 1)):
            expected = {"role": "accessa_client", "documents": documents, "n": 7}
            assert fetch_as_tenant(tenant, IDENTITY, {"n": 7}) == [expected]
            assert identity()[0] == before[0]
    assert identity() == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("sql", ["SELECT 1 / %(n)s::int", "SELECT * FROM users WHERE %(n)s::int = 0", "nonsense %(n)s"])
def test_a_fetch_that_fails_leaves_nothing_behind(sql: str, owner: Person) -> None:
    before = identity()

    with pytest.raises((DataError, ProgrammingError)):
        fetch_as_tenant(owner.id, sql, {"n": 0})

    assert identity() == before
    assert connection.get_autocommit()
    assert fetch_as_tenant(owner.id, IDENTITY, {"n": 7})[0]["documents"] == 1


@pytest.mark.django_db(transaction=True)
def test_a_fetch_cannot_write(owner: Person) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        fetch_as_tenant(owner.id, "DELETE FROM documents RETURNING document_id", {})


def test_claims_of_one_caller_never_outlive_the_next(owner: Person) -> None:
    with as_tenant(owner.id):
        pass
    with as_tenant(uuid4()):
        assert count("documents") == 0


@pytest.mark.skipif(not hasattr(connection, "server"), reason="needs a superuser")
@pytest.mark.django_db(transaction=True)
def test_statement_statistics_show_no_tenants_id() -> None:
    """Where the role changes, pg_stat_statements keeps the statement's text as it was sent."""
    tenant = uuid4()
    with as_tenant(tenant), as_tenant(tenant):
        count("documents")
    fetch_as_tenant(tenant, "SELECT count(*) FROM documents", {})
    with search_snapshot(tenant):
        count("documents")

    server = connection.server  # type: ignore[attr-defined]
    params = server.params(connection.settings_dict["NAME"]) | {"user": "postgres"}
    with psycopg.connect(**params) as superuser:
        texts = superuser.execute("SELECT query FROM pg_stat_statements").fetchall()
    assert any("set_config('role'" in text for (text,) in texts)
    assert not [text for (text,) in texts if str(tenant) in text]


def test_tenants_cannot_read_statement_statistics(db: None) -> None:
    with pytest.raises(ProgrammingError, match="permission denied for function pg_stat_statements"), as_tenant(uuid4()):
        one("SELECT query FROM pg_stat_statements")


def test_claims_cannot_restore_the_application_role(owner: Person) -> None:
    forged = json.dumps({"sub": str(owner.id), "role": "accessa_app", "is_superuser": True})
    with transaction.atomic():
        query_with_claims(forged)
        assert identity()[0] == "accessa_client"
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_another_thread_is_not_inside_the_block(owner: Person) -> None:
    seen: list[tuple[str, str]] = []

    def look() -> None:
        seen.append(identity())
        connection.close()

    with as_tenant(owner.id):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(10)
        assert identity()[0] == "accessa_client"

    assert seen == [("accessa_app", "")]


@pytest.mark.django_db(transaction=True)
def test_the_block_opens_a_transaction_where_there_is_none(owner: Person) -> None:
    with as_tenant(owner.id):
        assert count("documents") == 1

    assert identity() == ("accessa_app", "")


def test_uid_reads_claims_as_supabase_does(db: None) -> None:
    user: UUID = uuid4()
    with transaction.atomic():
        query_with_claims(json.dumps({"sub": str(user)}))
        assert one("SELECT auth.uid()") == user
        transaction.set_rollback(True)
    with transaction.atomic():
        one("SELECT set_config('request.jwt.claim.sub', %s, true)", str(user))
        assert one("SELECT auth.uid()") == user
        transaction.set_rollback(True)
    assert one("SELECT auth.uid()") is None
