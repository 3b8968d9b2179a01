"""Priority of campaigns' jobs: after every tenant's, never in a user's first slot, yielding to others."""

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
from jobs import claim_queries, claims, display_status, services, worker
from jobs.claims import Claim, ClaimLost
from jobs.cluster.notify_broker import NotifyBroker
from jobs.models import Event, UploadJob
from testing.cluster import create_jobs, finish_and_claim
from testing.factories import DocumentFactory, JobFactory

pytestmark = pytest.mark.django_db
CAMPAIGN = UUID(int=99)


def create_campaign_job(user_id: UUID, **columns: Any) -> UploadJob:
    job: UploadJob = JobFactory.create(user_id=user_id, campaign_id=CAMPAIGN, created_at="2020-01-01T00:00Z", **columns)
    return job


def claimed_ids() -> Claim:
    claim = claims.claim_next("w")
    assert claim is not None
    return claim


def reload(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


# Whose turn it is


def test_a_campaigns_job_is_claimed_only_when_no_other_is_due(ana: UUID, ben: UUID) -> None:
    campaigns, parked = create_campaign_job(ana), JobFactory.create(user_id=ben, run_after="2999-01-01T00:00Z")
    younger = JobFactory.create(user_id=ben)

    assert [claimed_ids().job.pk, claimed_ids().job.pk, claims.claim_next("w")] == [younger.pk, campaigns.pk, None]
    assert reload(parked).state == "queued"


@pytest.mark.parametrize(("cap", "slots"), [(1, [0]), (2, [1]), (3, [1, 2])])
def test_a_campaigns_job_never_takes_the_first_of_several_slots(
    ana: UUID, settings: Any, cap: int, slots: list[int]
) -> None:
    settings.JOBS_ACTIVE_PER_USER = cap
    for _ in range(4):
        create_campaign_job(ana)

    assert [claimed_ids().job.slot for _ in slots] == slots
    assert claims.claim_next("w") is None


def test_the_users_upload_finds_a_slot_beside_a_campaigns_job(ana: UUID) -> None:
    create_campaign_job(ana), create_campaign_job(ana)
    claimed_ids()
    own = JobFactory.create(user_id=ana)

    claim = claimed_ids()

    assert (claim.job.pk, claim.job.slot) == (own.pk, 0)
    assert display_status.count_running(ana) == 1


def test_finish_and_claim_prefers_a_tenants_job(ana: UUID, ben: UUID) -> None:
    campaigns = create_campaign_job(ben)
    JobFactory.create_batch(2, user_id=ana)

    following = finish_and_claim(claimed_ids())

    assert following is not None
    assert following.job.user_id == ana
    last = finish_and_claim(following)
    assert last is not None
    assert last.job.pk == campaigns.pk


def test_each_user_with_any_due_job_counts_as_claimable(ana: UUID, ben: UUID) -> None:
    JobFactory.create(user_id=ana), create_campaign_job(ana), create_campaign_job(ben), create_campaign_job(ben)

    with connection.cursor() as cursor:
        assert [claim_queries.count_claimable(cursor, most=most) for most in (9, 2, 1)] == [3, 2, 1]
        for _ in range(3):
            claimed_ids()
        assert claim_queries.count_claimable(cursor, most=9) == 0


@pytest.mark.django_db(transaction=True)
def test_a_campaigns_job_wakes_a_worker(ana: UUID) -> None:
    create_campaign_job(ana)
    broker = NotifyBroker()

    assert len(broker.dequeue() or []) == 1
    broker.close()


def scanned_indexes(sql: str, **params: None) -> set[str]:
    """Return the indexes by which a statement would look for due jobs and taken slots."""
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
        return set(re.findall(r" (?:using|on) (ix_\w+|uq_\w+)", "\n".join(row[0] for row in cursor.fetchall())))


def test_a_job_of_low_priority_that_its_tenant_sees_is_claimed_like_a_campaigns(ana: UUID, ben: UUID) -> None:
    imported = JobFactory.create(user_id=ana, low_priority=True, created_at="2020-01-01T00:00Z")
    younger = JobFactory.create(user_id=ben)

    assert [claimed_ids().job.pk, claimed_ids().job.pk] == [younger.pk, imported.pk]
    assert services.get_latest_job(imported.document_id).pk == imported.pk


@pytest.mark.usefixtures("never_vacuumed")
@pytest.mark.parametrize("analyzed", ["never", "when all were due", "when all were done"])
def test_the_claim_uses_the_partial_indexes(analyzed: str) -> None:
    with connection.cursor() as cursor:
        create_jobs(cursor, 1000, "noop", users=100)
        cursor.execute("UPDATE upload_jobs SET low_priority = true WHERE get_byte(uuid_send(job_id), 0) < 128")
        if analyzed == "when all were done":
            cursor.execute("UPDATE upload_jobs SET state = 'done', stage = 'embedded', finished_at = now()")
        if analyzed != "never":
            cursor.execute("ANALYZE upload_jobs")
    params = dict.fromkeys(("worker", "lease", "claim_code", "claim_event", "pipeline", "stage"), None)

    assert scanned_indexes(claim_queries.CLAIM, **params) == {"ix_jobs_due", "uq_job_user_slot"}
    assert scanned_indexes(claim_queries.CLAIM_LOW_PRIORITY, **params) == {"ix_jobs_due_low", "uq_job_user_slot"}
    assert scanned_indexes(claim_queries.SHOULD_YIELD) == {"ix_jobs_due", "uq_job_user_slot"}
    assert scanned_indexes(claim_queries.COUNT_CLAIMABLE) == {"ix_jobs_due", "ix_jobs_due_low", "uq_job_user_slot"}


# Giving way


def stages(job: UploadJob) -> list[str]:
    return list(Event.objects.filter(job=job).order_by("ts").values_list("code", flat=True))


@pytest.mark.parametrize("cap", [1, 2])
def test_a_campaigns_job_yields_after_its_stage_without_costing_an_attempt(ana: UUID, settings: Any, cap: int) -> None:
    settings.JOBS_ACTIVE_PER_USER = cap
    campaigns = create_campaign_job(ana, pipeline="stages", stage="chunked")
    claim = claimed_ids()
    own = JobFactory.create_batch(cap, user_id=ana)  # one more than there are slots beside it
    if cap > 1:
        claimed_ids()
    turn = worker.DrainSlice(until=time.monotonic() + 5)

    following = worker.run_job(claim, turn)

    assert following is not None
    assert following.job.pk in {job.pk for job in own}
    left = reload(campaigns)
    assert (left.state, left.stage, left.attempts, left.run_after) == ("queued", "embedding", 0, None)
    assert stages(campaigns) == ["CLAIMED", "STAGE_DONE", "GAVE_WAY"]
    following.move("finish")
    assert worker.drain() == 1
    assert reload(campaigns).state == "done"


def test_a_campaigns_job_runs_to_its_end_while_no_other_waits(ana: UUID, ben: UUID) -> None:
    campaigns = create_campaign_job(ana, pipeline="stages", stage="chunked")
    create_campaign_job(ben)
    claim = claimed_ids()

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert reload(campaigns).state == "done"


def test_a_tenants_job_does_not_yield(ana: UUID, ben: UUID) -> None:
    own = JobFactory.create(user_id=ana, pipeline="stages", stage="chunked")
    claim = claimed_ids()
    JobFactory.create(user_id=ben)

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert reload(own).state == "done"


# Of whom it is


def test_row_level_security_hides_campaign_jobs(ana: UUID) -> None:
    own = JobFactory.create(user_id=ana)
    create_campaign_job(ana)

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
def test_a_tenants_new_job_supersedes_a_campaigns(ana: UUID, state: str) -> None:
    campaigns = create_campaign_job(ana, state=state)

    own = enqueue(campaigns)

    assert (own.state, reload(campaigns).state) == ("queued", "deadletter")
    assert (reload(campaigns).last_error or {})["code"] == "SUPERSEDED"
    assert stages(campaigns) == ["SUPERSEDED"]


def test_a_tenants_retry_supersedes_a_running_campaign_job(ana: UUID) -> None:
    dead = JobFactory.create(user_id=ana, state="deadletter")
    JobFactory.create(user_id=ana, document=dead.document, campaign_id=CAMPAIGN)
    claim = claimed_ids()

    assert services.retry(dead, by="ana").state == "queued"

    with pytest.raises(ClaimLost), claim.transaction():
        pass


@pytest.mark.parametrize("owner", [None, CAMPAIGN], ids=["a tenant's", "a campaign's"])
def test_a_campaigns_job_supersedes_no_job(ana: UUID, owner: UUID | None) -> None:
    active = JobFactory.create(user_id=ana, campaign_id=owner)
    dead = create_campaign_job(ana, document=active.document, state="deadletter")

    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        enqueue(active, campaign_id=CAMPAIGN)
    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        services.retry(dead, by="sam")
    assert reload(active).state == "queued"


def test_a_tenants_second_job_of_a_document_is_rejected(ana: UUID) -> None:
    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        enqueue(JobFactory.create(user_id=ana))


def test_staff_requeue_a_campaigns_dead_letters_too(ana: UUID) -> None:
    dead = create_campaign_job(ana, state="deadletter", last_error={"code": "X"})

    call_command("requeue", "--code", "X")

    assert (reload(dead).state, reload(dead).campaign_id) == ("queued", CAMPAIGN)


@pytest.mark.parametrize("code", ["CANCELLED", "SUPERSEDED"])
def test_jobs_that_a_campaign_cancelled_are_not_requeued(ana: UUID, code: str) -> None:
    dead = create_campaign_job(ana, state="deadletter", last_error={"code": code})

    call_command("requeue", "--all")

    assert reload(dead).state == "deadletter"


def test_deleting_a_document_invalidates_the_claim_of_its_campaign(ana: UUID) -> None:
    document = DocumentFactory.create(user_id=ana)
    JobFactory.create(user_id=ana, document=document, state="done")
    create_campaign_job(ana, document=document)
    claim = claimed_ids()

    documents.delete(document)

    assert not UploadJob.objects.exists()
    with pytest.raises(ClaimLost), claim.transaction():
        pass
