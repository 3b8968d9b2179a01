"""Three retries after 3, 6 and 12 seconds, then a dead letter; contents of the stored error."""

import logging
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import Settings

from jobs import claims, services, worker
from jobs.models import Event, UploadJob
from jobs.outcomes import Retryable
from jobs.retry_policy import retry_delay
from testing.error_codes import error_code
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db
SECRET = "123-45-6789"


@pytest.fixture(autouse=True)
def _in_one_go(settings: Settings) -> None:
    settings.JOBS_DRAIN_SECONDS = 0.2


def make_due(job: UploadJob) -> None:
    """Let the pause pass."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET run_after = clock_timestamp() WHERE job_id = %s", [job.pk])
    assert services.requeue_due_and_expired() == 1


def run_and_reload(job: UploadJob) -> UploadJob:
    worker.drain()
    job.refresh_from_db()
    return job


def pause_seconds(job: UploadJob) -> timedelta:
    """Return the pause in the row, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_after - updated_at FROM upload_jobs WHERE job_id = %s", [job.pk])
        seconds: timedelta = cursor.fetchone()[0]
    return seconds


def test_retries_after_3_6_and_12_seconds_then_a_dead_letter(ana: UUID) -> None:
    job = JobFactory.create(user_id=ana, pipeline="fail")

    for attempt, seconds in enumerate((3, 6, 12), start=1):
        assert run_and_reload(job).state == "retryable"
        assert (job.attempts, job.retry_count) == (attempt, attempt)
        assert pause_seconds(job) == pytest.approx(timedelta(seconds=seconds), abs=timedelta(milliseconds=100))
        make_due(job)

    assert run_and_reload(job).state == "deadletter"
    assert job.last_error == {
        "code": "ALWAYS_FAILS",
        "detail": "This stage always fails.",
        "stage": "embedded",
        "attempt": 4,
    }
    assert job.status == "failed_embedding"
    codes = Event.objects.filter(type__in=["retry", "error"]).order_by("ts").values_list("code", flat=True)
    assert list(codes) == ["RETRY_SCHEDULED"] * 3 + ["DLQ_MOVED"]


def test_retry_after_of_a_vendor_extends_the_delay() -> None:
    assert retry_delay(1, floor=40) == timedelta(seconds=40)
    assert retry_delay(3, floor=5) == timedelta(seconds=12)


def test_a_permanent_failure_is_a_dead_letter_at_once(ana: UUID) -> None:
    job = run_and_reload(JobFactory.create(user_id=ana, pipeline="refuse"))

    assert (job.state, job.attempts) == ("deadletter", 1)
    assert job.last_error is not None
    assert job.last_error["code"] == "NEVER_GOOD"


def test_a_bug_is_retried_and_its_frames_are_kept_for_staff(ana: UUID, caplog: pytest.LogCaptureFixture) -> None:
    job = JobFactory.create(user_id=ana, pipeline="crash", payload={"ssn": SECRET})

    with caplog.at_level(logging.DEBUG):
        run_and_reload(job)

    assert (job.state, job.attempts) == ("retryable", 1)
    assert job.last_error is not None
    assert job.last_error["code"] == "internal"
    assert job.traceback is not None
    assert "in crash" in job.traceback
    assert "RuntimeError" in job.traceback
    written = "".join([str(job.last_error), job.traceback, caplog.text, str(list(Event.objects.values()))])
    assert SECRET not in written


def test_a_database_error_keeps_its_code_and_not_its_values(ana: UUID, caplog: pytest.LogCaptureFixture) -> None:
    job = run_and_reload(JobFactory.create(user_id=ana, pipeline="violate", payload={"ssn": SECRET}))

    assert job.traceback is not None
    assert "UniqueViolation 23505" in job.traceback
    assert SECRET not in f"{job.traceback}{job.last_error}{caplog.text}"


def test_a_named_failure_keeps_no_traceback(ana: UUID) -> None:
    assert run_and_reload(JobFactory.create(user_id=ana, pipeline="fail")).traceback is None


def test_a_wait_costs_no_attempt(ana: UUID) -> None:
    job = JobFactory.create(user_id=ana, pipeline="wait")

    for _ in range(5):
        assert run_and_reload(job).state == "queued"
        assert (job.attempts, job.wait_reason) == (0, "waiting_for_nothing")
        assert pause_seconds(job) == pytest.approx(timedelta(seconds=60), abs=timedelta(milliseconds=100))
        make_due(job)


def test_a_release_costs_no_attempt(ana: UUID) -> None:
    job = JobFactory.create(user_id=ana, pipeline="fail", attempts=2)
    claim = claims.claim_next("w")
    assert claim is not None
    assert claim.job.attempts == 3

    claim.move("release")

    job.refresh_from_db()
    assert (job.state, job.attempts) == ("queued", 2)


@pytest.mark.parametrize(
    ("attempts", "state", "code"),
    [
        (1, "queued", "LEASE_EXPIRED"),
        (3, "queued", "LEASE_EXPIRED"),
        (4, "deadletter", "DLQ_MOVED"),
    ],
)
def test_a_lost_worker_counts_as_an_attempt(attempts: int, state: str, code: str) -> None:
    job = JobFactory.create(state="working", attempts=attempts, lease_until="2020-01-01T00:00Z")

    services.requeue_due_and_expired()

    job.refresh_from_db()
    assert (job.state, job.attempts) == (state, attempts)
    assert job.last_error is not None
    assert job.last_error["code"] == "WORKER_LOST"
    assert Event.objects.get().code == code


def test_a_worker_lost_to_overload_costs_no_attempt() -> None:
    job = JobFactory.create(state="working", attempts=4, overloaded=True, overloads=2, lease_until="2020-01-01T00:00Z")

    services.requeue_due_and_expired()

    job.refresh_from_db()
    assert (job.state, job.attempts, job.overloads, job.last_error) == ("queued", 3, 3, None)
    assert Event.objects.get().code == "OVERLOADED"


@pytest.mark.parametrize(("attempts", "state"), [(1, "queued"), (4, "deadletter")])
def test_after_ten_releases_overload_costs_an_attempt_too(attempts: int, state: str) -> None:
    lost = {"state": "working", "overloaded": True, "lease_until": "2020-01-01T00:00Z"}
    job = JobFactory.create(**lost, attempts=attempts, overloads=10)

    services.requeue_due_and_expired()

    job.refresh_from_db()
    assert (job.state, job.attempts, job.overloads) == (state, attempts, 10)
    assert job.last_error is not None
    assert job.last_error["code"] == "WORKER_LOST"


def test_a_new_claim_is_not_overloaded_and_keeps_the_count(ana: UUID) -> None:
    JobFactory.create(user_id=ana, pipeline="stages", stage="queued", overloaded=True, overloads=2)
    claim = claims.claim_next("w")
    assert claim is not None

    claim.advance()

    assert (claim.job.overloaded, claim.job.overloads) == (False, 2)


def test_a_job_whose_lease_is_in_force_is_left_alone() -> None:
    job = JobFactory.create(state="working", attempts=4)

    assert services.requeue_due_and_expired() == 0

    job.refresh_from_db()
    assert job.state == "working"


def test_a_new_stage_resets_the_attempts(ana: UUID) -> None:
    job = JobFactory.create(
        user_id=ana, pipeline="stages", stage="queued", attempts=3, retry_count=3, last_error={"code": "X"}
    )
    claim = claims.claim_next("w")
    assert claim is not None

    claim.advance()

    job.refresh_from_db()
    assert (job.attempts, job.retry_count, job.last_error) == (1, 0, None)


def test_a_failure_is_shown_with_its_detail_only() -> None:
    assert str(Retryable(error_code("CODE"), "detail")) == "CODE: detail"


@pytest.mark.parametrize(("pipeline", "reason"), [("not-deployed", "CONFIGURATION"), ("full", "STORAGE_UNAVAILABLE")])
def test_infrastructure_failures_cost_no_attempt(ana: UUID, pipeline: str, reason: str) -> None:
    job = JobFactory.create(user_id=ana, pipeline=pipeline)

    run_and_reload(job)

    assert (job.state, job.wait_reason, job.attempts) == ("queued", reason, 0)
    assert job.run_after is not None
    assert job.last_error is None
