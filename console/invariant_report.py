"""What is proven of each stage of a job, as support reads it."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from jobs import invariants, pipeline
from jobs.models import UploadJob


@dataclass(frozen=True, slots=True)
class Proven:
    """A stage, what its proof said, and how that is meant.

    ``holds``, ``broken``, ``passed`` (it held once: a later stage holds, and a buffer is emptied when it has been
    committed), ``ahead`` (not reached yet), ``unknown`` (the store cannot be reached).
    """

    stage: str
    verdict: str
    reason: str = ""


def of(job: UploadJob) -> list[Proven]:
    """Prove every stage of the job's pipeline; nothing where the pipeline is not deployed. Reads the store."""
    try:
        steps = pipeline.get_pipeline(job.pipeline).steps
        reached = len(pipeline.get_pipeline(job.pipeline).steps_through(job.stage))
    except ImproperlyConfigured:
        return []
    found: list[Proven] = []
    is_later_proven = False
    with invariants.shared_checks():
        for number, step in reversed(list(enumerate(steps))):
            proven = _proven(job, step, is_reached=number < reached, is_later_proven=is_later_proven)
            is_later_proven |= proven.verdict == "holds" and number < reached
            found.append(proven)
    return found[::-1]


def _proven(job: UploadJob, step: pipeline.Step, *, is_reached: bool, is_later_proven: bool) -> Proven:
    try:
        broken = step.invariant([job.pk]).get(job.pk)
    except OSError:
        return Proven(step.stage.value, "unknown", "The file store cannot be reached.")
    if broken is None:
        return Proven(step.stage.value, "holds")
    if not is_reached:  # why not is said by the stages before
        return Proven(step.stage.value, "ahead")
    return Proven(step.stage.value, "passed" if is_later_proven else "broken", broken)
