"""Which stage a job has truly reached: proven with no lock held, and acted upon only while the row is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from accounts.errors import ApiError, not_found
from jobs import invariants, pipeline
from jobs.error_codes import JOB_STATE_CHANGED, PIPELINE_UNKNOWN, STAGE_NOT_REACHED, STAGE_UNKNOWN
from jobs.models import UploadJob

T = TypeVar("T")
MAX_TRIES = 3


def check_then_apply(
    job: UploadJob, prove: Callable[[UploadJob], T], act: Callable[[UploadJob, T], UploadJob]
) -> UploadJob:
    """Do ``act(seen, prove(seen))`` in a transaction, where ``seen`` is the job as it was read before the proof.

    Proofs look into the store, which may be far away: no transaction and no lock is held meanwhile (DESIGN §4.4). When
    ``act`` raises ``Changed``, as ``unchanged`` does, all is proven anew. Raises ``Refused``: ``NOT_FOUND`` (deleted),
    ``JOB_STATE_CHANGED`` (changed time and again), and what ``prove`` and ``act`` raise.
    """
    for _ in range(MAX_TRIES):
        seen = UploadJob.objects.filter(pk=job.pk).first()
        if seen is None:
            raise not_found()
        with invariants.shared_checks():
            proven = prove(seen)
        try:
            with transaction.atomic():
                return act(seen, proven)
        except RowChanged:
            continue
    raise state_changed()


class RowChanged(Exception):
    """The row is not what was proven."""


def lock_unchanged(seen: UploadJob) -> None:
    """Lock the job's row until the transaction ends; raise ``Changed`` unless it is as it was ``seen``."""
    row = UploadJob.objects.select_for_update().filter(pk=seen.pk).values_list("stage", "state", "updated_at").first()
    if row != (seen.stage, seen.state, seen.updated_at):
        raise RowChanged


def latest_valid_stage(job: UploadJob) -> str:
    """Return the latest stage, up to where the job stands, at which the database agrees that it may stand."""
    reached = pipeline_of(job).steps_through(job.stage)
    return next((step.stage for step in reversed(reached) if not step.invariant([job.pk])), reached[0].stage).value


def check_retry_stage(job: UploadJob, stage: str) -> str:
    """Return ``stage`` if the job may be retried from there; the refusal names the latest that it may."""
    if stage not in [step.stage for step in pipeline_of(job).steps]:
        raise ApiError(STAGE_UNKNOWN, field="stage")
    latest = latest_valid_stage(job)
    step = next((step for step in pipeline_of(job).steps_through(latest) if step.stage == stage), None)
    why = "The job has not come so far." if step is None else step.invariant([job.pk]).get(job.pk)
    if why and stage != latest:
        detail = f"The job cannot be retried from there. {why} The latest stage that is proven is {latest}."
        raise ApiError(STAGE_NOT_REACHED, detail, field="stage")
    return stage


def pipeline_of(job: UploadJob) -> pipeline.Pipeline:
    """Return the job's pipeline, or raise ``Refused("PIPELINE_UNKNOWN")``."""
    try:
        return pipeline.get_pipeline(job.pipeline)
    except ImproperlyConfigured as error:
        detail = "The job's pipeline is not deployed here."
        raise ApiError(PIPELINE_UNKNOWN, detail) from error


def state_changed() -> ApiError:
    detail = "The job has moved on meanwhile; look at it again."
    return ApiError(JOB_STATE_CHANGED, detail)
