"""Order of claims: two jobs per user, the oldest first, rotating over users."""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs import claim_queries, claims, worker
from jobs.claims import Claim
from jobs.models import Event, UploadJob
from testing.cluster import create_jobs, finish_and_claim
from testing.concurrency import run_concurrently
from testing.factories import JobFactory
from testing.sizes import size

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def queue_job(user_id: UUID, *, age: float = 0, **columns: object) -> UploadJob:
    job: UploadJob = JobFactory.create(user_id=user_id, created_at=LONG_AGO - timedelta(seconds=age), **columns)
    return job


def claimed_id(last: UUID = claim_queries.NIL_UUID) -> Claim:
    claim = claims.claim_next("w", last)
    assert claim is not None
    return claim


@pytest.mark.django_db
def test_a_claim_counts_its_attempt_before_the_work(ana: UUID) -> None:
    queue_job(ana)

    claim = claimed_id()

    row = UploadJob.objects.get()
    assert (row.state, row.attempts, row.slot, row.claimed_by) == ("working", 1, 0, "w")
    assert row.claim_token == claim.token
    assert row.lease_until is not None
    assert row.claimed_at is not None
    assert timedelta(seconds=19) < row.lease_until - row.claimed_at < timedelta(seconds=21)


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_one_gets_a_job(ana: UUID) -> None:
    queue_job(ana)

    results = run_concurrently(*[lambda: claims.claim_next("w")] * 6)

    assert len([claim for claim in results if claim]) == 1
    assert Event.objects.filter(code="CLAIMED").count() == 1


@pytest.mark.django_db(transaction=True)
def test_racing_workers_get_two_slots_of_one_user(ana: UUID) -> None:
    for _ in range(8):
        queue_job(ana)

    results = run_concurrently(*[lambda: claims.claim_next("w")] * 6)

    slots = UploadJob.objects.filter(state="working").values_list("slot", flat=True)
    assert (len(slots), set(slots)) == (2, {0, 1})
    assert len([claim for claim in results if claim]) == 2
    assert claims.claim_next("w") is None


@pytest.mark.django_db
def test_the_third_job_starts_when_one_of_the_two_has_ended(ana: UUID) -> None:
    for age in (3, 2, 1):
        queue_job(ana, age=age)
    _, second = claimed_id(), claimed_id()
    assert claims.claim_next("w") is None

    second.move("finish")

    assert claimed_id().job.slot == 1


@pytest.mark.django_db
def test_a_user_at_the_limit_does_not_delay_others(ana: UUID, ben: UUID) -> None:
    for age in range(50, 10, -1):
        queue_job(ana, age=age)
    claimed_id(), claimed_id()
    queue_job(ben)

    assert claimed_id().job.user_id == ben
    assert claims.claim_next("w") is None


@pytest.mark.django_db
def test_claims_rotate_over_the_users(ana: UUID, ben: UUID) -> None:
    third = UUID(int=0xC)
    for user_id in (ana, ben, third):
        queue_job(user_id), queue_job(user_id)

    order, last = [], claim_queries.NIL_UUID
    for _ in range(6):
        last = claimed_id(last).job.user_id
        order.append(last)

    assert order == [ana, ben, third, ana, ben, third]


@pytest.mark.django_db
def test_within_a_user_the_oldest_is_first(ana: UUID) -> None:
    young, old, middle = queue_job(ana, age=1), queue_job(ana, age=9), queue_job(ana, age=5)

    order = []
    for _ in range(3):
        claim = claimed_id()
        order.append(claim.job.pk)
        claim.move("finish")

    assert order == [old.pk, middle.pk, young.pk]


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["queued", "retryable"])
def test_a_parked_job_is_not_claimed(ana: UUID, state: str) -> None:
    queue_job(ana, state=state, run_after=LONG_AGO)  # even when its time has come: `due` is a move of its own

    assert claims.claim_next("w") is None


@pytest.mark.django_db
def test_a_parked_job_lets_the_younger_ones_of_its_user_pass(ana: UUID) -> None:
    queue_job(ana, age=9, run_after=LONG_AGO)
    young = queue_job(ana, age=1)

    assert claimed_id().job.pk == young.pk


@pytest.mark.django_db
def test_the_rotation_over_users_continues_in_the_next_drain(ana: UUID, ben: UUID) -> None:
    for age in (3, 2, 1):
        queue_job(ana, age=age), queue_job(ben, age=age)
    worker.DrainSlice.last_user = claim_queries.NIL_UUID

    for _ in range(6):
        turn = worker.DrainSlice(until=time.monotonic() + 5)
        claim = turn.claim_next()
        assert claim is not None
        turn.until = 0  # this drain has had its time
        worker.run_job(claim, turn)

    order = Event.objects.filter(code="FINALIZED").order_by("ts").values_list("user_id", flat=True)
    assert list(order) == [ana, ben] * 3


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_skipped(ana: UUID) -> None:
    locked, free = queue_job(ana, age=9), queue_job(ana, age=1)

    with transaction.atomic():
        UploadJob.objects.select_for_update().get(pk=locked.pk)
        (claim,) = run_concurrently(lambda: claims.claim_next("w"))

    assert claim is not None
    assert claim.job.pk == free.pk


@pytest.mark.django_db
def test_ending_a_job_and_claiming_the_next_are_one_statement(ana: UUID) -> None:
    first, second, third = (queue_job(ana, age=age) for age in (3, 2, 1))
    claim = claimed_id()
    claimed_id()

    following = finish_and_claim(claim)

    assert following is not None
    assert following.job.pk == third.pk
    assert following.job.slot == 0  # the slot that the ended job frees
    states = dict(UploadJob.objects.values_list("pk", "state"))
    assert states == {first.pk: "done", second.pk: "working", third.pk: "working"}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_eight_workers_never_hold_one_job_twice() -> None:
    jobs = size(600, full=20_000)
    with connection.cursor() as cursor:
        create_jobs(cursor, jobs, "noop", users=60)

    def drain() -> list[UUID]:
        mine, claim = [], claims.claim_next("w")
        while claim:
            mine.append(claim.job.pk)
            claim = finish_and_claim(claim)
        return mine

    held = Counter(job_id for mine in run_concurrently(*[drain] * 8) for job_id in mine)

    left = UploadJob.objects.exclude(state="done").count()
    assert (len(held), set(held.values()), left) == (jobs, {1}, 0)
    assert Event.objects.filter(code="CLAIMED").count() == jobs
    assert Event.objects.filter(code="FINALIZED").count() == jobs
