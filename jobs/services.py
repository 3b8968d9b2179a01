"""What may be asked of the machine: the same verbs for the API, the admin, the commands and the handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django_q.tasks import async_task
from psycopg.types.json import Jsonb

from accounts.errors import ApiError, not_found
from jobs import lifecycle, log_context, queries, resume
from jobs import pipeline as plan
from jobs.error_codes import INVARIANT_VIOLATED, JOB_ALREADY_ACTIVE, JOB_DONE, JOB_NOT_WAITING
from jobs.events import log_event
from jobs.models import Event, UploadJob
from jobs.states import ACTIVE, Stage, State

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")


def enqueue(*, pipeline: str, user_id: UUID, document_id: UUID, **columns: Any) -> UploadJob:
    """Insert a job at the first stage of ``pipeline``, in the caller's transaction, and ring when it commits.

    Raises ``Refused("JOB_ALREADY_ACTIVE")`` when the document has a job under way. A campaign's job that is under way
    is cancelled for the sake of a tenant's.
    """
    first = plan.get_pipeline(pipeline).steps[0].stage

    def insert() -> UploadJob:
        return UploadJob.objects.create(
            pipeline=pipeline, user_id=user_id, document_id=document_id, stage=first, **columns
        )

    job = _activated(insert, document_id, low=columns.get("campaign_id") is not None)
    log_event(job, "UPLOAD_ACCEPTED", Event.Type.STAGE_STARTED)
    notify_workers()
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
    lifecycle.execute(lifecycle.move_statement("cancel", _CAMPAIGNS), params)


def already_active() -> ApiError:
    detail = "This document is being worked on; wait until its job has ended."
    return ApiError(JOB_ALREADY_ACTIVE, detail)


def notify_workers() -> None:
    """Wake a worker once the present transaction has committed. The row decides; a lost ring costs a second."""
    transaction.on_commit(_ring, robust=True)  # what is committed must not fail for the sake of a bell


def _ring() -> None:
    async_task("jobs.worker.drain")


def tenant_jobs() -> QuerySet[UploadJob]:
    """Return the jobs that tenants asked for: those of campaigns are not theirs to see."""
    return UploadJob.objects.filter(campaign_id=None)


def get_latest_job(document_id: UUID) -> UploadJob:
    """Return the document's newest job, whoever owns it, or raise ``Refused("NOT_FOUND")``."""
    job = newest_job(tenant_jobs().filter(document_id=document_id))
    if job is None:
        raise not_found()
    return job


def lock_jobs(document_id: UUID) -> None:
    """Lock the rows of a document's jobs until the caller's transaction ends."""
    list(UploadJob.objects.select_for_update(no_key=True).filter(document_id=document_id).order_by("pk").values("pk"))


def newest_job(jobs: QuerySet[UploadJob]) -> UploadJob | None:
    return jobs.order_by("-created_at", "-job_id").first()


def retry(
    job: UploadJob, *, by: str, stage: str | None = None, noted: Callable[[UploadJob, UploadJob], None] | None = None
) -> UploadJob:
    """deadletter -> queued: try again from the last stage whose proof holds (002 §8). ``by`` is who asks, as an id.

    From an earlier ``stage``, what its plan chooses (parser, chunker, model) is chosen anew, by today's settings. The
    same choice makes and buys nothing again: what is stored and sound is passed over or taken as it is. Another choice
    is other work, and costs what that costs. ``noted`` is told the job before and after, in the move's transaction.
    Raises ``Refused``: ``JOB_ALREADY_ACTIVE``, ``JOB_DONE``, ``NOT_FOUND`` (deleted), ``STAGE_UNKNOWN``,
    ``STAGE_NOT_REACHED``, ``PIPELINE_UNKNOWN``, ``JOB_STATE_CHANGED`` (it keeps changing); ``OSError`` of the store.
    """

    def prove(seen: UploadJob) -> str:
        if seen.state in ACTIVE:
            raise already_active()
        if seen.state == State.DONE:
            detail = "This job has ended well; there is nothing to retry."
            raise ApiError(JOB_DONE, detail)
        return resume.latest_valid_stage(seen) if stage is None else resume.check_retry_stage(seen, stage)

    def requeue(seen: UploadJob, start: str) -> UploadJob:
        resume.lock_unchanged(seen)
        # Planned anew, a parse is to be found or made anew: one that was made by another plan must not stand for it.
        forgotten = {"parsed_path": None, "parsed_sha256": None} if start in _BEFORE_PARSE else {}
        moved = _one("requeue", seen, event={"by": by, "from": seen.stage}, fields=forgotten, stage=start)
        if noted is not None:
            noted(seen, moved)
        return moved

    def activate(seen: UploadJob, start: str) -> UploadJob:
        return _activated(lambda: requeue(seen, start), seen.document_id, low=seen.campaign_id is not None)

    return resume.check_then_apply(job, prove, activate)


_BEFORE_PARSE = (Stage.QUEUED, Stage.JOB_VALIDATED)


def reset_plan(job: UploadJob) -> None:
    """Forget what an idle job has planned and parsed: its retry goes back to where the plan is made."""
    dead = UploadJob.objects.filter(pk=job.pk, state=State.DEADLETTER)
    dead.update(payload={}, parsed_path=None, parsed_sha256=None, updated_at=Now())


def cancel(job: UploadJob, *, by: str) -> UploadJob:
    """Any active state -> deadletter with code ``CANCELLED``; a worker that holds it can write nothing more."""
    return _ended(job, by=by, code="CANCELLED", detail="The job was cancelled.")


def discard(job: UploadJob, *, by: str) -> UploadJob:
    """Any active state -> deadletter with code ``MOVED_BY_STAFF``: ended like ``cancel``, and counted as failed."""
    return _ended(job, by=by, code="MOVED_BY_STAFF", detail="Support has stopped this job to look into it.")


def _ended(job: UploadJob, *, by: str, code: str, detail: str) -> UploadJob:
    error = {"code": code, "detail": detail, "stage": job.stage, "attempt": job.attempts, "permanent": True}
    last = (job.last_error or {}).get("code")
    event = {"by": by, **({"last_error": last} if last else {})}
    return _one("cancel", job, event=event, code=code, error=Jsonb(error))


def advance(job: UploadJob, *, by: str) -> UploadJob:
    """Move an idle job to its next stage, if what the stage promises holds in the database (002 §8)."""

    def prove(seen: UploadJob) -> plan.Step:
        following = resume.pipeline_of(seen).next_step(seen.stage)
        if following is None or seen.state not in (State.QUEUED, State.RETRYABLE):
            detail = "Only a waiting job that has a next stage can be advanced."
            raise ApiError(JOB_NOT_WAITING, detail)
        if seen.stage != job.stage:  # not the step that was asked for
            raise resume.state_changed()
        broken = following.invariant([seen.pk])
        if broken:
            raise ApiError(INVARIANT_VIOLATED, broken[seen.pk], field=following.stage)
        return following

    def push(seen: UploadJob, following: plan.Step) -> UploadJob:
        resume.lock_unchanged(seen)
        values: dict[str, Any] = {"stage": following.stage.value, "total_pct": following.total_pct}
        return _one("push", seen, event={"by": by, "from": seen.stage}, **values)

    return resume.check_then_apply(job, prove, push)


def complete_wait(job: UploadJob, *, code: str, event: Mapping[str, Any], **fields: Any) -> UploadJob:
    """Move a job on, in the caller's transaction, because what it waits for has come; a poller loses its claim.

    Raises ``Refused("JOB_STATE_CHANGED")`` when the job has moved on since ``job`` was read under its row's lock.
    """
    following = plan.get_pipeline(job.pipeline).next_step(job.stage)
    if following is None:  # the last stage waits for nothing
        raise resume.state_changed()
    values: dict[str, Any] = {"stage": following.stage.value, "total_pct": following.total_pct}
    return _one("deliver", job, event={"from": job.stage, **event}, code=code, fields=fields, **values)


def wake_job(document_id: UUID) -> None:
    """End the wait of the document's job at once: what it waited for has come.

    A job whose worker has looked in vain but has not parked it yet is told not to wait.
    """
    params = {"document_id": document_id, **_journalled("due", {})}
    with transaction.atomic():
        # In this order: a wait that is just being written is waited for here, and seen by the next statement.
        lifecycle.execute(queries.WAKE_WORKING, params)
        if lifecycle.execute(lifecycle.move_statement("due", queries.WAITING), params):
            notify_workers()


def requeue_due_and_expired() -> int:
    """Move what time alone moves: parked rows that are due, and rows whose worker is gone. Returns how many."""
    lost = {"code": "WORKER_LOST", "detail": "The worker that ran this stage is gone."}
    moved = _all("due", queries.PARKED, {})
    moved += _all("expire", queries.EXPIRED_AGAIN, {"error": Jsonb(lost), "retries": settings.JOBS_MAX_RETRIES})
    _all(
        "discard",
        queries.EXPIRED_ONCE_TOO_OFTEN,
        {"error": Jsonb(lost), "retries": settings.JOBS_MAX_RETRIES, "traceback": None},
    )
    return moved


def _all(name: str, pick: str, params: Mapping[str, Any]) -> int:
    rows = lifecycle.execute(lifecycle.move_statement(name, pick), {**params, **_journalled(name, {})})
    for row in rows if "error" in params else ():
        log.warning(lifecycle.MOVES[name].code, **log_context.job_fields(lifecycle.load_job(row)), stage=row["stage"])
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
    params = {"job_id": job.pk, **values, **lifecycle.adapt_fields(given), **_journalled(name, event, code)}
    rows = lifecycle.execute(lifecycle.move_statement(name, _ONE, fields=tuple(given)), params)
    if not rows:
        raise resume.state_changed()
    notify_workers()
    return lifecycle.load_job(rows[0])


def _journalled(name: str, event: Mapping[str, Any], code: str | None = None) -> dict[str, Any]:
    return {f"{name}_code": code, f"{name}_event": Jsonb(dict(event))}
