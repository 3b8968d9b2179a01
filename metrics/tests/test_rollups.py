"""Rollups of known histories: each event is counted once, however often or late the task runs."""

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from jobs.unsaved_stages import MAX_EVENT_AGE_SECONDS
from metrics import distributions, event_counts, periodic
from metrics.distributions import BOUNDS
from metrics.models import MeasurementRun, MetricRollup, Resolution
from metrics.tests.event_histories import History, all_rollups, collect_again, database_time, rollups_of
from testing.cluster import wait_until
from testing.concurrency import run_concurrently

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def noon() -> datetime:
    return database_time() - timedelta(hours=3)


def smooth(at: datetime) -> History:
    return (
        History(at)
        .add(2, "CLAIMED", "queued")
        .add(3, "STAGE_DONE", "queued", pages=3)
        .add(3.5, "PARSE_REQUESTED", "job_validated")
        .add(7.5, "PARSE_STORED", "parsing")
        .add(8, "STAGE_DONE", "parsed")
        .add(8.5, "STAGE_DONE", "parse_validated")
        .add(9, "CHUNK_BUFFERED", "chunking", chunks=7)
        .add(9.5, "CHUNK_COMMITTED", "chunks_buffered", chunks=7)
        .add(10, "STAGE_DONE", "chunked")
        .log(11, "EMBED_FIRST", stage="embedding")
        .add(14, "EMBED_BUFFERED", "embedding", vectors=7)
        .add(15, "EMBED_COMMITTED", "embeddings_buffered", vectors=7)
        .add(16, "FINALIZED", "embedded", probe_seconds=0.02)
    )


def test_a_smooth_job_is_timed_by_stage_and_from_its_declaration(noon: datetime) -> None:
    smooth(noon)

    periodic.collect_metrics()

    stages, times = rollups_of("stage"), rollups_of("time_to")
    assert stages["insurance", "parsing"].total == pytest.approx(4.0)
    assert stages["insurance", "embedding"].total == pytest.approx(4.0)
    assert stages["insurance", "embedded"].total == pytest.approx(1.0)
    assert len(stages) == 11
    assert rollups_of("queue")["insurance", "queued"].total == pytest.approx(2.0)
    assert {labels[0]: figure.total for labels, figure in times.items()} == pytest.approx(
        {"parse": 7.5, "chunk": 9.5, "first_embedding": 11.0, "complete": 16.0}
    )
    assert rollups_of("pages")[()].total == 3
    assert rollups_of("passages")[()].total == 7
    assert rollups_of("probe")["ok",].total == pytest.approx(0.02)
    assert rollups_of("ended")["insurance", "done"].count == 1
    assert not rollups_of("reprocessed")


def test_failures_waits_and_dead_letters_are_counted(noon: datetime) -> None:
    (
        History(noon)
        .add(1, "CLAIMED", "queued")
        .add(2, "WAITING", "queued")
        .add(12, "DUE", "queued")
        .add(13, "CLAIMED", "queued")
        .add(14, "STAGE_DONE", "queued", pages=3)
        .log(14.5, "PARSE_PAGES_FAILED", pages=[2])
        .add(15, "RETRY_SCHEDULED", "job_validated", code="VENDOR_UNREACHABLE")
        .add(18, "DUE", "job_validated")
        .add(19, "CLAIMED", "job_validated")
        .add(39, "LEASE_EXPIRED", "job_validated")
        .add(40, "CLAIMED", "job_validated")
        .add(42, "DLQ_MOVED", "job_validated", code="VENDOR_REFUSED")
    )

    periodic.collect_metrics()

    assert {labels: figure.count for labels, figure in rollups_of("retried").items()} == {
        ("job_validated", "VENDOR_UNREACHABLE"): 1,
        ("job_validated", "WORKER_LOST"): 1,
    }
    assert {labels: figure.count for labels, figure in rollups_of("failed").items()} == {
        ("job_validated", "VENDOR_REFUSED"): 1
    }
    parked, queue = rollups_of("parked"), rollups_of("queue")
    assert parked["insurance", "queued"].total == pytest.approx(10.0)
    assert parked["insurance", "job_validated"].total == pytest.approx(3.0)
    assert queue["insurance", "queued"].total == pytest.approx(2.0)
    assert queue["insurance", "job_validated"].total == pytest.approx(2.0)
    assert rollups_of("tried")["insurance",].total == pytest.approx(1 + 1 + 1 + 20 + 2)
    assert rollups_of("ended")["insurance", "failed"].count == 1
    assert rollups_of("reprocessed")["insurance",].count == 1


def test_a_requeue_days_later_is_no_slow_job(noon: datetime) -> None:
    job = History(noon).add(1, "CLAIMED", "embedded").add(2, "DLQ_MOVED", "embedded", code="X")
    job.add(3600, "REQUEUED", "embedded", by="somebody").add(3601, "CLAIMED", "embedded").add(
        3602, "FINALIZED", "embedded"
    )

    periodic.collect_metrics()

    assert not rollups_of("time_to")
    assert rollups_of("queue")["insurance", "embedded"].peak == pytest.approx(1.0)
    assert rollups_of("requeued")["embedded",].count == 1


def test_a_cancelled_job_has_not_failed(noon: datetime) -> None:
    History(noon).add(1, "CANCELLED", "queued", by="somebody")

    periodic.collect_metrics()

    assert rollups_of("ended")["insurance", "let_go"].count == 1
    assert not rollups_of("failed")


def test_a_second_run_counts_nothing_twice(noon: datetime) -> None:
    smooth(noon)
    collect_again()
    before = all_rollups()

    collect_again()

    assert all_rollups() == before


def test_a_history_counted_in_parts_is_the_same(noon: datetime) -> None:
    smooth(noon)
    periodic.collect_metrics()
    whole = rounded()
    MetricRollup.objects.all().delete()
    MeasurementRun.objects.filter(pk=periodic.MOVES).update(counted_until=noon - timedelta(seconds=1))

    for _ in range(12):
        periodic.count_next_step(timedelta(seconds=1.7))

    assert rounded() == whole


def rounded() -> list[Any]:
    return [(*row[:5], round(row[5], 6), round(row[6], 6), *row[7:]) for row in all_rollups()]


def test_one_run_catches_up_after_days(noon: datetime) -> None:
    for days in (20, 2, 0):
        smooth(noon - timedelta(days=days))

    periodic.collect_metrics()

    assert rollups_of("ended")["insurance", "done"].count == 3
    assert sum(figure.count for figure in MetricRollup.objects.filter(metric="ended", resolution=Resolution.DAY)) == 3
    assert (
        MetricRollup.objects.filter(metric="ended", resolution=Resolution.MINUTES).count() == 1
    )  # the others would be forgotten


def test_concurrent_runs_count_everything_once(noon: datetime) -> None:
    smooth(noon)
    smooth(noon + timedelta(minutes=10))

    run_concurrently(*[periodic.collect_metrics] * 4)

    assert rollups_of("ended")["insurance", "done"].count == 2
    assert rollups_of("stage")["insurance", "parsing"].count == 2


def test_counts_outlive_the_document(noon: datetime) -> None:
    job = smooth(noon)
    periodic.collect_metrics()
    before = all_rollups()

    job.document.delete()
    collect_again()

    assert all_rollups() == before


@pytest.mark.slow
def test_events_of_open_transactions_are_waited_for() -> None:
    periodic.collect_metrics()
    with transaction.atomic():
        History(database_time())
        time.sleep(MAX_EVENT_AGE_SECONDS + 1.2)  # longer than what is left for unsaved stages, clocks and snapshots
        run_concurrently(periodic.collect_metrics)
        until = database_time()

    wait_until(lambda: event_counts.visibility_horizon()[1] > until, seconds=10)
    periodic.collect_metrics()

    assert rollups_of("declared")["insurance",].count == 1


def test_an_empty_database_is_measured_as_empty() -> None:
    collect_again()

    assert all_rollups() == []
    assert MeasurementRun.objects.get(pk=periodic.STANDING).snapshot["standing"]["queued"] == 0


def test_expired_rollups_are_deleted_and_days_stay(noon: datetime) -> None:
    smooth(noon)
    periodic.collect_metrics()
    MetricRollup.objects.exclude(resolution=Resolution.EVER).update(starts_at=F("starts_at") - timedelta(days=100))

    collect_again()

    spans = set(MetricRollup.objects.filter(metric="ended").values_list("resolution", flat=True))
    assert spans == {Resolution.DAY, Resolution.EVER}


@pytest.mark.parametrize(
    ("seconds", "share", "expected"),
    [([], 0.5, None), ([0.2] * 10, 0.5, 0.15), ([1.0, 1.0, 1.0, 50.0], 0.99, 49.2), ([90_000.0], 0.95, None)],
)
def test_a_percentile_lies_in_its_bucket(seconds: list[float], share: float, expected: float | None) -> None:
    counts, peak = distributions.bucket_counts(seconds), max(seconds, default=0.0)
    estimate = distributions.Distribution(len(seconds), sum(seconds), peak, counts).percentile(share)

    if expected is None and seconds:
        assert estimate is not None
        assert 14_400 < estimate <= 90_000
    else:
        assert estimate == (None if expected is None else pytest.approx(expected, rel=0.05))


def test_events_and_jobs_are_joined_without_a_nested_loop() -> None:
    """The planner takes the events since the last count for a few: the loop took nine seconds for 3,456 of them."""
    now = database_time()
    with connection.cursor() as cursor:
        params: dict[str, Any] = {"since": now, "until": now, "bounds": [-bound for bound in reversed(BOUNDS)]}
        cursor.execute(f"EXPLAIN {event_counts.COUNT}", params)
        plan = [line for (line,) in cursor.fetchall()]

    assert any("Full Join" in line for line in plan), plan
