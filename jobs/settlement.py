"""How a try ended becomes a move of the job."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from jobs import errors
from jobs.claims import Claim
from jobs.outcomes import Advance, Outcome, Permanent, Retryable, Wait
from jobs.states import State

RunOutcome = Outcome | Wait | Permanent | Retryable


def apply_outcome(claim: Claim, ending: RunOutcome) -> bool:
    """Write down how a try ended; return whether the job goes on under the same claim."""
    match ending:
        case Advance():
            claim.advance(code=ending.code, event=ending.payload, durable=False, **ending.fields)
            return claim.job.state == State.WORKING
        case Wait():
            claim.move(
                "wait", event={"reason": ending.reason}, reason=ending.reason, pause=timedelta(seconds=ending.seconds)
            )
        case Retryable() if claim.job.attempts <= settings.JOBS_MAX_RETRIES:
            pause = retry_delay(claim.job.attempts, ending.retry_after)
            claim.move("retry", event={"code": ending.code}, pause=pause, **errors.error_columns(claim, ending))
        case Permanent() | Retryable():
            claim.move("discard", event={"code": ending.code}, **errors.error_columns(claim, ending))
    return False


def retry_delay(attempts: int, floor: float = 0.0) -> timedelta:
    """Return the pause after the given number of tries: 3, 6 and 12 s (RFC001, 002 §14), or ``floor`` if longer."""
    return timedelta(seconds=max(settings.JOBS_RETRY_BASE_SECONDS * 2 ** (attempts - 1), floor))
