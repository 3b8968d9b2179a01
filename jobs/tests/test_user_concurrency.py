"""Users with a concurrency limit of their own (JOBS_ACTIVE_OF)."""

import time
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID
from jobs import claim_queries, claims, display_status, worker
from jobs.claims import Claim
from jobs.models import Event, UploadJob
from testing.cluster import finish_and_claim
from testing.concurrency import run_concurrently
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def five_slots_for_the_system_tenant(settings: Any) -> None:
    settings.JOBS_ACTIVE_OF = {SYSTEM_TENANT_ID: 5}


def create_jobs(user_id: UUID, count: int = 7, **columns: Any) -> list[UploadJob]:
    jobs: list[UploadJob] = JobFactory.create_batch(count, user_id=user_id, **columns)
    return jobs


def claim_all(last: UUID = claim_queries.NIL_UUID) -> Claim:
    claim = claims.claim_next("w", last)
    assert claim is not None
    return claim


def codes(claim: Claim) -> list[str]:
    return list(Event.objects.filter(job=claim.job).order_by("ts").values_list("code", flat=True))


def test_a_configured_user_gets_its_slots_and_others_two(ana: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID), create_jobs(ana)

    held = [claim.job for claim in iter(lambda: claims.claim_next("w"), None)]

    assert sorted(job.slot or 0 for job in held if job.user_id == SYSTEM_TENANT_ID) == [0, 1, 2, 3, 4]
    assert sorted(job.slot or 0 for job in held if job.user_id == ana) == [0, 1]


@pytest.mark.django_db(transaction=True)
def test_racing_workers_do_not_exceed_the_configured_slots(ana: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID, 9)

    run_concurrently(*[lambda: claims.claim_next("w")] * 7)

    slots = UploadJob.objects.filter(state="working").values_list("slot", flat=True)
    assert sorted(slot or 0 for slot in slots) == [0, 1, 2, 3, 4]


def test_a_configured_user_takes_its_turn_in_the_rotation(ana: UUID, ben: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID), create_jobs(ana, 2), create_jobs(ben, 2)

    order, last = [], claim_queries.NIL_UUID
    for _ in range(6):
        last = claim_all(last).job.user_id
        order.append(last)

    assert order == [ana, ben, SYSTEM_TENANT_ID] * 2


def test_ending_a_statute_job_claims_a_tenants_job_next(ana: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID)
    claim = claim_all()
    create_jobs(ana, 1)

    following = finish_and_claim(claim)

    assert following is not None
    assert following.job.user_id == ana


def claim_in_extra_slot(**columns: Any) -> Claim:
    """Return a job of the corpus in its third slot."""
    create_jobs(SYSTEM_TENANT_ID, 3, pipeline="stages", stage="chunked", **columns)
    claim_all(), claim_all()
    return claim_all()


def test_a_job_in_an_extra_slot_yields_to_a_tenant_after_its_stage(ana: UUID) -> None:
    claim = claim_in_extra_slot()
    (waiting,) = create_jobs(ana, 1)

    following = worker.run_job(claim, worker.DrainSlice(until=time.monotonic() + 5))

    assert following is not None
    assert following.job.pk == waiting.pk
    assert codes(claim) == ["CLAIMED", "STAGE_DONE", "GAVE_WAY"]
    left = UploadJob.objects.get(pk=claim.job.pk)
    assert (left.state, left.stage, left.attempts, left.run_after) == ("queued", "embedding", 0, None)


def test_a_job_in_an_extra_slot_yields_only_to_runnable_jobs_of_others(ana: UUID) -> None:
    claim = claim_in_extra_slot()
    create_jobs(SYSTEM_TENANT_ID, 1), create_jobs(ana, 3)
    assert [claim_all().job.user_id, claim_all().job.user_id] == [ana, ana]

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert UploadJob.objects.get(pk=claim.job.pk).state == "done"


def test_jobs_in_the_default_slots_do_not_yield(ana: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID, 2, pipeline="stages", stage="chunked")
    claim = claim_all()
    create_jobs(ana)

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert UploadJob.objects.get(pk=claim.job.pk).state == "done"


def test_a_configured_user_is_starved_when_all_its_slots_are_taken(ana: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID), create_jobs(ana, 3)

    seen: list[tuple[bool, str]] = []
    for _ in range(6):
        if len(seen) < 5:
            claim_all(last=UUID(int=SYSTEM_TENANT_ID.int - 1))
        job = UploadJob.objects.filter(user_id=SYSTEM_TENANT_ID, state="queued")[0]
        starved = set(
            UploadJob.objects.filter(display_status.DUE, display_status.starved_filter()).values_list(
                "user_id", flat=True
            )
        )
        seen.append(
            (
                SYSTEM_TENANT_ID in starved,
                display_status.tenant_display_status(job, running=display_status.count_running(SYSTEM_TENANT_ID)),
            )
        )

    assert seen == [(False, "queued")] * 4 + [(True, "starved")] * 2


def test_free_extra_slots_wake_workers(ana: UUID) -> None:
    create_jobs(SYSTEM_TENANT_ID)

    for _ in range(4):
        claim_all()
    with connection.cursor() as cursor:
        rung = claim_queries.count_claimable(cursor, most=9)
        claim_all()
        silent = claim_queries.count_claimable(cursor, most=9)

    assert (rung, silent) == (1, 0)
