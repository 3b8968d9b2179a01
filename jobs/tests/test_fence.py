"""Who has lost a claim writes nothing, whichever way it was lost."""

from __future__ import annotations

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
def claim(ana: UUID) -> Claim:
    JobFactory.create(user_id=ana, pipeline="stages", stage="queued")
    found = claims.claim_next("w")
    assert found is not None
    return found


def run_out(claim: Claim) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = clock_timestamp() - interval '1 ms'")


def expired(claim: Claim) -> None:
    run_out(claim)
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
    "finish_and_claim_next": lambda claim: claim.finish_and_claim_next("w"),
}


def everything() -> list[object]:
    return [*UploadJob.objects.order_by("pk").values(), *Event.objects.order_by("pk").values()]


@pytest.mark.parametrize("lose", LOST)
def test_a_lost_claim_opens_no_transaction_to_write_in(claim: Claim, lose: Callable[[Claim], None]) -> None:
    lose(claim)
    before = everything()

    with pytest.raises(ClaimLost), claim.transaction():
        claim.save_progress(total_pct=50, progress={"never": 1})

    assert everything() == before


@pytest.mark.parametrize("lose", LOST)
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_lost_claim_moves_nothing(
    claim: Claim, lose: Callable[[Claim], None], move: Callable[[Claim], object]
) -> None:
    lose(claim)
    before = everything()

    with pytest.raises(ClaimLost):
        move(claim)

    assert everything() == before


def test_the_two_claims_of_one_job_have_different_tokens(claim: Claim) -> None:
    expired(claim)

    again = claims.claim_next("w")

    assert again is not None
    assert again.job.pk == claim.job.pk
    assert again.token != claim.token


def test_a_lease_that_ran_out_unnoticed_still_holds(claim: Claim) -> None:
    """Nobody else has the job yet, so the work need not be thrown away."""
    run_out(claim)

    with claim.transaction():
        claim.advance()

    assert UploadJob.objects.get().stage == "job_validated"


def test_what_a_handler_wrote_goes_with_the_move_that_fails(claim: Claim) -> None:
    before = everything()

    with pytest.raises(RuntimeError), claim.transaction():  # noqa: PT012
        claim.save_progress(total_pct=50)
        claim.log_event("WRITTEN")
        claim.advance()
        raise RuntimeError

    assert everything() == before
