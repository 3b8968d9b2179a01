"""Test pipelines whose stages do nothing, hold the row, sleep, fail or crash."""

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from django.db import connection

from accessa import pipelines
from jobs import lifecycle
from jobs.choices import Stage
from jobs.claims import Claim
from jobs.outcomes import Advance, Moved, Outcome, Permanent, Retryable, Wait
from jobs.pipeline import Handler, Pipeline, Step
from testing.error_codes import error_code


def always_holds(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    return {}


def always_violated(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    return dict.fromkeys(job_ids, "This never holds.")


def noop(claim: Claim) -> Outcome:
    return Advance()


def hold(claim: Claim) -> Moved:
    with claim.transaction():
        return claim.advance()


# What tests let happen in a stage of "joined", by its name; in its write, by "{name}:write"; and when it is "lost".
DURING: dict[str, Callable[[Claim], object]] = {}


def write_event(claim: Claim) -> Outcome:
    """End the stage with a write that may share the commit of others."""
    job, stage = claim.job, str(claim.job.stage)
    DURING.get(stage, noop)(claim)

    def write() -> None:
        DURING.get(f"{stage}:write", noop)(claim)
        lifecycle.log_event(job, "WRITTEN", payload={"at": stage})

    when_lost = partial(DURING["lost"], claim) if "lost" in DURING and stage == "queued" else None
    return claim.end_stage(write, when_lost=when_lost, progress={"written": Stage.values.index(stage)})


def wait(claim: Claim) -> Outcome:
    raise Wait(seconds=60, reason=error_code("waiting_for_nothing"))


def fail(claim: Claim) -> Outcome:
    raise Retryable(error_code("ALWAYS_FAILS"), "This stage always fails.")


def refuse(claim: Claim) -> Outcome:
    raise Permanent(error_code("NEVER_GOOD"), "This stage never goes well.")


def crash(claim: Claim) -> Outcome:
    raise RuntimeError(f"with a value that must not be shown: {claim.job.payload.get('ssn')}")


def violate(claim: Claim) -> Outcome:
    """Meet a unique index with a value that the database repeats in the DETAIL of its error."""
    with claim.transaction(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE owed (ssn text UNIQUE) ON COMMIT DROP")
        cursor.execute("INSERT INTO owed VALUES (%(ssn)s), (%(ssn)s)", claim.job.payload)
    raise AssertionError


def full(claim: Claim) -> Outcome:
    raise OSError(errno.ENOSPC, "No space left on device")


def die(claim: Claim) -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def sleep(claim: Claim) -> Outcome:
    time.sleep(float(claim.job.payload.get("seconds", 60)))
    with claim.transaction():
        return claim.advance()


def nap(claim: Claim) -> Outcome:
    """Sleep, and say so first: a job that is claimed may still be let go of before its stage begins."""
    claim.log_event("ASLEEP")
    return sleep(claim)


def deaf(claim: Claim) -> Outcome:
    """Hold the GIL for an hour or so: no thread of this process can do anything about it."""
    return Advance(payload={"never": sum(range(10**12))})


def perform(claim: Claim) -> Outcome:
    """Do what the job's payload says: "noop", "crash", "die", …"""
    handler: Handler = globals()[claim.job.payload.get("does", "noop")]
    return handler(claim)


def _single(name: str, handler: Handler, *, limit: float = 60.0) -> Pipeline:
    step = Step(Stage.EMBEDDED, handler, always_holds, time_limit=limit, joins_batch=handler in (noop, hold, perform))
    return Pipeline(name, (step,))


_ONE_STAGE_PIPELINES = [
    _single(h.__name__, h) for h in (noop, hold, perform, wait, fail, refuse, crash, violate, full, die, sleep, nap)
]
_STAGES = Pipeline(
    "stages", tuple(Step(stage, noop, always_holds, total_pct=index * 9.0) for index, stage in enumerate(Stage))
)
# Its proofs hold up to chunking and no further.
_UNPROVEN = Pipeline(
    "unproven", tuple(Step(s, noop, always_holds if n < 6 else always_violated) for n, s in enumerate(Stage))
)
_JOINED = Pipeline(
    "joined",
    (
        Step(Stage.QUEUED, write_event, always_holds),
        Step(Stage.JOB_VALIDATED, write_event, always_holds, total_pct=10, joins_commit=True),
        Step(Stage.PARSING, write_event, always_holds, total_pct=20, joins_commit=True),
        Step(Stage.PARSED, write_event, always_holds, total_pct=30),
        Step(Stage.PARSE_VALIDATED, write_event, always_holds, total_pct=40, joins_commit=True),
        Step(Stage.EMBEDDED, noop, always_holds, total_pct=99),
    ),
)
_HANGS = _single("hangs", sleep, limit=1.0)
_DEAF = _single("deaf", deaf, limit=1.0)
PIPELINES = {
    **pipelines.PIPELINES,
    **{plan.name: plan for plan in [*_ONE_STAGE_PIPELINES, _STAGES, _UNPROVEN, _JOINED, _HANGS, _DEAF]},
}
# Insurance up to its parse, for what goes wrong on the way there: nothing later can tell.
_PARSE_ONLY = Pipeline(
    pipelines.INSURANCE.name,
    (*pipelines.INSURANCE.steps_through(Stage.PARSED), Step(Stage.EMBEDDED, noop, always_holds)),
)
PARSE_ONLY = {_PARSE_ONLY.name: _PARSE_ONLY}
