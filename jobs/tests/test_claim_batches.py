"""Batches of claims: who joins, who is charged for a failure or a death, what is left when a batch ends early."""

import threading
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from django.db import DataError, OperationalError, connection
from pytest_django import Settings

from jobs import claim_batches, claim_queries, failpoints, lifecycle, services, worker
from jobs.claim_batches import ClaimBatch
from jobs.cluster import heartbeat, shared_state
from jobs.models import Event, UploadJob
from testing import stub_pipelines
from testing.cluster import wait_until
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db(transaction=True)


class Died(BaseException):
    pass


@pytest.fixture(autouse=True)
def _quick_runs(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Let the stub's jobs be known as quick, however busy the machine is."""
    settings.JOBS_DRAIN_SECONDS = 60
    worker.DrainSlice.last_user = claim_queries.NIL_UUID
    monkeypatch.setattr(claim_batches, "MAX_SECONDS", 600.0)
    monkeypatch.setattr(claim_batches, "QUICK_SECONDS", 600.0)
    monkeypatch.setitem(claim_batches._sizes, ("perform", "embedded"), 10.0)


def create_jobs(*does: str, pipeline: str = "perform", **columns: Any) -> list[UploadJob]:
    """Queue a job of a user each. The first runs alone: a drain knows nothing before it."""
    numbered = enumerate(does, start=1)
    return [
        JobFactory.create(user_id=UUID(int=n), pipeline=pipeline, payload={"does": name}, **columns)
        for n, name in numbered
    ]


def codes(job: UploadJob) -> list[str]:
    return list(Event.objects.filter(job=job).order_by("ts").values_list("code", flat=True))


def commits(code: str) -> Counter[str]:
    """Return how many events of that code each transaction wrote."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text FROM events WHERE code = %s", [code])
        return Counter(row[0] for row in cursor.fetchall())


def states(jobs: list[UploadJob]) -> list[tuple[str, int, int]]:
    rows = {job.pk: (job.state, job.attempts, job.overloads) for job in UploadJob.objects.all()}
    return [rows[job.pk] for job in jobs]


def die_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drain until a failpoint, and let the leases of the dead run out."""

    def reach(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "failpoint", reach)
        with pytest.raises(Died):
            worker.drain()
    lose_leases()


def lose_leases() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = to_timestamp(0) WHERE state = 'working'")
    services.requeue_due_and_expired()


def test_quick_jobs_of_several_users_share_a_claim_and_a_commit() -> None:
    jobs = create_jobs(*["noop"] * 5)

    assert worker.drain() == 5

    assert [codes(job) for job in jobs] == [["CLAIMED", "FINALIZED"]] * 5
    assert sorted(commits("CLAIMED").values()) == sorted(commits("FINALIZED").values()) == [1, 4]
    assert states(jobs) == [("done", 1, 0)] * 5
    assert not UploadJob.objects.filter(in_batch=True).exists()


def sizes(*runs: float) -> list[int]:
    """Return the size of the next batch after each run of a job alone."""
    batch, job = ClaimBatch(), JobFactory.create(pipeline="perform")
    after = []
    for seconds in runs:
        batch.record_run(job, seconds)
        after.append(batch.limit.most)
    return after


def test_a_batch_grows_while_jobs_are_quick_and_begins_anew_after_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_batches, "QUICK_SECONDS", 0.005)
    monkeypatch.setattr(claim_batches, "_sizes", {("perform", "embedded"): claim_batches.FIRST_SIZE})

    assert sizes(*[0.001] * 9) == [1, 1, 1, 2, 4, 8, 16, 20, 20]
    assert sizes(0.02, *[0.001] * 4) == [1, 1, 1, 1, 2]


def test_one_user_is_not_batched(ana: UUID) -> None:
    JobFactory.create_batch(4, user_id=ana, pipeline="perform")

    worker.drain()

    assert set(commits("CLAIMED").values()) == {1}


def test_a_batch_ends_before_the_first_job_that_may_not_join() -> None:
    create_jobs(*["noop"] * 3)
    (other,) = create_jobs("noop", pipeline="stages")
    UploadJob.objects.filter(pk=other.pk).update(user_id=UUID(int=4))
    (last,) = create_jobs("noop")
    UploadJob.objects.filter(pk=last.pk).update(user_id=UUID(int=5))

    worker.drain()

    order = Event.objects.filter(code="CLAIMED").order_by("ts").values_list("user_id", flat=True)
    first, *together, fourth, fifth = [user.int for user in order]
    assert (first, fourth, fifth) == (1, 4, 5)
    assert sorted(together) == [2, 3]  # one statement writes both events, in any order
    assert sorted(commits("CLAIMED").values()) == [1, 1, 1, 2]


def test_a_job_that_fails_in_a_batch_fails_alone() -> None:
    jobs = create_jobs("noop", "noop", "crash", "wait", "hold", "noop")

    worker.drain()

    assert [state for state, *_ in states(jobs)] == ["done", "done", "retryable", "queued", "done", "done"]
    assert [codes(job)[1] for job in jobs[2:5]] == ["RETRY_SCHEDULED", "WAITING", "FINALIZED"]
    assert sorted(commits("FINALIZED").values()) == [1, 1, 2]


def test_a_job_that_is_cancelled_in_a_batch_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = create_jobs(*["noop"] * 4)

    def reach(point: str) -> None:
        if point == "batch:before-commit":
            services.cancel(jobs[2], by="ana")

    monkeypatch.setattr(failpoints, "failpoint", reach)

    worker.drain()

    assert [state for state, *_ in states(jobs)] == ["done", "done", "deadletter", "done"]
    assert codes(jobs[2]) == ["CLAIMED", "CANCELLED"]


def test_a_worker_that_stops_finishes_what_has_ended_and_releases_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = create_jobs(*["noop"] * 5)

    def reach(point: str) -> None:
        if point == "batch:middle":
            monkeypatch.setattr(shared_state, "is_stopping", lambda: True)

    monkeypatch.setattr(failpoints, "failpoint", reach)

    worker.drain()

    assert states(jobs) == [("done", 1, 0)] * 2 + [("queued", 0, 0)] * 3
    assert [codes(job)[-1] for job in jobs] == ["FINALIZED"] * 2 + ["RELEASED"] * 3


def test_a_batch_that_takes_too_long_releases_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = create_jobs(*["noop"] * 4)

    def reach(point: str) -> None:
        if point == "batch:middle":
            monkeypatch.setattr(claim_batches, "MAX_SECONDS", 0.0)

    monkeypatch.setattr(failpoints, "failpoint", reach)
    monkeypatch.setattr(ClaimBatch, "end_if_slow", lambda batch: False)  # the heartbeat's thread may look at any moment

    worker.drain()

    assert [codes(job).count("RELEASED") for job in jobs] == [0, 0, 0, 1]
    assert claim_batches._sizes["perform", "embedded"] == 4.0  # two of three had begun, and the next one ended in time
    assert states(jobs) == [("done", 1, 0)] * 4


@pytest.mark.parametrize(
    ("point", "done"), [("batch:middle", 1), ("batch:before-commit", 1), ("batch:after-commit", 5)]
)
def test_a_death_in_a_batch_costs_no_attempt_and_doubles_nothing(
    point: str, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = create_jobs(*["noop"] * 5)

    die_at(point, monkeypatch)

    assert states(jobs) == [("done", 1, 0)] * done + [("queued", 0, 1)] * (5 - done)
    worker.drain()
    assert [codes(job).count("FINALIZED") for job in jobs] == [1] * 5
    assert set(commits("CLAIMED").values()) <= {1, 4}  # afterwards each alone


@pytest.mark.parametrize(("error", "left"), [(OperationalError, ("queued", 0, 1)), (DataError, ("working", 1, 0))])
def test_a_drain_that_fails_keeps_at_most_the_job_that_failed(
    error: type[Exception], left: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = create_jobs("noop", "noop", "fail", "noop", "noop")
    make_move, rings = lifecycle.make_move, []

    def fail(name: str, *args: Any, **options: Any) -> Any:
        if name == "retry":
            raise error
        return make_move(name, *args, **options)

    monkeypatch.setattr(lifecycle, "make_move", fail)
    monkeypatch.setattr(services, "notify_workers", lambda: rings.append(1))

    with suppress(worker.DrainFailed):
        worker.drain()

    assert states(jobs) == [("done", 1, 0)] * 2 + [left] + [("queued", 0, 0)] * 2
    assert codes(jobs[2])[1:] == (["DATABASE_LOST"] if left[0] == "queued" else [])
    assert rings


def test_a_job_that_the_database_interrupts_again_and_again_is_charged_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose_database(claim: object) -> None:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(stub_pipelines, "fail", lose_database)
    [job] = create_jobs("fail")

    for _ in range(services.MAX_OVERLOADS):
        worker.drain()
    assert states([job]) == [("queued", 0, services.MAX_OVERLOADS)]

    worker.drain()
    assert states([job]) == [("working", 1, services.MAX_OVERLOADS)]


def test_only_the_job_that_kills_its_worker_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(claim: object) -> None:
        raise Died

    monkeypatch.setattr(stub_pipelines, "die", die)
    jobs = create_jobs("noop", "noop", "die", "noop")

    for _ in range(2 + 3):
        with pytest.raises(Died):
            worker.drain()
        lose_leases()

    worker.drain()
    assert [state for state, *_ in states(jobs)] == ["done", "done", "deadletter", "done"]
    assert [codes(job).count("LEASE_EXPIRED") for job in jobs] == [0, 0, 3, 0]
    assert [codes(job).count("BATCH_LOST") for job in jobs] == [0, 1, 1, 1]


def test_a_commit_whose_answer_is_lost_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = create_jobs(*["noop"] * 4)
    execute = lifecycle.execute

    def lose_answer(sql: str, params: Any) -> Any:
        rows = execute(sql, params)
        if sql == claim_queries.FINISH_AND_CLAIM and len(params["jobs"]) > 1:
            raise OperationalError
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "execute", lose_answer)
        worker.drain()
    lose_leases()

    worker.drain()

    assert [codes(job) for job in jobs] == [["CLAIMED", "FINALIZED"]] * 4


@pytest.mark.slow
def test_a_slow_job_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = create_jobs("noop", "noop", "slow", "noop", "noop")

    def is_alone() -> bool:
        row = UploadJob.objects.get(pk=jobs[2].pk)
        return [state for state, *_ in states(jobs)][3:] == ["queued", "queued"] and not row.in_batch

    def work(claim: Any) -> Any:
        monkeypatch.setattr(claim_batches, "MAX_SECONDS", 0.0)
        wait_until(is_alone, seconds=20)  # its death would count
        shown.append(states(jobs)[1][0])
        return stub_pipelines.noop(claim)

    shown: list[str] = []
    rings: list[str] = []
    monkeypatch.setattr(stub_pipelines, "slow", work, raising=False)
    monkeypatch.setattr(services, "notify_workers", lambda: rings.append(threading.current_thread().name))

    worker.drain()

    assert shown == ["done"]
    assert "heartbeat" in rings  # brokers that do not poll are told of the jobs that are due again
    assert states(jobs) == [("done", 1, 0)] * 5
    assert heartbeat.HEARTBEAT._watched is None
