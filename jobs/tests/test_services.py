"""The verbs of the machine, one by one and against each other."""

from __future__ import annotations

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


def said(work: Callable[[], object]) -> str:
    """Do it; return what it was refused with, or "done"."""
    try:
        work()
    except ApiError as refused:
        return refused.code
    return "done"


def read(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


@pytest.mark.django_db
def test_enqueue_starts_at_the_first_stage_and_says_so_in_the_same_transaction() -> None:
    document = DocumentFactory.create()

    with transaction.atomic():
        job = services.enqueue(
            pipeline="stages", user_id=document.user_id, document_id=document.pk, raw_path="x", chunks_version=""
        )
        assert (read(job).stage, read(job).state) == ("queued", "queued")
        assert Event.objects.get().code == "UPLOAD_ACCEPTED"
        transaction.set_rollback(True)

    assert not UploadJob.objects.exists()
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_bell_that_is_broken_does_not_fail_what_has_been_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.async_task", lambda _: 1 / 0)

    with transaction.atomic():
        JobFactory.create()
        services.notify_workers()

    assert UploadJob.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_jobs_declared_at_once_for_a_document_one_is_refused() -> None:
    document = DocumentFactory.create()

    def enqueue() -> str:
        columns = {"raw_path": "x", "chunks_version": ""}
        return said(
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

    assert said(lambda: services.retry(job, by="sam")) == code


@pytest.mark.django_db
def test_a_retried_job_has_all_its_tries_again() -> None:
    job = JobFactory.create(state="deadletter", attempts=4, retry_count=4, last_error={"code": "X"}, traceback="frames")

    services.retry(job, by="sam")

    job = read(job)
    assert (job.state, job.attempts, job.retry_count, job.last_error, job.traceback) == ("queued", 0, 0, None, None)
    assert job.finished_at is None
    event = Event.objects.get()
    assert (event.code, event.payload["by"]) == ("REQUEUED", "sam")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("failed_at", "goes_on_at"),
    [("embedding", "chunking"), ("chunking", "chunking"), ("parsing", "parsing")],
)
def test_a_retry_goes_back_to_the_last_stage_that_is_proven(failed_at: str, goes_on_at: str) -> None:
    job = JobFactory.create(state="deadletter", pipeline="unproven", stage=failed_at)  # nothing past chunking is proven

    assert services.retry(job, by="sam").stage == goes_on_at


@pytest.mark.django_db(transaction=True)
def test_of_two_retries_at_once_one_is_told_that_the_job_is_active() -> None:
    job = JobFactory.create(state="deadletter")

    found = sorted(run_concurrently(*[lambda: said(lambda: services.retry(job, by="sam"))] * 4))

    assert found[-1] == "done"
    assert set(found[:-1]) <= {"JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED"}
    assert Event.objects.filter(code="REQUEUED").count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_dead_jobs_of_a_document_one_comes_back() -> None:
    document = DocumentFactory.create()
    dead = JobFactory.create_batch(2, document=document, user_id=document.user_id, state="deadletter")

    found = run_concurrently(*[lambda job=job: said(lambda: services.retry(job, by="sam")) for job in dead])

    assert sorted(found) == ["JOB_ALREADY_ACTIVE", "done"]


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

    assert said(lambda: services.cancel(job, by="ana")) == "JOB_STATE_CHANGED"
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(5))
def test_of_cancelling_and_finishing_at_once_one_wins(ana: UUID, _: int) -> None:
    job = JobFactory.create(user_id=ana)
    claim = claims.claim_next("w")
    assert claim is not None

    def finish() -> str:
        try:
            claim.move("finish")
        except claims.ClaimLost:
            return "superseded"
        return "done"

    found = run_concurrently(finish, lambda: said(lambda: services.cancel(job, by="ana")))

    assert (*found, read(job).state) in [
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
def test_a_job_is_not_advanced_past_what_it_has_earned(columns: dict[str, str], code: str) -> None:
    job = JobFactory.create(**{"pipeline": "stages"} | columns)

    assert said(lambda: services.advance(job, by="sam")) == code
    assert read(job).stage == job.stage
    assert not Event.objects.exists()


@pytest.mark.django_db
def test_who_looked_before_the_job_moved_cannot_set_it_back() -> None:
    seen = JobFactory.create(pipeline="stages", stage="queued")
    for _ in range(3):
        services.advance(read(seen), by="sam")

    assert said(lambda: services.advance(seen, by="sam")) == "JOB_STATE_CHANGED"
    assert read(seen).stage == "parsed"


@pytest.mark.django_db
def test_a_parked_job_is_woken() -> None:
    job = JobFactory.create(
        pipeline="stages", stage="queued", run_after="2999-01-01T00:00Z", wait_reason="WAITING_FOR_UPLOAD"
    )

    services.wake_job(job.document_id)

    job = read(job)
    assert (job.run_after, job.wait_reason) == (None, None)
    assert Event.objects.get().code == "DUE"


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["retryable", "done", "deadletter"])
def test_waking_ends_no_penalty_and_revives_nothing(state: str) -> None:
    job = JobFactory.create(state=state)
    before = UploadJob.objects.values().get()

    services.wake_job(job.document_id)

    assert UploadJob.objects.values().get() == before


@pytest.mark.django_db
def test_a_wake_that_comes_between_the_look_and_the_wait_is_not_lost(ana: UUID) -> None:
    job = JobFactory.create(user_id=ana)
    claim = claims.claim_next("w")
    assert claim is not None

    services.wake_job(job.document_id)  # the worker has looked in vain, and has not parked the job yet
    claim.move("wait", reason="WAITING_FOR_UPLOAD", pause=timedelta(seconds=60))

    assert (read(job).state, read(job).run_after) == ("queued", None)


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

    assert read(job).run_after is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(5))
def test_a_wake_and_a_wait_at_once_leave_the_job_due(ana: UUID, _: int) -> None:
    job = JobFactory.create(user_id=ana)
    claim = claims.claim_next("w")
    assert claim is not None

    run_concurrently(
        lambda: claim.move("wait", reason="X", pause=timedelta(seconds=60)),
        lambda: services.wake_job(job.document_id),
    )

    assert (read(job).state, read(job).run_after) == ("queued", None)


@pytest.mark.django_db
def test_the_sweep_moves_what_is_due_and_nothing_before_its_time() -> None:
    parked = JobFactory.create(run_after="2020-01-01T00:00Z")
    retried = JobFactory.create(state="retryable", run_after="2020-01-01T00:00Z", attempts=2)
    later = JobFactory.create(state="retryable")

    assert services.requeue_due_and_expired() == 2

    assert {read(job).state for job in (parked, retried)} == {"queued"}
    assert read(retried).attempts == 2
    assert read(later).state == "retryable"
    assert services.requeue_due_and_expired() == 0


@pytest.mark.django_db(transaction=True)
def test_two_sweeps_at_once_move_each_job_once() -> None:
    for _ in range(20):
        JobFactory.create(run_after="2020-01-01T00:00Z")
        JobFactory.create(state="working", lease_until="2020-01-01T00:00Z")

    moved = run_concurrently(*[services.requeue_due_and_expired] * 3)

    assert sum(moved) == 40
    assert Event.objects.count() == 40


@pytest.mark.django_db
def test_a_worker_does_what_is_due_and_stops(ana: UUID) -> None:
    JobFactory.create_batch(3, user_id=ana, pipeline="stages", stage="queued")

    assert worker.drain() == 3

    assert set(UploadJob.objects.values_list("stage", "state", "total_pct")) == {("embedded", "done", 100.0)}
