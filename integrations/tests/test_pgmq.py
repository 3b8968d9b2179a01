"""Messages of the queue: rights, deliveries, and the message lease."""

import json
import multiprocessing
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection, transaction
from django.db.utils import DatabaseError, OperationalError, ProgrammingError

from integrations.models import IngestionJob
from integrations.sync import pgmq
from integrations.sync.pgmq import ARCHIVE, QUEUE, TABLE, Message
from jobs.claims import ClaimLost
from testing.concurrency import run_concurrently
from testing.factories import syncs

WRAPPERS = {
    "ingestion_enqueue": "'ingestion_queue', '{}'::jsonb",
    "ingestion_read": "'ingestion_queue'",
    "ingestion_delete": "'ingestion_queue', 1",
    "ingestion_archive": "'ingestion_queue', 1",
}
committing = pytest.mark.django_db(transaction=True)


def sql(statement: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []


def sent(**body: Any) -> Message:
    """Return a message that has been read once."""
    pgmq.enqueue_page(syncs.create_sync(**body))
    message = pgmq.read_message()
    assert message is not None
    return message


def lapse() -> None:
    """Let every message's time be over."""
    sql(f"UPDATE {TABLE} SET vt = clock_timestamp() - interval '1 second'")


def seconds_hidden(message: Message) -> float:
    ((left,),) = sql(f"SELECT vt - clock_timestamp() FROM {TABLE} WHERE msg_id = %s", message.msg_id)
    return float(left / timedelta(seconds=1))


# --- what it says ---------------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_a_message_comes_back_as_it_was_sent() -> None:
    body = syncs.create_sync().next_stream().next_page("after:100")

    msg_id = pgmq.enqueue_page(body)

    message = pgmq.read_message()
    assert message is not None
    assert (message.msg_id, message.read_ct, message.held, message.body) == (msg_id, 1, 0, body)
    assert (body.stream, body.page, body.page_token) == (1, 2, "after:100")
    assert 290 < seconds_hidden(message) <= 300
    assert pgmq.read_message() is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        "text",
        {},
        {"job_id": "x"},
        {"page": True},
        {"page": -1},
        {"stream": "0"},
        {"kind": "other"},
        {"page_token": 7},
        {"job_id": "no uuid"},
        {"user_id": None},
    ],
    ids=str,
)
def test_a_malformed_message_is_archived_and_the_next_is_read(payload: Any, caplog: pytest.LogCaptureFixture) -> None:
    good = syncs.create_sync()
    whole = {**good.to_json(), **payload} if isinstance(payload, dict) and payload else payload
    (strange,) = sql("SELECT ingestion_enqueue(%s, %s::jsonb)", QUEUE, json.dumps(whole))[0]
    pgmq.enqueue_page(good)

    message = pgmq.read_message()

    assert message is not None
    assert message.body == good
    assert sql(f"SELECT msg_id FROM {ARCHIVE}") == [(strange,)]
    assert str(strange) in caplog.text
    assert pgmq.read_message() is None


@pytest.mark.django_db
def test_a_malformed_message_fails_its_sync() -> None:
    body = syncs.create_sync()
    sql("SELECT ingestion_enqueue(%s, %s::jsonb)", QUEUE, json.dumps(body.to_json() | {"stream": "of another release"}))

    assert pgmq.read_message() is None

    job = IngestionJob.objects.get(pk=body.job_id)
    assert (job.status, job.error_message) == ("failed", "MESSAGE_MALFORMED")


@pytest.mark.django_db
def test_fields_of_a_newer_release_are_ignored() -> None:
    body = syncs.create_sync()
    payload = {name: value for name, value in body.to_json().items() if name != "page_token"}
    sql("SELECT ingestion_enqueue(%s, %s::jsonb)", QUEUE, json.dumps(payload | {"more": 1}))

    message = pgmq.read_message()

    assert message is not None
    assert message.body == body


@pytest.mark.django_db
def test_foreign_headers_are_ignored() -> None:
    pgmq.enqueue_page(syncs.create_sync())
    for headers in ("[]", '{"held": "3"}', '{"held": true}', "null"):
        sql(f"UPDATE {TABLE} SET headers = %s::jsonb, vt = clock_timestamp()", headers)

        message = pgmq.read_message()

        assert message is not None
        assert message.held == 0


# --- deliveries -----------------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_postponed_reads_do_not_count_as_deliveries() -> None:
    first = sent()
    pgmq.postpone_message(first, 30)
    assert 29 < seconds_hidden(first) <= 30
    lapse()
    second = pgmq.read_message()
    assert second is not None
    lapse()
    third = pgmq.read_message()
    assert third is not None
    pgmq.postpone_message(third, 0.4)
    assert 0 < seconds_hidden(third) <= 1

    lapse()

    fourth = pgmq.read_message()
    assert fourth is not None
    assert [message.deliveries for message in (first, second, third, fourth)] == [1, 1, 2, 2]
    assert (fourth.read_ct, fourth.held) == (4, 2)


@pytest.mark.django_db
def test_a_message_can_be_shown_at_once() -> None:
    message = sent()
    assert seconds_hidden(message) > 290

    pgmq.extend_visibility(message, 0)

    assert pgmq.read_message() is not None


@pytest.mark.django_db
def test_a_delayed_message_is_not_read_before() -> None:
    pgmq.enqueue_page(syncs.create_sync(), delay=60)

    assert pgmq.read_message() is None
    assert pgmq.has_messages()


# --- the fence ------------------------------------------------------------------------------------------------------
@committing
def test_an_overtaken_reader_can_write_nothing() -> None:
    overtaken = sent()
    lapse()
    reader = pgmq.read_message()
    assert reader is not None

    for write in (
        lambda: pgmq.postpone_message(overtaken, 60),
        lambda: pgmq.extend_visibility(overtaken, 60),
        lambda: pgmq.message_lease(overtaken).__enter__(),
    ):
        with pytest.raises(ClaimLost):
            write()

    assert seconds_hidden(reader) > 290
    with pgmq.message_lease(reader):
        assert pgmq.archive_message(reader)


@committing
def test_a_message_is_not_read_while_its_reader_writes() -> None:
    message = sent()
    lapse()

    with pgmq.message_lease(message):
        assert run_concurrently(pgmq.read_message) == [None]

    assert pgmq.read_message() is not None


@pytest.mark.slow
@committing
def test_the_heartbeat_does_not_wait_for_the_write_it_watches() -> None:
    message = sent()

    with pgmq.message_lease(message), pytest.raises(OperationalError, match="lock timeout"):
        run_concurrently(lambda: pgmq.extend_visibility(message, 60))


@committing
def test_a_message_outlives_a_transaction_that_fails() -> None:
    message = sent()
    sql("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
    sql(
        "CREATE CONSTRAINT TRIGGER fails AFTER UPDATE ON ingestion_jobs"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails()"
    )
    try:
        with pytest.raises(DatabaseError):
            syncs.sync_page(message)
    finally:
        sql("DROP FUNCTION fails CASCADE")

    assert sql(f"SELECT msg_id FROM {TABLE}") == [(message.msg_id,)]


@committing
def test_the_next_page_is_there_only_if_its_page_is_committed() -> None:
    with transaction.atomic():
        pgmq.enqueue_page(syncs.create_sync())
        transaction.set_rollback(True)

    assert not pgmq.has_messages()


def _reads(database: dict[str, Any], actual: Any) -> None:
    connection.settings_dict.update(database)
    connection.connection = None
    while message := pgmq.read_message():
        actual.put(message.msg_id)
    actual.put(None)


@committing
def test_two_processes_never_hold_one_message() -> None:
    ids = [pgmq.enqueue_page(syncs.create_sync(status="failed")) for _ in range(40)]
    spawn = multiprocessing.get_context("fork")
    actual: Any = spawn.Queue()
    own = dict(connection.settings_dict)
    connection.close()
    readers = [spawn.Process(target=_reads, args=(own, actual)) for _ in range(2)]

    for reader in readers:
        reader.start()
    got, left = [], len(readers)
    while left:
        msg_id = actual.get(timeout=30)
        got.append(msg_id)
        left -= msg_id is None
    for reader in readers:
        reader.join(30)

    assert sorted(filter(None, got)) == ids


# --- rights ---------------------------------------------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_tenants_role_may_call_no_wrapper(wrapper: str) -> None:
    with transaction.atomic():
        sql(f"SET LOCAL ROLE {configured.TENANT_ROLE}")
        with pytest.raises(ProgrammingError, match="permission denied for function"):
            sql(f"SELECT {wrapper}({WRAPPERS[wrapper]})")
        connection.set_rollback(True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement", [f"SELECT 1 FROM {TABLE}", f"SELECT 1 FROM {ARCHIVE}", f"SELECT pgmq.read('{QUEUE}', 1, 1)"]
)
def test_a_tenants_role_may_not_use_the_queues_schema(statement: str) -> None:
    with transaction.atomic():
        sql(f"SET LOCAL ROLE {configured.TENANT_ROLE}")
        with pytest.raises(ProgrammingError, match="permission denied for schema pgmq"):
            sql(statement)
        connection.set_rollback(True)


@pytest.mark.django_db
def test_the_wrappers_are_security_definers_with_a_fixed_search_path() -> None:
    created = sql(
        "SELECT proname, prosecdef, proconfig, has_function_privilege('public', oid, 'EXECUTE')"
        " FROM pg_proc WHERE proname LIKE 'ingestion\\_%' AND pronamespace = 'public'::regnamespace ORDER BY proname"
    )

    assert created == [(name, True, ["search_path=pg_catalog, pg_temp"], False) for name in sorted(WRAPPERS)]


@pytest.mark.django_db
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("queue", ["'another'", "'INGESTION_QUEUE'", "NULL"])
def test_a_wrapper_serves_the_one_queue_only(wrapper: str, queue: str) -> None:
    sql("SELECT pgmq.create('another')")

    with pytest.raises(DatabaseError, match="serves ingestion_queue only"), transaction.atomic():
        sql(f"SELECT {wrapper}({WRAPPERS[wrapper].replace(repr(QUEUE), queue)})")


@pytest.mark.django_db
def test_a_callers_own_functions_do_not_run_with_the_owners_rights() -> None:
    sql("CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
    sql("SET LOCAL search_path = pg_temp, public, pg_catalog")

    pgmq.enqueue_page(syncs.create_sync())

    assert pgmq.read_message() is not None


# --- the installation -----------------------------------------------------------------------------------------------
class Editor:
    connection = connection


@pytest.fixture
def migration(db: None) -> Any:
    return import_module("integrations.migrations.0003_pgmq")


def has_schema() -> bool:
    return bool(sql("SELECT to_regnamespace('pgmq') IS NOT NULL")[0][0])


def test_the_migration_is_reversible(migration: Any) -> None:
    migration.remove(None, Editor)
    assert not has_schema()

    migration.install(None, Editor)

    pgmq.enqueue_page(syncs.create_sync())
    assert pgmq.read_message() is not None


def test_a_pgmq_that_others_use_stays(migration: Any) -> None:
    sql("SELECT pgmq.create('another')")

    migration.remove(None, Editor)
    migration.install(None, Editor)

    assert sql("SELECT queue_length FROM pgmq.metrics('another')") == [(0,)]
    migration.remove(None, Editor)
    assert has_schema()


def test_a_pgmq_that_was_there_before_stays(migration: Any) -> None:
    sql("COMMENT ON SCHEMA pgmq IS NULL")

    migration.remove(None, Editor)

    assert has_schema()
    migration.install(None, Editor)
    assert not pgmq.has_messages()


def test_without_the_right_to_create_the_extension_its_sql_is_installed(migration: Any) -> None:
    migration.remove(None, Editor)
    sql("CREATE VIEW public.pg_available_extensions AS SELECT 'pgmq'::name AS name")
    sql("SET LOCAL search_path = public, pg_catalog")

    migration.install(None, Editor)

    pgmq.enqueue_page(syncs.create_sync())
    assert pgmq.read_message() is not None


def test_a_foreign_schema_named_pgmq_raises_an_error(migration: Any) -> None:
    migration.remove(None, Editor)
    sql("CREATE SCHEMA pgmq")

    with pytest.raises(Exception, match="not pgmq's"):
        migration.install(None, Editor)
