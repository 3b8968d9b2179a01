"""Campaigns' jobs: behind every tenant's, never in a user's first slot, out of the way as soon as they are in it."""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents import services as documents
from jobs import claim_queries, claims, progress, services, worker
from jobs.claims import Claim, ClaimLost
from jobs.cluster.broker import NotifyBroker
from jobs.models import Event, UploadJob
from testing.cluster import create_jobs
from testing.factories import DocumentFactory, JobFactory

pytestmark = pytest.mark.django_db
CAMPAIGN = UUID(int=99)


def low(user_id: UUID, **columns: Any) -> UploadJob:
    job: UploadJob = JobFactory.create(user_id=user_id, campaign_id=CAMPAIGN, created_at="2020-01-01T00:00Z", **columns)
    return job


def taken() -> Claim:
    claim = claims.claim_next("w")
    assert claim is not None
    return claim


def read(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


# Whose turn it is


def test_a_campaigns_job_is_claimed_when_no_other_can_be(ana: UUID, ben: UUID) -> None:
    campaigns, parked = low(ana), JobFactory.create(user_id=ben, run_after="2999-01-01T00:00Z")
    younger = JobFactory.create(user_id=ben)

    assert [taken().job.pk, taken().job.pk, claims.claim_next("w")] == [younger.pk, campaigns.pk, None]
    assert read(parked).state == "queued"


@pytest.mark.parametrize(("cap", "slots"), [(1, [0]), (2, [1]), (3, [1, 2])])
def test_it_never_has_the_first_slot_where_there_are_more(ana: UUID, settings: Any, cap: int, slots: list[int]) -> None:
    settings.JOBS_ACTIVE_PER_USER = cap
    for _ in range(4):
        low(ana)

    assert [taken().job.slot for _ in slots] == slots
    assert claims.claim_next("w") is None


def test_the_users_own_upload_finds_a_slot_beside_it(ana: UUID) -> None:
    low(ana), low(ana)
    taken()
    own = JobFactory.create(user_id=ana)

    claim = taken()

    assert (claim.job.pk, claim.job.slot) == (own.pk, 0)
    assert progress.count_running(ana) == 1


def test_who_finishes_takes_a_tenants_job_first_and_a_campaigns_when_there_is_none(ana: UUID, ben: UUID) -> None:
    campaigns = low(ben)
    JobFactory.create_batch(2, user_id=ana)

    following = taken().finish_and_claim_next("w")

    assert following is not None
    assert following.job.user_id == ana
    assert following.finish_and_claim_next("w") is None
    assert taken().job.pk == campaigns.pk


def test_one_ring_for_each_user_who_has_either(ana: UUID, ben: UUID) -> None:
    JobFactory.create(user_id=ana), low(ana), low(ben), low(ben)

    with connection.cursor() as cursor:
        assert [claim_queries.count_claimable(cursor, most=most) for most in (9, 2, 1)] == [3, 2, 1]
        for _ in range(3):
            taken()
        assert claim_queries.count_claimable(cursor, most=9) == 0


@pytest.mark.django_db(transaction=True)
def test_the_doorbell_rings_for_a_campaigns_job(ana: UUID) -> None:
    low(ana)
    bell = NotifyBroker()

    assert len(bell.dequeue() or []) == 1
    bell.close()


def plan_of(sql: str, **params: None) -> set[str]:
    """The indexes of upload_jobs by which a statement would look for what is due."""
    filled: dict[str, Any] = {
        "last": UUID(int=3),
        "most": 4,
        "job_id": UUID(int=1),
        "but": UUID(int=2),
        **claim_queries.concurrency_params(),
        **params,
    }
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # as workers do
        cursor.execute("EXPLAIN " + sql, filled)
        found = re.findall(r" (?:using|on) (ix_\w+|uq_\w+)(.*)", "\n".join(row[0] for row in cursor.fetchall()))
    return {index for index, table in found if not re.search(r" on upload_jobs w(_\d)? ", table)}  # w: who is at work


@pytest.mark.usefixtures("never_vacuumed")
def test_what_is_due_is_found_by_the_index_made_for_it() -> None:
    with connection.cursor() as cursor:
        create_jobs(cursor, 3000, "noop", users=300)
        cursor.execute("UPDATE upload_jobs SET campaign_id = %s WHERE get_byte(uuid_send(job_id), 0) < 128", [CAMPAIGN])
        cursor.execute("ANALYZE upload_jobs")
    params = dict.fromkeys(("token", "worker", "lease", "claim_code", "claim_event"), None)

    assert plan_of(claim_queries.CLAIM, **params) == {"ix_jobs_due"}
    assert plan_of(claim_queries.CLAIM_CAMPAIGN_JOB, **params) == {"ix_jobs_due_low"}
    assert plan_of(claim_queries.SHOULD_YIELD) == {"ix_jobs_due"}
    assert plan_of(claim_queries.COUNT_CLAIMABLE) == {"ix_jobs_due", "ix_jobs_due_low"}


# Giving way


def stages(job: UploadJob) -> list[str]:
    return list(Event.objects.filter(job=job).order_by("ts").values_list("code", flat=True))


@pytest.mark.parametrize("cap", [1, 2])
def test_it_gives_way_after_its_stage_and_goes_on_later_at_no_attempt(ana: UUID, settings: Any, cap: int) -> None:
    settings.JOBS_ACTIVE_PER_USER = cap
    campaigns = low(ana, pipeline="stages", stage="chunked")
    claim = taken()
    own = JobFactory.create_batch(cap, user_id=ana)  # one more than there are slots beside it
    if cap > 1:
        taken()
    turn = worker.DrainSlice(until=time.monotonic() + 5)

    following = worker.run_job(claim, turn)

    assert following is not None
    assert following.job.pk in {job.pk for job in own}
    left = read(campaigns)
    assert (left.state, left.stage, left.attempts, left.run_after) == ("queued", "embedding", 0, None)
    assert stages(campaigns) == ["CLAIMED", "STAGE_DONE", "GAVE_WAY"]
    following.move("finish")
    assert worker.drain() == 1
    assert read(campaigns).state == "done"


def test_it_is_carried_through_while_nobody_else_waits(ana: UUID, ben: UUID) -> None:
    campaigns = low(ana, pipeline="stages", stage="chunked")
    low(ben)
    claim = taken()

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert read(campaigns).state == "done"


def test_a_tenants_job_gives_way_to_nobody(ana: UUID, ben: UUID) -> None:
    own = JobFactory.create(user_id=ana, pipeline="stages", stage="chunked")
    claim = taken()
    JobFactory.create(user_id=ben)

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert read(own).state == "done"


# Of whom it is


def test_the_policy_hides_it_from_the_tenant(ana: UUID) -> None:
    own = JobFactory.create(user_id=ana)
    low(ana)

    with as_tenant(ana):
        assert list(UploadJob.objects.values_list("pk", flat=True)) == [own.pk]


def test_the_newest_job_of_a_document_is_the_tenants(ana: UUID) -> None:
    own = JobFactory.create(user_id=ana, state="done")
    JobFactory.create(user_id=ana, document=own.document, campaign_id=CAMPAIGN)

    assert services.get_latest_job(own.document_id).pk == own.pk


def enqueue(job: UploadJob, **columns: Any) -> UploadJob:
    return services.enqueue(
        pipeline="noop", user_id=job.user_id, document_id=job.document_id, raw_path="x", chunks_version="", **columns
    )


@pytest.mark.parametrize("state", ["queued", "working", "retryable"])
def test_a_tenants_new_job_takes_the_place_of_a_campaigns(ana: UUID, state: str) -> None:
    campaigns = low(ana, state=state)

    own = enqueue(campaigns)

    assert (own.state, read(campaigns).state) == ("queued", "deadletter")
    assert (read(campaigns).last_error or {})["code"] == "SUPERSEDED"
    assert stages(campaigns) == ["SUPERSEDED"]


def test_so_does_a_tenants_retry_and_the_campaigns_worker_writes_nothing_more(ana: UUID) -> None:
    dead = JobFactory.create(user_id=ana, state="deadletter")
    JobFactory.create(user_id=ana, document=dead.document, campaign_id=CAMPAIGN)
    claim = taken()

    assert services.retry(dead, by="ana").state == "queued"

    with pytest.raises(ClaimLost), claim.transaction():
        pass


@pytest.mark.parametrize("owner", [None, CAMPAIGN], ids=["a tenant's", "a campaign's"])
def test_a_campaigns_job_takes_the_place_of_none(ana: UUID, owner: UUID | None) -> None:
    active = JobFactory.create(user_id=ana, campaign_id=owner)
    dead = low(ana, document=active.document, state="deadletter")

    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        enqueue(active, campaign_id=CAMPAIGN)
    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        services.retry(dead, by="sam")
    assert read(active).state == "queued"


def test_two_of_a_tenants_own_jobs_are_still_refused(ana: UUID) -> None:
    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        enqueue(JobFactory.create(user_id=ana))


def test_staff_requeue_a_campaigns_dead_letters_too(ana: UUID) -> None:
    dead = low(ana, state="deadletter", last_error={"code": "X"})

    call_command("requeue", "--code", "X")

    assert (read(dead).state, read(dead).campaign_id) == ("queued", CAMPAIGN)


@pytest.mark.parametrize("code", ["CANCELLED", "SUPERSEDED"])
def test_what_a_campaign_let_go_of_is_not_requeued(ana: UUID, code: str) -> None:
    dead = low(ana, state="deadletter", last_error={"code": code})

    call_command("requeue", "--all")

    assert read(dead).state == "deadletter"


def test_a_document_is_deleted_whatever_its_campaign_is_at(ana: UUID) -> None:
    document = DocumentFactory.create(user_id=ana)
    JobFactory.create(user_id=ana, document=document, state="done")
    low(ana, document=document)
    claim = taken()

    documents.delete(document)

    assert not UploadJob.objects.exists()
    with pytest.raises(ClaimLost), claim.transaction():
        pass
