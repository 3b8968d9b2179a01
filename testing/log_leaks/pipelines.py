"""Pipelines with stages that leak, for real workers (setting JOBS_PIPELINES)."""

from __future__ import annotations

from django.db import connection

from accessa import pipelines
from documents.parsers.sandbox.client import SandboxClient
from jobs.claims import Claim
from jobs.outcomes import Advance, Outcome
from jobs.pipeline import Handler, Pipeline, Step
from jobs.states import Stage
from testing import log_leaks
from testing.noop_pipelines import always_holds


def says(claim: Claim) -> Outcome:
    log_leaks.leak()
    raise ValueError(log_leaks.ALL)


def meets_a_constraint(claim: Claim) -> Outcome:
    """The database repeats the row in the DETAIL of its error, in its answer and in its own log."""
    with claim.transaction(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE owed (said text UNIQUE) ON COMMIT DROP")
        cursor.execute("INSERT INTO owed VALUES (%(all)s), (%(all)s)", {"all": log_leaks.ALL})
    raise AssertionError


def has_a_child_that_says(claim: Claim) -> Outcome:
    SandboxClient(module="testing.log_leaks").request({}, wall_seconds=10.0)
    raise AssertionError


def breaks_the_drain(claim: Claim) -> Outcome:
    """A bug outside of any stage: the machine refuses to write such a field, and names it."""
    return Advance(fields={log_leaks.ALL: 1})


def _plan(name: str, handler: Handler) -> Pipeline:
    return Pipeline(name, (Step(Stage.EMBEDDED, handler, always_holds, time_limit=60),))


LEAKY = {
    name: _plan(name, handler)
    for name, handler in {
        "leaky": says,
        "leaky-constraint": meets_a_constraint,
        "leaky-child": has_a_child_that_says,
        "leaky-drain": breaks_the_drain,
    }.items()
}
PIPELINES = pipelines.PIPELINES | LEAKY
