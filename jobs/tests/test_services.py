"""Services of jobs, alone and concurrently."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction

from accounts.errors import ApiError
from jobs import claims, services, worker
from jobs.models import Event, UploadJob
from testing.concurrency import run_concurrently
from testing.factories import DocumentFactory, JobFactory


def outcome_code(work: Callable[[], object]) -> str:
    """Do it; return what it was refused with, or "done"."""
    try:
        work()
    except ApiError as refused:
        return refused.code
    return "done"


def reload(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


@pytest.mark.django_db
def test_enqueue_writes_the_first_stage_and_an_event_in_one_transaction() -> None:
    document = DocumentFactory.create()

    with transaction.atomic():
        job = services.enqueue(
            pipeline="stages", user_id=document.user_id, document_id=document.pk, raw_path="x", chunks_version=""
        )
        assert (reload(job).stage, reload(job).state) == ("queued", "queued")
        assert Event.objects.get().code == "UPLOAD_ACCEPTED"
        transaction.set_rollback(True)

    assert not UploadJob.objects.exists()
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_failed_notification_does_not_fail_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.async_task", lambda _: 1 / 0)

    with transaction.atomic():
        JobFactory.create()
        services.notify_workers()

    assert UploadJob.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_jobs_of_a_document_is_rejected() -> None:
    document = DocumentFactory.create()

    def enqueue() -> str:
        columns = {"raw_path": "x", "chunks_version": ""}
        return outcome_code(
            lambda: services.enqueue(pipeline="noop", user_id=document.user_id, document_id=document.pk, **columns)
        )

    assert sorted(run_concurrently(*[enqueue] * 4)) == ["JOB_ALREADY_ACTIVE"] * 3 + ["done"]
    assert UploadJob.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("queued", "JOB_ALREADY_ACTIVE"),
        ("working", "JOB_ALREADY_ACTIVE"),
        ("retryable", "JOB_ALREADY_ACTIVE"),
        ("done", "JOB_DONE"),
        ("deadletter", "done"),
    ],
)
def test_only_a_dead_job_is_retried(state: str, code: str) -> None:
    job = JobFactory.create(state=state)

    assert outcome_code(lambda: services.retry(job, by="sam")) == code


@pytest.mark.django_db
def test_a_retried_job_has_all_its_tries_again() -> None:
    job = JobFactory.create(state="deadletter", attempts=4, retry_count=4, last_error={"code": "X"}, traceback="frames")

    services.retry(job, by="sam")

    job = reload(job)
    assert (job.state, job.attempts, job.retry_count, job.last_error, job.traceback) == ("queued", 0, 0, None, None)
    assert job.finished_at is None
    event = Event.objects.get()
    assert (event.code, event.payload["by"]) == ("REQUEUED", "sam")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("failed_at", "goes_on_at"),
    [("embedding", "chunking"), ("chunking", "chunking"), ("parsing", "parsing")],
)
def test_a_retry_starts_at_the_latest_valid_stage(failed_at: str, goes_on_at: str) -> None:
    job = JobFactory.create(state="deadletter", pipeline="unproven", stage=failed_at)  # nothing past chunking is proven

    assert services.retry(job, by="sam").stage == goes_on_at


@pytest.mark.django_db(transaction=True)
def test_one_of_concurrent_retries_succeeds() -> None:
    job = JobFactory.create(state="deadletter")

    codes = sorted(run_concurrently(*[lambda: outcome_code(lambda: services.retry(job, by="sam"))] * 4))

    assert codes[-1] == "done"
    assert set(codes[:-1]) <= {"JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED"}
    assert Event.objects.filter(code="REQUEUED").count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_of_two_dead_jobs_of_a_document_is_requeued() -> None:
    document = DocumentFactory.create()
    dead = JobFactory.create_batch(2, document=document, user_id=document.user_id, state="deadletter")

    codes = run_concurrently(*[lambda job=job: outcome_code(lambda: services.retry(job, by="sam")) for job in dead])

    assert sorted(codes) == ["JOB_ALREADY_ACTIVE", "done"]


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["queued", "working", "retryable"])
def test_an_active_job_is_cancelled(state: str) -> None:
    job = services.cancel(JobFactory.create(state=state), by="ana")

    assert (job.state, job.status) == ("deadletter", "failed_embedding")
    assert job.last_error is not None
    assert job.last_error["code"] == "CANCELLED"


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["done", "deadletter"])
def test_a_job_that_has_ended_is_not_cancelled(state: str) -> None:
    job = JobFactory.create(state=state)

    assert outcome_code(lambda: services.cancel(job, by="ana")) == "JOB_STATE_CHANGED"
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(5))
def test_concurrent_cancel_and_finish_have_one_winner(ana: UUID, _: int) -> None:
    job = JobFactory.create(user_id=ana)
    claim = claims.claim_next("w")
    assert claim is not None

    def finish() -> str:
        try:
            claim.move("finish")
        except claims.ClaimLost:
            return "superseded"
        return "done"

    codes = run_concurrently(finish, lambda: outcome_code(lambda: services.cancel(job, by="ana")))

    assert (*codes, reload(job).state) in [
        ("done", "JOB_STATE_CHANGED", "done"),
        ("superseded", "done", "deadletter"),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["queued", "retryable"])
def test_an_idle_job_is_advanced_and_is_due(state: str) -> None:
    job = JobFactory.create(state=state, pipeline="stages", stage="parsing", attempts=2)

    job = services.advance(job, by="sam")

    assert (job.stage, job.state, job.attempts, job.run_after) == ("parsed", "queued", 0, None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"state": "working", "stage": "parsing"}, "JOB_NOT_WAITING"),
        ({"state": "done"}, "JOB_NOT_WAITING"),
        ({"state": "deadletter", "stage": "parsing"}, "JOB_NOT_WAITING"),
        ({"state": "queued", "stage": "embedded"}, "JOB_NOT_WAITING"),
        ({"state": "queued", "stage": "chunking", "pipeline": "unproven"}, "INVARIANT_VIOLATED"),
    ],
)
def test_a_job_is_not_advanced_against_the_invariant(columns: dict[str, str], code: str) -> None:
    job = JobFactory.create(**{"pipeline": "stages"} | columns)

    assert outcome_code(lambda: services.advance(job, by="sam")) == code
    assert reload(job).stage == job.stage
    assert not Event.objects.exists()


@pytest.mark.django_db
def test_an_advance_from_a_stale_read_is_rejected() -> None:
    seen = JobFactory.create(pipeline="stages", stage="queued")
    for _ in range(3):
        services.advance(reload(seen), by="sam")

    assert outcome_code(lambda: services.advance(seen, by="sam")) == "JOB_STATE_CHANGED"
    assert reload(seen).stage == "parsed"


@pytest.mark.django_db
def test_a_parked_job_is_woken() -> None:
    job = JobFactory.create(
        pipeline="stages", stage="queued", run_after="2999-01-01T00:00Z", wait_reason="WAITING_FOR_UPLOAD"
    )

    services.wake_job(job.document_id)

    job = reload(job)
    assert (job.run_after, job.wait_reason) == (None, None)
    assert Event.objects.get().code == "DUE"


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["retryable", "done", "deadletter"])
def test_waking_ends_no_retry_delay_and_requeues_no_dead_letter(state: str) -> None:
    job = JobFactory.create(state=state)
    before = UploadJob.objects.values().get()

    services.wake_job(job.document_id)

    assert UploadJob.objects.values().get() == before


@pytest.mark.django_db
def test_a_wake_between_poll_and_wait_is_not_lost(ana: UUID) -> None:
    job = JobFactory.create(user_id=ana)
    claim = claims.claim_next("w")
    assert claim is not None

    services.wake_job(job.document_id)  # the worker has looked in vain, and has not parked the job yet
    claim.move("wait", reason="WAITING_FOR_UPLOAD", pause=timedelta(seconds=60))

    assert (reload(job).state, reload(job).run_after) == ("queued", None)


@pytest.mark.django_db
def test_a_wake_ends_one_wait_and_no_later_one(ana: UUID) -> None:
    job = JobFactory.create(user_id=ana)
    services.wake_job(job.document_id)

    for _ in range(2):
        claim = claims.claim_next("w")
        assert claim is not None
        services.wake_job(job.document_id)
        claim.move("wait", reason="X", pause=timedelta(seconds=60))

    claim = claims.claim_next("w")
    assert claim is not None
    claim.move("wait", reason="X", pause=timedelta(seconds=60))

    assert reload(job).run_after is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(5))
def test_concurrent_wake_and_wait_leave_the_job_due(ana: UUID, _: int) -> None:
    job = JobFactory.create(user_id=ana)
    claim = claims.claim_next("w")
    assert claim is not None

    run_concurrently(
        lambda: claim.move("wait", reason="X", pause=timedelta(seconds=60)),
        lambda: services.wake_job(job.document_id),
    )

    assert (reload(job).state, reload(job).run_after) == ("queued", None)


@pytest.mark.django_db
def test_parked_jobs_become_due_at_their_time_only() -> None:
    parked = JobFactory.create(run_after="2020-01-01T00:00Z")
    retried = JobFactory.create(state="retryable", run_after="2020-01-01T00:00Z", attempts=2)
    later = JobFactory.create(state="retryable")

    assert services.requeue_due_and_expired() == 2

    assert {reload(job).state for job in (parked, retried)} == {"queued"}
    assert reload(retried).attempts == 2
    assert reload(later).state == "retryable"
    assert services.requeue_due_and_expired() == 0


@pytest.mark.django_db(transaction=True)
def test_concurrent_maintenance_moves_each_job_once() -> None:
    for _ in range(20):
        JobFactory.create(run_after="2020-01-01T00:00Z")
        JobFactory.create(state="working", lease_until="2020-01-01T00:00Z")

    moved = run_concurrently(*[services.requeue_due_and_expired] * 3)

    assert sum(moved) == 40
    assert Event.objects.count() == 40


@pytest.mark.django_db
def test_a_drain_runs_all_due_jobs(ana: UUID) -> None:
    JobFactory.create_batch(3, user_id=ana, pipeline="stages", stage="queued")

    assert worker.drain() == 3

    assert set(UploadJob.objects.values_list("stage", "state", "total_pct")) == {("embedded", "done", 100.0)}
