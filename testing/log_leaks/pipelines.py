"""Pipelines with stages that leak, for real workers (setting JOBS_PIPELINES)."""

from django.db import connection

from accessa import pipelines
from documents.parsers.sandbox.client import SandboxClient
from jobs.choices import Stage
from jobs.claims import Claim
from jobs.outcomes import Advance, Outcome
from jobs.pipeline import Handler, Pipeline, Step
from testing import log_leaks
from testing.stub_pipelines import always_holds


def leak_and_fail(claim: Claim) -> Outcome:
    log_leaks.leak()
    raise ValueError(log_leaks.ALL)


def violate_constraint(claim: Claim) -> Outcome:
    """Violate a constraint: the database repeats the row in DETAIL, in its response and in its own log."""
    with claim.transaction(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE owed (said text UNIQUE) ON COMMIT DROP")
        cursor.execute("INSERT INTO owed VALUES (%(all)s), (%(all)s)", {"all": log_leaks.ALL})
    raise AssertionError


def leak_in_child(claim: Claim) -> Outcome:
    SandboxClient(module="testing.log_leaks").request({}, wall_seconds=10.0)
    raise AssertionError


def return_invalid_outcome(claim: Claim) -> Outcome:
    """Return an invalid outcome: the worker refuses to write the field, and names it."""
    return Advance(fields={log_leaks.ALL: 1})


def _plan(name: str, handler: Handler) -> Pipeline:
    return Pipeline(name, (Step(Stage.EMBEDDED, handler, always_holds, time_limit=60),))


LEAKY = {
    name: _plan(name, handler)
    for name, handler in {
        "leaky": leak_and_fail,
        "leaky-constraint": violate_constraint,
        "leaky-child": leak_in_child,
        "leaky-drain": return_invalid_outcome,
    }.items()
}
PIPELINES = pipelines.PIPELINES | LEAKY
