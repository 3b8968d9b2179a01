"""Invariant report: which stages of a job hold, as support reads it."""

from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from jobs import pipeline
from jobs.models import UploadJob


@dataclass(frozen=True, slots=True)
class InvariantStatus:
    """A stage with the verdict on its invariant.

    ``holds``, ``broken``, ``passed`` (it held once: a later stage holds, and a buffer is emptied when it has been
    committed), ``ahead`` (not reached yet), ``unknown`` (the store cannot be reached).
    """

    stage: str
    verdict: str
    reason: str = ""


def invariant_report(job: UploadJob) -> list[InvariantStatus]:
    """Check every stage of the job's pipeline, which reads the store. Empty where the pipeline is not deployed."""
    try:
        job_pipeline = pipeline.get_pipeline(job.pipeline)
        reached = len(job_pipeline.steps_through(job.stage))
    except ImproperlyConfigured:
        return []
    report: list[InvariantStatus] = []
    later_stage_holds = False
    with pipeline.shared_checks():
        for number, step in reversed(list(enumerate(job_pipeline.steps))):
            status = _check_stage(job, step, is_reached=number < reached, later_stage_holds=later_stage_holds)
            later_stage_holds |= status.verdict == "holds" and number < reached
            report.append(status)
    return report[::-1]


def _check_stage(job: UploadJob, step: pipeline.Step, *, is_reached: bool, later_stage_holds: bool) -> InvariantStatus:
    try:
        violation = step.invariant([job.pk]).get(job.pk)
    except OSError:
        return InvariantStatus(step.stage.value, "unknown", "The file store cannot be reached.")
    if violation is None:
        return InvariantStatus(step.stage.value, "holds")
    if not is_reached:  # the stages before say why not
        return InvariantStatus(step.stage.value, "ahead")
    return InvariantStatus(step.stage.value, "passed" if later_stage_holds else "broken", violation)
