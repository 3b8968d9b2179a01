"""A worker that has lost its claim writes nothing, however it was lost."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from psycopg.types.json import Jsonb

from documents import services as documents
from jobs import claims, services
from jobs.claims import Claim, ClaimLost
from jobs.models import Event, UploadJob
from testing.factories import JobFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def claim_job(ana: UUID) -> Claim:
    JobFactory.create(user_id=ana, pipeline="stages", stage="queued")
    next_claim = claims.claim_next("w")
    assert next_claim is not None
    return next_claim


def expire_lease(claim: Claim) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = clock_timestamp() - interval '1 ms'")


def expired(claim: Claim) -> None:
    expire_lease(claim)
    assert services.requeue_due_and_expired() == 1


def expired_and_claimed_again(claim: Claim) -> None:
    expired(claim)
    assert claims.claim_next("other") is not None


def cancelled(claim: Claim) -> None:
    services.cancel(claim.job, by="ana")


def deleted(claim: Claim) -> None:
    documents.delete(claim.job.document)


LOST = [expired, expired_and_claimed_again, cancelled, deleted]
MOVES: dict[str, Callable[[Claim], object]] = {
    "finish": lambda claim: claim.move("finish"),
    "advance": lambda claim: claim.advance(),
    "wait": lambda claim: claim.move("wait", reason="X", pause=timedelta(seconds=1)),
    "release": lambda claim: claim.move("release"),
    "retry": lambda claim: claim.move("retry", error=Jsonb({}), traceback=None, pause=timedelta(seconds=1)),
    "discard": lambda claim: claim.move("discard", error=Jsonb({}), traceback=None),
}


def all_rows() -> list[object]:
    return [*UploadJob.objects.order_by("pk").values(), *Event.objects.order_by("pk").values()]


@pytest.mark.parametrize("lose", LOST)
def test_a_lost_claim_opens_no_transaction(claim_job: Claim, lose: Callable[[Claim], None]) -> None:
    lose(claim_job)
    before = all_rows()

    with pytest.raises(ClaimLost), claim_job.transaction():
        claim_job.save_progress(total_pct=50, progress={"never": 1})

    assert all_rows() == before


@pytest.mark.parametrize("lose", LOST)
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_lost_claim_moves_nothing(
    claim_job: Claim, lose: Callable[[Claim], None], move: Callable[[Claim], object]
) -> None:
    lose(claim_job)
    before = all_rows()

    with pytest.raises(ClaimLost):
        move(claim_job)

    assert all_rows() == before


def test_the_two_claims_of_one_job_have_different_tokens(claim_job: Claim) -> None:
    expired(claim_job)

    again = claims.claim_next("w")

    assert again is not None
    assert again.job.pk == claim_job.job.pk
    assert again.token != claim_job.token


def test_an_expired_lease_holds_until_the_job_is_requeued(claim_job: Claim) -> None:
    """Nobody else has the job yet, so the work need not be thrown away."""
    expire_lease(claim_job)

    with claim_job.transaction():
        claim_job.advance()

    assert UploadJob.objects.get().stage == "job_validated"


def test_a_failed_move_rolls_back_the_handlers_writes(claim_job: Claim) -> None:
    before = all_rows()

    with pytest.raises(RuntimeError), claim_job.transaction():  # noqa: PT012
        claim_job.save_progress(total_pct=50)
        claim_job.log_event("WRITTEN")
        claim_job.advance()
        raise RuntimeError

    assert all_rows() == before
