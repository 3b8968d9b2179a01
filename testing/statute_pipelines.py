"""Test pipelines for statutes: the message's key decides the outcome of the job; no file is read."""

import os
import signal
import time
from pathlib import PurePosixPath

from django.db.models import F

from accessa import pipelines
from jobs.choices import Stage
from jobs.claims import Claim
from jobs.outcomes import Moved, Outcome, Permanent, Retryable
from jobs.pipeline import Pipeline, Step
from statutes.models import LawVersion
from testing.error_codes import error_code
from testing.stub_pipelines import always_holds


def work(claim: Claim) -> Outcome:
    """Do what the last part of the key says: ``ok``, ``sleep-1.5``, ``refuse``, ``fail``, ``die``."""
    version = LawVersion.objects.get(pk=claim.job.document_id)
    what, _, seconds = PurePosixPath(version.raw_key).name.partition("-")
    if what == "sleep":
        time.sleep(float(seconds))
    elif what == "refuse":
        raise Permanent(error_code("NOT_A_LAW"), "This file is no law.")
    elif what == "fail":
        raise Retryable(error_code("ALWAYS_FAILS"), "This file is never read.")
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    with claim.transaction():
        return claim.advance()


def publish(claim: Claim) -> Moved:
    """Count the result: of one version there must be one, however often its message came."""
    with claim.transaction():
        LawVersion.objects.filter(pk=claim.job.document_id).update(reprocessed=F("reprocessed") + 1)
        return claim.advance()


STATUTE = Pipeline("statute", (Step(Stage.QUEUED, work, always_holds), Step(Stage.EMBEDDED, publish, always_holds)))
PIPELINES = {**pipelines.PIPELINES, "statute": STATUTE}
