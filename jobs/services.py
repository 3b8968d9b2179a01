"""Services of jobs: enqueue, retry, cancel, discard, advance and wake, and the requeue of due and expired jobs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django_q.tasks import async_task

from accounts.common_error_codes import not_found
from accounts.errors import ApiError, ErrorCode
from accounts.idempotency_keys import IdempotentRequest
from accounts.rls import fetch_as_tenant
from jobs import error_codes, lifecycle
from jobs.choices import ACTIVE, Stage, State
from jobs.models import Event, UploadJob
from jobs.pipeline import Pipeline, Step, get_pipeline, shared_checks
from jobs.telemetry import job_fields

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.jobs")

T = TypeVar("T")
MAX_TRIES = 3
MAX_OVERLOADS = 10  # claims of a job that an overloaded machine may lose; each further one costs an attempt
BEFORE_PARSE = (Stage.QUEUED, Stage.JOB_VALIDATED)

TENANT_JOB = """
    SELECT job_id, document_id, stage, state, retry_count, progress, total_pct, cost_cents, last_error, updated_at
    FROM upload_jobs WHERE job_id = %(job_id)s AND user_id = %(user_id)s AND campaign_id IS NULL"""
LOCK_JOB = "SELECT job_id FROM upload_jobs WHERE job_id = %(job_id)s FOR UPDATE"
ACTIVE_CAMPAIGN_JOB = """
    SELECT job_id FROM upload_jobs
    WHERE document_id = %(document_id)s AND campaign_id IS NOT NULL AND state IN ('queued', 'working', 'retryable')
    FOR UPDATE"""
# The document's job while it waits.
WAITING = """
    SELECT job_id FROM upload_jobs
    WHERE document_id = %(document_id)s AND state = 'queued' AND run_after IS NOT NULL FOR UPDATE"""
WAKE_WORKING = f"""
    UPDATE upload_jobs SET wait_reason = '{lifecycle.WOKEN}'
    WHERE document_id = %(document_id)s AND state = 'working' RETURNING job_id"""

# Seconds until the first row that is parked or leased times out; NULL without any.
SECONDS_TO_TIMEOUT = """extract(epoch FROM least(
    (SELECT min(run_after) FROM upload_jobs WHERE run_after IS NOT NULL),
    (SELECT min(lease_until) FROM upload_jobs WHERE state = 'working')) - clock_timestamp())::float8"""
# Limited, so that the first run after a long outage does not lock thousands of rows at once.
PARKED = """
    SELECT job_id FROM upload_jobs WHERE run_after <= clock_timestamp()
    ORDER BY run_after LIMIT 500 FOR UPDATE SKIP LOCKED"""
EXPIRED = """
    SELECT job_id FROM upload_jobs
    WHERE state = 'working' AND lease_until < clock_timestamp() AND {condition}
    ORDER BY lease_until LIMIT 100 FOR UPDATE SKIP LOCKED"""
EXPIRED_IN_BATCH = EXPIRED.format(condition="in_batch")
_IS_OVERLOAD = "overloaded AND overloads < %(most_overloads)s"
EXPIRED_BY_OVERLOAD = EXPIRED.format(condition=f"NOT in_batch AND {_IS_OVERLOAD}")
EXPIRED_AGAIN = EXPIRED.format(condition=f"NOT in_batch AND NOT ({_IS_OVERLOAD}) AND attempts <= %(retries)s")
EXPIRED_TOO_OFTEN = EXPIRED.format(condition=f"NOT in_batch AND NOT ({_IS_OVERLOAD}) AND attempts > %(retries)s")
# The table of `vendors`, by its name: jobs import nothing of it. By the document, which the index begins with.
UNSETTLED_CENTS = """
    SELECT job_id, sum(cents)::float8 FROM purchases
    WHERE document_id = ANY(%(documents)s) AND job_id = ANY(%(jobs)s) AND state = 'reserved' GROUP BY 1"""


def tenant_jobs() -> QuerySet[UploadJob]:
    """Return the jobs that tenants started. Tenants do not see the jobs of campaigns."""
    return UploadJob.objects.filter(campaign_id=None)


def get_tenant_job(user_id: UUID, job_id: UUID) -> UploadJob | None:
    """Return what ``JobResponse`` shows of one of the tenant's jobs, or None for any other job."""
    rows = fetch_as_tenant(user_id, TENANT_JOB, {"user_id": user_id, "job_id": job_id})
    return lifecycle.load_job(rows[0]) if rows else None


def newest_job(jobs: QuerySet[UploadJob]) -> UploadJob | None:
    return jobs.order_by("-created_at", "-job_id").first()


def get_latest_job(document_id: UUID) -> UploadJob:
    """Return the document's newest job, whoever owns it, or raise ``ApiError("NOT_FOUND")``."""
    job = newest_job(tenant_jobs().filter(document_id=document_id))
    if job is None:
        raise not_found()
    return job


def sum_unsettled_cents(jobs: Iterable[UploadJob]) -> dict[UUID, float]:
    """Return what each job has spent in calls that were not settled, where that is not 0."""
    jobs = list(jobs)
    ids = {"jobs": [job.pk for job in jobs], "documents": [job.document_id for job in jobs]}
    with connection.cursor() as cursor:
        cursor.execute(UNSETTLED_CENTS, ids)
        return dict(cursor.fetchall())


def lock_jobs(document_id: UUID) -> None:
    list(UploadJob.objects.select_for_update(no_key=True).filter(document_id=document_id).order_by("pk").values("pk"))


def notify_workers() -> None:
    """Wake a worker once the current transaction has committed. A lost notification costs a second."""
    # Robust: what is committed must not fail because of a notification.
    transaction.on_commit(lambda: async_task("jobs.worker.drain"), robust=True)


def enqueue(*, pipeline: str, user_id: UUID, document_id: UUID, **columns: Any) -> UploadJob:
    """Insert a job at the first stage of a pipeline, in the caller's transaction, and notify the workers.

    A campaign's job has low priority, and a tenant's job cancels it while it is active. Raises
    ``ApiError("JOB_ALREADY_ACTIVE")``.
    """
    is_campaign = columns.get("campaign_id") is not None
    defaults = {"job_id": uuid4(), "correlation_id": uuid4(), "low_priority": is_campaign, "payload": {}}
    first = {"pipeline": pipeline, "stage": get_pipeline(pipeline).steps[0].stage.value}
    columns = defaults | columns | first | {"user_id": user_id, "document_id": document_id}
    job = lifecycle.insert_job(columns)
    if job is None and not is_campaign:
        _supersede_campaign(document_id)
        job = lifecycle.insert_job(columns)
    if job is None:
        raise ApiError(error_codes.JOB_ALREADY_ACTIVE)
    notify_workers()
    return job


def record_finished(*, pipeline: str, user_id: UUID, document_id: UUID, **columns: Any) -> UploadJob:
    """Insert a job that has nothing left to do, in the caller's transaction: its results come from another system."""
    columns |= {"user_id": user_id, "document_id": document_id, "stage": get_pipeline(pipeline).steps[-1].stage}
    job = UploadJob.objects.create(pipeline=pipeline, state=State.DONE, total_pct=100.0, finished_at=Now(), **columns)
    lifecycle.log_event(job, "ADOPTED", Event.Type.FINALIZED)
    return job


def _activate(activate: Callable[[], UploadJob], document_id: UUID, *, is_campaign: bool) -> UploadJob:
    """Make the one active job of a document; a tenant's job first cancels (``SUPERSEDED``) the job of a campaign."""
    try:
        with transaction.atomic():
            return activate()
    except IntegrityError as error:
        if "uq_job_doc" not in str(error):
            raise
        if is_campaign:
            raise ApiError(error_codes.JOB_ALREADY_ACTIVE) from error
    _supersede_campaign(document_id)
    return _activate(activate, document_id, is_campaign=True)


def _supersede_campaign(document_id: UUID) -> None:
    code = error_codes.SUPERSEDED
    error = {"code": code, "detail": "The tenant's own job came first."}
    lifecycle.make_move("cancel", ACTIVE_CAMPAIGN_JOB, code=code, document_id=document_id, error=error)


def retry(
    job: UploadJob,
    *,
    by: str,
    stage: str | None = None,
    noted: Callable[[UploadJob, UploadJob], None] | None = None,
    request: IdempotentRequest | None = None,
) -> UploadJob:
    """Requeue a dead letter from the latest stage whose invariant holds (002 §8). ``by`` is the caller's id.

    From an earlier ``stage`` the plan (parser, chunker, model) is made again by today's settings. The same plan repeats
    no work and no purchase: stored results that are intact are reused. Another plan costs what it costs. ``noted`` is
    called with the job before and after, in the move's transaction. A ``request`` that has taken effect before changes
    nothing. Raises ``ApiError``: ``JOB_ALREADY_ACTIVE``,
    ``JOB_DONE``, ``NOT_FOUND`` (deleted), ``STAGE_UNKNOWN``, ``STAGE_NOT_REACHED``, ``PIPELINE_UNKNOWN``,
    ``JOB_STATE_CHANGED`` (it keeps changing); ``OSError`` of the store.
    """

    def check(seen: UploadJob) -> str:
        if seen.state in ACTIVE:
            raise ApiError(error_codes.JOB_ALREADY_ACTIVE)
        if seen.state == State.DONE:
            raise ApiError(error_codes.JOB_DONE)
        return _latest_valid_stage(seen) if stage is None else _check_retry_stage(seen, stage)

    def requeue(seen: UploadJob, start: str) -> UploadJob:
        _lock_unchanged(seen)
        # Before the parse, the parse of another plan must not be taken for the new plan's.
        fields = {"parsed_path": None, "parsed_sha256": None} if start in BEFORE_PARSE else {}
        moved = _move("requeue", seen, event={"by": by, "from": seen.stage}, fields=fields, stage=start)
        if noted is not None:
            noted(seen, moved)
        if request is not None:
            request.record()
        return moved

    is_campaign = job.campaign_id is not None
    if request is not None and request.is_repeated():
        return job
    try:
        return _check_then_apply(
            job,
            check,
            lambda seen, start: _activate(lambda: requeue(seen, start), job.document_id, is_campaign=is_campaign),
        )
    except ApiError:
        if request is None or not request.is_repeated():  # by a concurrent twin
            raise
    return get_latest_job(job.document_id)


def reset_plan(job: UploadJob) -> None:
    """Clear the plan and the parse of a dead letter: its retry goes back to the stage that makes the plan."""
    dead = UploadJob.objects.filter(pk=job.pk, state=State.DEADLETTER)
    dead.update(payload={}, parsed_path=None, parsed_sha256=None, updated_at=Now())


def cancel(job: UploadJob, *, by: str) -> UploadJob:
    """Any active state -> deadletter with code ``CANCELLED``; a worker that holds it can write nothing more."""
    return _end(job, error_codes.CANCELLED, "The job was cancelled.", by=by)


def discard(job: UploadJob, *, by: str) -> UploadJob:
    """Any active state -> deadletter with code ``MOVED_BY_STAFF``: like ``cancel``, and counted as failed."""
    return _end(job, error_codes.MOVED_BY_STAFF, error_codes.MOVED_BY_STAFF.sentence, by=by)


def _end(job: UploadJob, code: ErrorCode, detail: str, *, by: str) -> UploadJob:
    error = {"code": code, "detail": detail, "stage": job.stage, "attempt": job.attempts, "permanent": True}
    last = (job.last_error or {}).get("code")
    return _move("cancel", job, event={"by": by} | ({"last_error": last} if last else {}), code=code, error=error)


def advance(job: UploadJob, *, by: str) -> UploadJob:
    """Move an idle job to its next stage if the invariant of that stage holds (002 §8)."""

    def check(seen: UploadJob) -> Step:
        step = _pipeline(seen).next_step(seen.stage)
        if step is None or seen.state not in (State.QUEUED, State.RETRYABLE):
            raise ApiError(error_codes.JOB_NOT_WAITING)
        if seen.stage != job.stage:  # the caller means another step
            raise ApiError(error_codes.JOB_STATE_CHANGED)
        if violations := step.invariant([seen.pk]):
            raise ApiError(error_codes.INVARIANT_VIOLATED, violations[seen.pk], field=step.stage)
        return step

    def push(seen: UploadJob, step: Step) -> UploadJob:
        _lock_unchanged(seen)
        columns: dict[str, Any] = {"stage": step.stage.value, "total_pct": step.total_pct}
        return _move("push", seen, event={"by": by, "from": seen.stage}, **columns)

    return _check_then_apply(job, check, push)


def complete_wait(job: UploadJob, *, code: str, event: Mapping[str, Any], **fields: Any) -> UploadJob:
    """Move a job to its next stage, in the caller's transaction, because what it waits for has come.

    A worker that polls for it loses its claim. Raises ``ApiError("JOB_STATE_CHANGED")`` when the job has moved since
    ``job`` was read under its row's lock.
    """
    step = get_pipeline(job.pipeline).next_step(job.stage)
    if step is None:  # the last stage waits for nothing
        raise ApiError(error_codes.JOB_STATE_CHANGED)
    columns: dict[str, Any] = {"stage": step.stage.value, "total_pct": step.total_pct}
    return _move("deliver", job, event={"from": job.stage, **event}, code=code, fields=fields, **columns)


def wake_job(document_id: UUID) -> None:
    """Make the document's waiting job due at once. A job whose worker has not parked it yet is marked not to wait."""
    with transaction.atomic():
        # In this order: a wait that is being written blocks the first statement, and the second one sees it.
        lifecycle.execute(WAKE_WORKING, {"document_id": document_id})
        if lifecycle.make_move("due", WAITING, document_id=document_id):
            notify_workers()


def requeue_due_and_expired() -> int:
    """Make parked jobs due whose time has come; requeue or discard jobs whose worker is gone. Return the count."""
    error = {"code": error_codes.WORKER_LOST, "detail": error_codes.WORKER_LOST.sentence}
    limits = {"retries": settings.JOBS_MAX_RETRIES, "most_overloads": MAX_OVERLOADS}
    due = lifecycle.make_move("due", PARKED)
    disbanded = lifecycle.make_move("disband", EXPIRED_IN_BATCH)
    released = lifecycle.make_move("overload", EXPIRED_BY_OVERLOAD, **limits)
    requeued = lifecycle.make_move("expire", EXPIRED_AGAIN, error=error, **limits)
    discarded = lifecycle.make_move("discard", EXPIRED_TOO_OFTEN, error=error, traceback=None, **limits)
    lost = {"disband": disbanded, "overload": released, "expire": requeued, "discard": discarded}
    for name, rows in lost.items():
        for row in rows:
            log.warning(lifecycle.MOVES[name].code, **job_fields(lifecycle.load_job(row)), stage=row["stage"])
    return len(due) + len(disbanded) + len(released) + len(requeued)


def _move(name: str, job: UploadJob, **params: Any) -> UploadJob:
    rows = lifecycle.make_move(name, LOCK_JOB, job_id=job.pk, **params)
    if not rows:
        raise ApiError(error_codes.JOB_STATE_CHANGED)
    notify_workers()
    return lifecycle.load_job(rows[0])


class RowChanged(Exception):
    """The row has changed since it was checked."""


def _check_then_apply(
    job: UploadJob, check: Callable[[UploadJob], T], apply: Callable[[UploadJob, T], UploadJob]
) -> UploadJob:
    """Return ``apply(seen, check(seen))``, where ``seen`` is the job as read before the check; repeat if it changes.

    Checks read the store, which may be remote: no transaction is open and no lock is held meanwhile (DESIGN §4.4).
    ``apply`` runs in a transaction and calls ``_lock_unchanged``.
    """
    for _ in range(MAX_TRIES):
        seen = UploadJob.objects.filter(pk=job.pk).first()
        if seen is None:
            raise not_found()
        with shared_checks():
            checked = check(seen)
        try:
            with transaction.atomic():
                return apply(seen, checked)
        except RowChanged:
            continue
    raise ApiError(error_codes.JOB_STATE_CHANGED)


def _lock_unchanged(seen: UploadJob) -> None:
    """Lock the job's row until the transaction ends; raise ``RowChanged`` unless it is as it was ``seen``."""
    row = UploadJob.objects.select_for_update().filter(pk=seen.pk).values_list("stage", "state", "updated_at").first()
    if row != (seen.stage, seen.state, seen.updated_at):
        raise RowChanged


def _latest_valid_stage(job: UploadJob) -> str:
    steps = _pipeline(job).steps_through(job.stage)
    return next((step.stage for step in reversed(steps) if not step.invariant([job.pk])), steps[0].stage).value


def _check_retry_stage(job: UploadJob, stage: str) -> str:
    """Return ``stage`` if the job may be retried from there; the error names the latest valid stage."""
    if stage not in [step.stage for step in _pipeline(job).steps]:
        raise ApiError(error_codes.STAGE_UNKNOWN, field="stage")
    latest = _latest_valid_stage(job)
    step = next((step for step in _pipeline(job).steps_through(latest) if step.stage == stage), None)
    reason = "The job has not come so far." if step is None else step.invariant([job.pk]).get(job.pk)
    if reason and stage != latest:
        detail = f"The job cannot be retried from there. {reason} The latest valid stage is {latest}."
        raise ApiError(error_codes.STAGE_NOT_REACHED, detail, field="stage")
    return stage


def _pipeline(job: UploadJob) -> Pipeline:
    try:
        return get_pipeline(job.pipeline)
    except ImproperlyConfigured as error:
        raise ApiError(error_codes.PIPELINE_UNKNOWN) from error
