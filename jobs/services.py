"""What may be asked of the machine: the same verbs for the API, the admin, the commands and the handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django_q.tasks import async_task
from psycopg.types.json import Jsonb

from jobs import context, lifecycle, plan, queue
from jobs.journal import log_event
from jobs.models import Event, UploadJob
from jobs.states import ACTIVE, Stage, State
from tenancy.refusals import Refused, not_found

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")


def enqueue(*, pipeline: str, user_id: UUID, document_id: UUID, **columns: Any) -> UploadJob:
    """Insert a job at the first stage of ``pipeline``, in the caller's transaction, and ring when it commits.

    Raises ``Refused("JOB_ALREADY_ACTIVE")`` when the document has a job under way. A campaign's job that is under way
    is cancelled for the sake of a tenant's.
    """
    first = plan.pipeline(pipeline).steps[0].stage

    def insert() -> UploadJob:
        return UploadJob.objects.create(
            pipeline=pipeline, user_id=user_id, document_id=document_id, stage=first, **columns
        )

    job = _activated(insert, document_id, low=columns.get("campaign_id") is not None)
    log_event(job, "UPLOAD_ACCEPTED", Event.Type.STAGE_STARTED)
    ring()
    return job


def _activated(activate: Callable[[], UploadJob], document_id: UUID, *, low: bool) -> UploadJob:
    """Make the one active job of a document: a campaign's gives way to a tenant's, any other is in the way."""
    try:
        with transaction.atomic():
            return activate()
    except IntegrityError as error:
        if "uq_job_doc" not in str(error):
            raise
        if low:
            raise already_active() from error
    _supersede(document_id)
    return _activated(activate, document_id, low=True)


_CAMPAIGNS = """
    SELECT job_id FROM upload_jobs
    WHERE document_id = %(document_id)s AND campaign_id IS NOT NULL AND state IN ('queued', 'working', 'retryable')
    FOR UPDATE"""


def _supersede(document_id: UUID) -> None:
    """Any active state -> deadletter with code ``SUPERSEDED``: cancel the campaign's job of a document."""
    error = {"code": "SUPERSEDED", "detail": "The tenant's own job came first."}
    params = {"document_id": document_id, "error": Jsonb(error), **_journalled("cancel", {}, "SUPERSEDED")}
    lifecycle.execute(lifecycle.statement("cancel", _CAMPAIGNS), params)


def already_active() -> Refused:
    detail = "This document is being worked on; wait until its job has ended."
    return Refused("JOB_ALREADY_ACTIVE", detail, status=HTTPStatus.CONFLICT)


def ring() -> None:
    """Wake a worker once the present transaction has committed. The row decides; a lost ring costs a second."""
    transaction.on_commit(_ring, robust=True)  # what is committed must not fail for the sake of a bell


def _ring() -> None:
    async_task("jobs.runner.drain")


def of_tenants() -> QuerySet[UploadJob]:
    """Return the jobs that tenants asked for: those of campaigns are not theirs to see."""
    return UploadJob.objects.filter(campaign_id=None)


def latest(document_id: UUID) -> UploadJob:
    """Return the document's newest job, whoever owns it, or raise ``Refused("NOT_FOUND")``."""
    job = newest(of_tenants().filter(document_id=document_id))
    if job is None:
        raise not_found()
    return job


def newest(jobs: QuerySet[UploadJob]) -> UploadJob | None:
    return jobs.order_by("-created_at", "-job_id").first()


def retry(job: UploadJob, *, by: str, stage: str | None = None) -> UploadJob:
    """deadletter -> queued: try again from the last stage whose proof holds (002 §8). ``by`` is who asks, as an id.

    From an earlier ``stage``, what its plan chooses (parser, chunker, model) is chosen anew, by today's settings. The
    same choice makes and buys nothing again: what is stored and sound is passed over or taken as it is. Another choice
    is other work, and costs what that costs. Raises ``Refused``: ``JOB_ALREADY_ACTIVE``, ``JOB_DONE``, ``NOT_FOUND``
    (deleted), ``STAGE_UNKNOWN``, ``STAGE_NOT_REACHED``, ``PIPELINE_UNKNOWN``, ``JOB_STATE_CHANGED`` (somebody else was
    first).
    """
    if job.state in ACTIVE:
        raise already_active()
    if job.state == State.DONE:
        raise Refused("JOB_DONE", "This job has ended well; there is nothing to retry.", status=HTTPStatus.CONFLICT)

    def requeue() -> UploadJob:
        # Locked first: nothing may change between the proof and the move.
        locked = UploadJob.objects.select_for_update().filter(pk=job.pk).first()
        if locked is None:  # deleted meanwhile
            raise not_found()
        start = _last_proven(locked) if stage is None else _earlier(locked, stage)
        # Planned anew, a parse is to be found or made anew: one that was made by another plan must not stand for it.
        forgotten = {"parsed_path": None, "parsed_sha256": None} if start in _BEFORE_PARSE else {}
        return _one("requeue", job, event={"by": by, "from": locked.stage}, fields=forgotten, stage=start)

    return _activated(requeue, job.document_id, low=job.campaign_id is not None)


_BEFORE_PARSE = (Stage.QUEUED, Stage.JOB_VALIDATED)


def replan(job: UploadJob) -> None:
    """Forget what an idle job has planned and parsed: its retry goes back to where the plan is made."""
    dead = UploadJob.objects.filter(pk=job.pk, state=State.DEADLETTER)
    dead.update(payload={}, parsed_path=None, parsed_sha256=None)


def _last_proven(job: UploadJob) -> str:
    """Return the latest stage, up to where the job stands, at which the database agrees that it may stand."""
    reached = _planned(job).upto(job.stage)
    return next((step.stage for step in reversed(reached) if not step.proof([job.pk])), reached[0].stage).value


def _earlier(job: UploadJob, stage: str) -> str:
    """Return ``stage`` if the job may be retried from there; the refusal names the latest that it may."""
    if stage not in [step.stage for step in _planned(job).steps]:
        raise Refused("STAGE_UNKNOWN", "The job's pipeline has no such stage.", field="stage")
    latest = _last_proven(job)
    step = next((step for step in _planned(job).upto(latest) if step.stage == stage), None)
    why = "The job has not come so far." if step is None else step.proof([job.pk]).get(job.pk)
    if why and stage != latest:
        detail = f"The job cannot be retried from there. {why} The latest stage that is proven is {latest}."
        raise Refused("STAGE_NOT_REACHED", detail, status=HTTPStatus.CONFLICT, field="stage")
    return stage


def _planned(job: UploadJob) -> plan.Pipeline:
    try:
        return plan.pipeline(job.pipeline)
    except ImproperlyConfigured as error:
        detail = "The job's pipeline is not deployed here."
        raise Refused("PIPELINE_UNKNOWN", detail, status=HTTPStatus.CONFLICT) from error


def cancel(job: UploadJob, *, by: str) -> UploadJob:
    """Any active state -> deadletter with code ``CANCELLED``; a worker that holds it can write nothing more."""
    return _ended(job, by=by, code="CANCELLED", detail="The job was cancelled.")


def bury(job: UploadJob, *, by: str) -> UploadJob:
    """Any active state -> deadletter with code ``MOVED_BY_STAFF``: ended like ``cancel``, and counted as failed."""
    return _ended(job, by=by, code="MOVED_BY_STAFF", detail="Support has stopped this job to look into it.")


def _ended(job: UploadJob, *, by: str, code: str, detail: str) -> UploadJob:
    error = {"code": code, "detail": detail, "stage": job.stage, "attempt": job.attempts}
    last = (job.last_error or {}).get("code")
    event = {"by": by, **({"last_error": last} if last else {})}
    return _one("cancel", job, event=event, code=code, error=Jsonb(error))


def advance(job: UploadJob, *, by: str) -> UploadJob:
    """Move an idle job to its next stage, if what the stage promises holds in the database (002 §8)."""
    following = plan.pipeline(job.pipeline).after(job.stage)
    if following is None or job.state not in (State.QUEUED, State.RETRYABLE):
        detail = "Only a waiting job that has a next stage can be advanced."
        raise Refused("JOB_NOT_WAITING", detail, status=HTTPStatus.CONFLICT)
    with transaction.atomic():
        if not UploadJob.objects.select_for_update().filter(pk=job.pk, stage=job.stage).exists():
            raise _moved_on()
        broken = following.proof([job.pk])
        if broken:
            raise Refused("INVARIANT_VIOLATED", broken[job.pk], status=HTTPStatus.CONFLICT, field=following.stage)
        values: dict[str, Any] = {"stage": following.stage.value, "total_pct": following.reached_pct}
        return _one("push", job, event={"by": by, "from": job.stage}, **values)


def deliver(job: UploadJob, *, code: str, event: Mapping[str, Any], **fields: Any) -> UploadJob:
    """Move a job on, in the caller's transaction, because what it waits for has come; a poller loses its claim.

    Raises ``Refused("JOB_STATE_CHANGED")`` when the job has moved on since ``job`` was read under its row's lock.
    """
    following = plan.pipeline(job.pipeline).after(job.stage)
    if following is None:  # the last stage waits for nothing
        raise _moved_on()
    values: dict[str, Any] = {"stage": following.stage.value, "total_pct": following.reached_pct}
    return _one("deliver", job, event={"from": job.stage, **event}, code=code, fields=fields, **values)


def wake(document_id: UUID) -> None:
    """End the wait of the document's job at once: what it waited for has come.

    A job whose worker has looked in vain but has not parked it yet is told not to wait.
    """
    params = {"document_id": document_id, **_journalled("due", {})}
    with transaction.atomic():
        # In this order: a wait that is just being written is waited for here, and seen by the next statement.
        lifecycle.execute(queue.WAKE_WORKING, params)
        if lifecycle.execute(lifecycle.statement("due", queue.WAITING), params):
            ring()


def sweep() -> int:
    """Move what time alone moves: parked rows that are due, and rows whose worker is gone. Returns how many."""
    lost = {"code": "WORKER_LOST", "detail": "The worker that ran this stage is gone."}
    moved = _all("due", queue.PARKED, {})
    moved += _all("expire", queue.EXPIRED_AGAIN, {"error": Jsonb(lost), "retries": settings.JOBS_MAX_RETRIES})
    _all(
        "bury",
        queue.EXPIRED_ONCE_TOO_OFTEN,
        {"error": Jsonb(lost), "retries": settings.JOBS_MAX_RETRIES, "traceback": None},
    )
    return moved


def _all(name: str, pick: str, params: Mapping[str, Any]) -> int:
    rows = lifecycle.execute(lifecycle.statement(name, pick), {**params, **_journalled(name, {})})
    for row in rows if "error" in params else ():
        log.warning(lifecycle.MOVES[name].code, **context.of(lifecycle.loaded(row)), stage=row["stage"])
    return len(rows)


_ONE = "SELECT job_id FROM upload_jobs WHERE job_id = %(job_id)s FOR UPDATE"


def _one(
    name: str,
    job: UploadJob,
    *,
    event: Mapping[str, Any],
    code: str | None = None,
    fields: Mapping[str, Any] | None = None,
    **values: Any,
) -> UploadJob:
    given = dict(fields or {})
    params = {"job_id": job.pk, **values, **lifecycle.adapted(given), **_journalled(name, event, code)}
    rows = lifecycle.execute(lifecycle.statement(name, _ONE, fields=tuple(given)), params)
    if not rows:
        raise _moved_on()
    ring()
    return lifecycle.loaded(rows[0])


def _moved_on() -> Refused:
    detail = "The job has moved on meanwhile; look at it again."
    return Refused("JOB_STATE_CHANGED", detail, status=HTTPStatus.CONFLICT)


def _journalled(name: str, event: Mapping[str, Any], code: str | None = None) -> dict[str, Any]:
    return {f"{name}_code": code, f"{name}_event": Jsonb(dict(event))}
