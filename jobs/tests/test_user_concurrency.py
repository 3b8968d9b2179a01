"""Who may have more jobs at once than others (JOBS_ACTIVE_OF) takes what is idle, and starves nobody."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID
from jobs import claim_queries, claims, progress, worker
from jobs.claims import Claim
from jobs.models import Event, UploadJob
from testing.concurrency import run_concurrently
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def five_of_the_corpus(settings: Any) -> None:
    settings.JOBS_ACTIVE_OF = {SYSTEM_TENANT_ID: 5}


def many(user_id: UUID, count: int = 7, **columns: Any) -> list[UploadJob]:
    made: list[UploadJob] = JobFactory.create_batch(count, user_id=user_id, **columns)
    return made


def taken(last: UUID = claim_queries.NIL_UUID) -> Claim:
    claim = claims.claim_next("w", last)
    assert claim is not None
    return claim


def codes(claim: Claim) -> list[str]:
    return list(Event.objects.filter(job=claim.job).order_by("ts").values_list("code", flat=True))


def test_it_gets_as_many_slots_as_it_may_have_and_a_tenant_the_usual_two(ana: UUID) -> None:
    many(SYSTEM_TENANT_ID), many(ana)

    held = [claim.job for claim in iter(lambda: claims.claim_next("w"), None)]

    assert sorted(job.slot or 0 for job in held if job.user_id == SYSTEM_TENANT_ID) == [0, 1, 2, 3, 4]
    assert sorted(job.slot or 0 for job in held if job.user_id == ana) == [0, 1]


@pytest.mark.django_db(transaction=True)
def test_workers_that_race_for_its_slots_get_no_more_than_these(ana: UUID) -> None:
    many(SYSTEM_TENANT_ID, 9)

    run_concurrently(*[lambda: claims.claim_next("w")] * 7)

    slots = UploadJob.objects.filter(state="working").values_list("slot", flat=True)
    assert sorted(slot or 0 for slot in slots) == [0, 1, 2, 3, 4]


def test_it_is_one_user_among_others_in_the_rotation(ana: UUID, ben: UUID) -> None:
    many(SYSTEM_TENANT_ID), many(ana, 2), many(ben, 2)

    order, last = [], claim_queries.NIL_UUID
    for _ in range(6):
        last = taken(last).job.user_id
        order.append(last)

    assert order == [ana, ben, SYSTEM_TENANT_ID] * 2


def test_who_ends_a_job_of_it_goes_on_with_a_tenants(ana: UUID) -> None:
    many(SYSTEM_TENANT_ID)
    claim = taken()
    many(ana, 1)

    following = claim.finish_and_claim_next("w")

    assert following is not None
    assert following.job.user_id == ana


def beyond_the_usual(**columns: Any) -> Claim:
    """Return a job of the corpus in its third slot."""
    many(SYSTEM_TENANT_ID, 3, pipeline="stages", stage="chunked", **columns)
    taken(), taken()
    return taken()


def test_a_job_beyond_the_usual_two_gives_way_to_a_tenant_after_its_stage(ana: UUID) -> None:
    claim = beyond_the_usual()
    (waiting,) = many(ana, 1)

    following = worker.run_job(claim, worker.DrainSlice(until=time.monotonic() + 5))

    assert following is not None
    assert following.job.pk == waiting.pk
    assert codes(claim) == ["CLAIMED", "STAGE_DONE", "GAVE_WAY"]
    left = UploadJob.objects.get(pk=claim.job.pk)
    assert (left.state, left.stage, left.attempts, left.run_after) == ("queued", "embedding", 0, None)


def test_it_gives_way_neither_to_its_own_nor_to_who_has_no_slot_left(ana: UUID) -> None:
    claim = beyond_the_usual()
    many(SYSTEM_TENANT_ID, 1), many(ana, 3)
    assert [taken().job.user_id, taken().job.user_id] == [ana, ana]

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert UploadJob.objects.get(pk=claim.job.pk).state == "done"


def test_the_usual_two_give_way_to_nobody(ana: UUID) -> None:
    many(SYSTEM_TENANT_ID, 2, pipeline="stages", stage="chunked")
    claim = taken()
    many(ana)

    worker.run_job(claim, worker.DrainSlice(until=0))

    assert UploadJob.objects.get(pk=claim.job.pk).state == "done"


def test_it_is_starved_when_all_its_slots_are_taken_and_no_sooner(ana: UUID) -> None:
    many(SYSTEM_TENANT_ID), many(ana, 3)

    seen: list[tuple[bool, str]] = []
    for _ in range(6):
        if len(seen) < 5:
            taken(last=UUID(int=SYSTEM_TENANT_ID.int - 1))
        job = UploadJob.objects.filter(user_id=SYSTEM_TENANT_ID, state="queued")[0]
        starved = set(
            UploadJob.objects.filter(progress.DUE, progress.starved_filter()).values_list("user_id", flat=True)
        )
        seen.append(
            (
                SYSTEM_TENANT_ID in starved,
                progress.tenant_display_status(job, running=progress.count_running(SYSTEM_TENANT_ID)),
            )
        )

    assert seen == [(False, "queued")] * 4 + [(True, "starved")] * 2


def test_the_doorbell_rings_for_its_free_slots(ana: UUID) -> None:
    many(SYSTEM_TENANT_ID)

    for _ in range(4):
        taken()
    with connection.cursor() as cursor:
        rung = claim_queries.count_claimable(cursor, most=9)
        taken()
        silent = claim_queries.count_claimable(cursor, most=9)

    assert (rung, silent) == (1, 0)
