"""Which commits of a document's way wait for the disk: those after which something is bought, or deleted elsewhere."""

from collections.abc import Iterator

import pytest
from django.db import connection

from embeddings.tests.conftest import RecordingOpenAIServer
from jobs import claims, worker
from testing.factories import JobFactory
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.personas import Person, plan_pdf

TRIGGER = """
    CREATE TABLE commits (at serial, what text, waits text);
    CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $f$
    BEGIN
        INSERT INTO commits (what, waits) VALUES (
            coalesce(to_jsonb(NEW) ->> 'code', TG_TABLE_NAME), current_setting('synchronous_commit'));
        RETURN NULL;
    END $f$;
    CREATE TRIGGER note_commit AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION note_commit();
    CREATE TRIGGER note_commit AFTER INSERT OR UPDATE ON purchases FOR EACH ROW EXECUTE FUNCTION note_commit()"""
AGAIN = """
    DROP TRIGGER note_commit ON events; DROP TRIGGER note_commit ON purchases;
    DROP FUNCTION note_commit; DROP TABLE commits"""


@pytest.fixture
def careful(transactional_db: None) -> Iterator[None]:
    """Make the session wait for the disk, as in production; the tests' server never does."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        yield
        cursor.execute("RESET synchronous_commit")


@pytest.fixture
def noted(careful: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(TRIGGER)
        yield
        cursor.execute(AGAIN)


def waiting_for_the_disk() -> list[str]:
    """Return what was committed durably, in order."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT what FROM commits WHERE waits = 'on' ORDER BY at")
        return [what for (what,) in cursor.fetchall()]


def test_what_cost_nothing_is_durable_with_the_end_of_its_job(noted: None, ana: Person) -> None:
    uploaded = ana.upload(plan_pdf("hospital care"))
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE commits")

    worker.drain()

    assert uploaded.job.state == "done"
    assert waiting_for_the_disk() == ["FINALIZED"]


def test_ledger_entries_are_committed_durably(noted: None, ana: Person, vendor: RecordingOpenAIServer) -> None:
    create_chunked_job(passage_texts(5), user_id=ana.id)

    worker.drain()

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) > 1, bool_and(waits = 'on') FROM commits WHERE what = 'purchases'")
        assert cursor.fetchone() == (True, True)


def test_asynchronous_commit_ends_with_its_transaction(careful: None, ana: Person) -> None:
    JobFactory.create(user_id=ana.id, pipeline="stages", stage="queued")
    claim = claims.claim_next("w")
    assert claim is not None
    with connection.cursor() as cursor:
        with claim.transaction(durable=False):
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("off",)

        with claim.transaction():
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on",)


@pytest.mark.django_db
def test_ingesting_keeps_prepared_statements(ana: Person) -> None:
    """After a rollback, also to a savepoint, psycopg drops every prepared statement."""
    with connection.cursor() as cursor:
        ana.ingest(plan_pdf("hospital care"))
        cursor.execute("SELECT name FROM pg_prepared_statements")
        before = {name for (name,) in cursor.fetchall()}

        ana.ingest(plan_pdf("drugs"))

        cursor.execute("SELECT name FROM pg_prepared_statements")
        after = {name for (name,) in cursor.fetchall()}
    assert before
    assert before <= after
