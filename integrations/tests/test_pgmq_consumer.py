"""The consumer: settling of messages, worker slots, visibility timeout, real workers."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.db.utils import DatabaseError
from pytest_django import Settings

from integrations.models import ConnectedSource, IngestionJob
from integrations.oauth.token_refresh import SourceBroken
from integrations.providers.interface import CapabilityMissing, TokenRefused
from integrations.sync import pgmq, pgmq_consumer
from integrations.sync.pgmq import ARCHIVE, TABLE, Body, Message
from jobs.cluster import maintenance, shared_state
from jobs.models import UploadJob
from jobs.outcomes import Permanent, Retryable, Wait
from testing.cluster import create_jobs, wait_until
from testing.cluster import running_cluster as running
from testing.concurrency import run_concurrently
from testing.error_codes import error_code
from testing.factories import syncs

pytestmark = pytest.mark.django_db(transaction=True)

# What the page does in a test: ``settings.INGESTION_WORK`` names ``does``.
doing: list[Callable[[Message], None]] = []


def does(message: Message) -> None:
    doing[0](message)


@pytest.fixture(autouse=True)
def _page(settings: Settings) -> Any:
    settings.INGESTION_WORK = f"{__name__}.does"
    doing[:] = [syncs.sync_page]
    yield
    doing.clear()


def works(page: Callable[[Message], None]) -> None:
    doing[:] = [page]


def fails(error: Exception) -> None:
    def page(message: Message) -> None:
        raise error

    works(page)


def turn(seconds: float = 60) -> int:
    return pgmq_consumer.drain(time.monotonic() + seconds)


def sql(statement: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []


def lapse() -> None:
    sql(f"UPDATE {TABLE} SET vt = clock_timestamp() - interval '1 second'")


def queued(**columns: Any) -> Body:
    body = syncs.create_sync(**columns)
    pgmq.enqueue_page(body)
    return body


def job(body: Body) -> IngestionJob:
    return IngestionJob.objects.get(pk=body.job_id)


def left() -> list[tuple[int, int, float]]:
    """Of each message in the queue: reads, holds, and the seconds until it is seen again."""
    rows = sql(
        "SELECT read_ct, coalesce((headers ->> 'held')::int, 0), extract(epoch FROM vt - clock_timestamp())"
        f" FROM {TABLE} ORDER BY msg_id"
    )
    return [(reads, held, float(seconds)) for reads, held, seconds in rows]


def archived() -> int:
    return int(sql(f"SELECT count(*) FROM {ARCHIVE}")[0][0])


def test_a_sync_runs_page_by_page_and_leaves_no_message() -> None:
    body = queued()

    assert turn() == syncs.PAGES

    assert (job(body).status, job(body).items_written) == ("completed", syncs.PAGES)
    assert (left(), archived(), pgmq_consumer.is_idle()) == ([], 0, True)


@pytest.mark.parametrize(
    ("error", "held", "seconds"),
    [
        (Wait(40, error_code("VENDOR_BUSY")), 1, 40),
        (Wait(0, error_code("STOPPING")), 1, 0),
        (ImproperlyConfigured("no key"), 1, 60),
        (TokenRefused(), 0, 300),
        (Retryable(error_code("VENDOR_DOWN"), "It is down."), 0, 300),
        (Retryable(error_code("VENDOR_DOWN"), "It is down.", retry_after=10), 0, 300),
        (Retryable(error_code("VENDOR_DOWN"), "It is down.", retry_after=4000), 0, 4000),
        (ValueError("a bug"), 0, 300),
    ],
    ids=str,
)
def test_a_retryable_failure_leaves_the_message_in_the_queue(error: Exception, held: int, seconds: float) -> None:
    body = queued()
    fails(error)

    pgmq_consumer.consume(_read())

    ((reads, holds, hidden),) = left()
    assert (reads, holds) == (1, held)
    assert seconds - 5 < hidden <= seconds
    assert job(body).status == "queued"
    assert archived() == 0


def _read() -> Message:
    message = pgmq.read_message()
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Permanent(error_code("NOT_ALLOWED"), "The account may not."), "NOT_ALLOWED"),
        (SourceBroken(error_code("refresh_token_invalid")), "refresh_token_invalid"),
        (CapabilityMissing("search.after"), "CAPABILITY_MISSING"),
    ],
)
def test_a_permanent_failure_archives_the_message_and_fails_the_sync(error: Exception, code: str) -> None:
    body = queued()
    fails(error)

    assert turn() == 1

    assert (job(body).status, job(body).error_message) == ("failed", code)
    assert (left(), archived()) == ([], 1)


def test_the_fifth_delivery_is_archived_without_running(settings: Settings) -> None:
    body = queued()
    tries: list[int] = []

    def page(message: Message) -> None:
        tries.append(message.read_ct)
        raise ValueError

    works(page)

    for _ in range(settings.INGESTION_MAX_DELIVERIES):
        assert turn() == 1
        lapse()

    assert tries == [1, 2, 3, 4]
    assert (job(body).status, job(body).error_message) == ("failed", "max_retries_exceeded")
    assert (left(), archived(), turn()) == ([], 1, 0)


def test_a_page_closed_by_its_last_delivery_does_not_fail_its_sync(settings: Settings) -> None:
    body = queued()
    fails(ValueError())
    for _ in range(settings.INGESTION_MAX_DELIVERIES - 1):
        turn()
        lapse()
    IngestionJob.objects.filter(pk=body.job_id).update(page=body.page + 1)  # and then its worker died

    turn()

    assert (job(body).status, archived(), left()) == ("queued", 0, [])


def test_no_number_of_holds_uses_up_the_deliveries() -> None:
    body = queued()
    fails(Wait(30, error_code("VENDOR_BUSY")))
    for _ in range(12):
        assert turn() == 1
        lapse()
    assert archived() == 0

    works(syncs.sync_page)

    assert turn() == syncs.PAGES
    assert job(body).status == "completed"


def test_a_repeated_reason_to_wait_is_noted_once_in_the_sync() -> None:
    body = queued()
    IngestionJob.objects.filter(pk=body.job_id).update(status="running")
    for error in (
        Wait(9, error_code("VENDOR_RATE_LIMITED")),
        Wait(9, error_code("VENDOR_RATE_LIMITED")),
        Retryable(error_code("AWAY"), "x"),
    ):
        fails(error)
        assert turn() == 1
        lapse()

    details = [(detail["external_id"], detail["code"]) for detail in job(body).error_details]
    page = f"page:{job(body).page}"
    assert details == [(page, "VENDOR_RATE_LIMITED"), (page, "AWAY")]
    assert job(body).items_failed == 0


def test_a_failed_commit_leaves_the_message_in_the_queue() -> None:
    body = queued()
    sql("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
    sql(
        "CREATE CONSTRAINT TRIGGER fails AFTER UPDATE OF items_written ON ingestion_jobs"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails()"
    )
    try:
        assert turn() == 1
    finally:
        sql("DROP FUNCTION fails CASCADE")

    assert (job(body).items_written, job(body).page) == (0, 0)
    assert [(reads, held) for reads, held, _ in left()] == [(1, 0)]
    lapse()
    assert turn() == syncs.PAGES
    assert job(body).items_written == syncs.PAGES


def test_a_crash_between_commit_and_delete_repeats_no_page() -> None:
    body = queued()
    syncs.sync_page(_read())
    lapse()

    turn()

    assert (job(body).status, job(body).items_written) == ("completed", syncs.PAGES)
    assert left() == []


def test_a_worker_that_lost_the_message_writes_nothing() -> None:
    body = queued()
    reads: list[int] = []

    def slow(message: Message) -> None:
        lapse()
        reads.append(_read().read_ct)
        syncs.sync_page(message)

    works(slow)

    assert turn() == 1

    assert reads == [2]
    assert job(body).items_written == 0
    assert [count for count, _, _ in left()] == [2]


@pytest.mark.parametrize("error", [Wait(5, error_code("VENDOR_BUSY")), Permanent(error_code("NOT_ALLOWED"), "No.")])
def test_a_worker_that_lost_the_message_does_not_settle_it(error: Exception) -> None:
    body = queued()

    def slow(message: Message) -> None:
        lapse()
        _read()
        raise error

    works(slow)

    turn()

    ((reads, held, hidden),) = left()
    assert (reads, held) == (2, 0)
    assert hidden > 290
    assert (job(body).status, archived()) == ("queued", 0)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_message_of_a_sync_that_has_ended_is_deleted_without_work(status: str) -> None:
    queued(status=status)
    fails(AssertionError("worked on"))

    assert turn() == 1

    assert (left(), archived()) == ([], 0)


def test_a_message_of_a_source_that_is_gone_is_deleted_without_work() -> None:
    queued()
    ConnectedSource.objects.all().delete()
    fails(AssertionError("worked on"))

    assert turn() == 1

    assert (left(), archived()) == ([], 0)


def test_a_lost_database_ends_the_drain_and_not_the_sync(caplog: pytest.LogCaptureFixture) -> None:
    body = queued()

    def cut(message: Message) -> None:
        run_concurrently(lambda: sql("SELECT pg_terminate_backend(%s)", pid))
        syncs.sync_page(message)

    pid = sql("SELECT pg_backend_pid()")[0][0]
    works(cut)

    with pytest.raises(DatabaseError):
        turn()
    connection.close()

    assert "A page failed." not in caplog.text
    assert (job(body).status, job(body).items_written) == ("queued", 0)
    assert [(reads, held) for reads, held, _ in left()] == [(1, 0)]


def test_a_drain_ends_in_time() -> None:
    queued()

    assert turn(-1) == 0

    assert [reads for reads, _, _ in left()] == [0]


def test_a_long_sync_does_not_block_other_syncs() -> None:
    bodies = [queued(), queued()]
    order: list[int] = []

    def page(message: Message) -> None:
        order.append([body.job_id for body in bodies].index(message.body.job_id))
        syncs.sync_page(message)

    works(page)

    turn()

    assert order == [0, 1] * syncs.PAGES


def test_every_page_leaves_one_line_with_ids_and_codes_only(caplog: pytest.LogCaptureFixture) -> None:
    body = queued()
    correlation = job(body).correlation_id
    fails(ValueError("Kowalski Holding"))

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as heard:
        turn()

    (line,) = [each for each in heard if each["event"] == "Page ended."]
    assert line["outcome"] == "internal"
    assert line["duration_ms"] >= 0
    assert {line["source"], line["ingestion"], line["user"], line["correlation"]} == {
        str(body.source_id),
        str(body.job_id),
        str(body.user_id),
        str(correlation),
    }
    assert "Kowalski" not in str(heard) + caplog.text


# --- slots ----------------------------------------------------------------------------------------------------------
def claimable(most: int = 9) -> int:
    with connection.cursor() as cursor:
        return pgmq_consumer.count_claimable(cursor, most=most)


@pytest.mark.parametrize(
    ("configured", "workers", "most"), [(0, 1, 1), (0, 2, 1), (0, 5, 2), (1, 8, 1), (3, 8, 3), (9, 4, 4)]
)
def test_half_of_the_workers_have_slots_by_default(
    settings: Settings, configured: int, workers: int, most: int
) -> None:
    settings.INGESTION_WORKERS, settings.WORKERS = configured, workers

    assert pgmq_consumer.slot_count() == most


def test_as_many_workers_as_there_are_slots_find_pages(settings: Settings) -> None:
    settings.INGESTION_WORKERS, settings.WORKERS = 2, 4
    for _ in range(4):
        queued()
    gate = threading.Barrier(4)

    def worker() -> bool:
        with pgmq_consumer.worker_slot() as mine:
            gate.wait(10)
            return mine

    assert sorted(run_concurrently(*[worker] * 4)) == [False, False, True, True]


def test_pages_without_a_free_slot_wake_no_worker(settings: Settings) -> None:
    settings.INGESTION_WORKERS, settings.WORKERS = 2, 4
    assert claimable() == 0
    for _ in range(4):
        queued()
    assert (claimable(), claimable(1)) == (2, 1)

    with pgmq_consumer.worker_slot():
        assert claimable() == 1
        assert run_concurrently(lambda: _taken_and_asked()) == [0]

    assert claimable() == 2


def _taken_and_asked() -> int:
    with pgmq_consumer.worker_slot() as mine:
        assert mine
        return claimable()


def test_a_slot_is_free_again_when_its_worker_is_gone() -> None:
    queued()

    def dies() -> None:
        pgmq_consumer.worker_slot().__enter__()
        connections.close_all()

    run_concurrently(dies)

    wait_until(claimable, seconds=5)


def test_without_a_due_page_no_slot_is_taken() -> None:
    with pgmq_consumer.worker_slot() as due:
        assert not due

    assert sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


# --- while a page is worked on --------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_long_page_stays_invisible_and_its_worker_alive(settings: Settings) -> None:
    settings.INGESTION_VT_SECONDS = 1
    queued()
    seen: list[object] = []
    silent: list[float] = []

    def long(message: Message) -> None:
        ends = time.monotonic() + 2.5
        while time.monotonic() < ends:
            time.sleep(0.1)
            seen.extend(filter(None, run_concurrently(pgmq.read_message)))
            silent.append(shared_state.seconds_since_claim_attempt())
        raise Wait(60, error_code("VENDOR_BUSY"))

    works(long)

    turn()

    assert seen == []
    assert max(silent) < 2
    ((reads, held, hidden),) = left()
    assert (reads, held) == (1, 1)
    assert hidden > 50  # nothing extends what has been decided about


# --- real workers ---------------------------------------------------------------------------------------------------
def of(body: Body, **columns: Any) -> bool:
    return IngestionJob.objects.filter(pk=body.job_id, **columns).exists()


@pytest.mark.slow
def test_a_killed_worker_costs_one_repeated_page_and_no_job(tmp_path: Path) -> None:
    (tmp_path / "page:items~1").touch()
    (tmp_path / "page:committed~1").touch()
    body, other = queued(), queued()
    with connection.cursor() as cursor:
        create_jobs(cursor, 20, "noop")

    with running(workers=1, ACCESSA_FAILPOINTS=tmp_path, INGESTION_WORK=syncs.WORK, INGESTION_VT_SECONDS=3):
        wait_until(lambda: of(body, status="completed") and of(other, status="completed"), seconds=40)
        wait_until(maintenance.is_idle, seconds=20)

    tries = sum(job(each).items_seen for each in (body, other))
    assert tries - 2 * syncs.PAGES in (1, 2)  # a page that is committed is begun again only while its sync goes on
    assert {job(each).items_written for each in (body, other)} == {syncs.PAGES}
    assert UploadJob.objects.filter(state="done").count() == 20
    assert archived() == 0


@pytest.mark.slow
def test_a_hung_page_kills_its_worker_and_a_stop_costs_no_delivery(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    queued()
    environment = {"INGESTION_PAGE_SECONDS": 2, "JOBS_STOP_GRACE_SECONDS": 1, "PAGED_UNTIL_GONE": gate}

    with running(workers=1, INGESTION_WORK=syncs.WORK, **environment) as workers:
        wait_until(lambda: [reads for reads, _, _ in left()] == [2], seconds=30)
        assert [held for _, held, _ in left()] == [0]  # the first try hung: that was a delivery
        code = workers.stop()

    assert code == 0
    ((reads, held, hidden),) = left()
    assert (reads, held) == (2, 1)
    assert hidden <= 0
