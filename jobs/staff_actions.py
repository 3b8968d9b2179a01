"""Staff actions on jobs (retry, cancel, discard), each in one transaction with its audit entry; bulk actions."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.db import transaction

from accounts.audit import log
from accounts.common_error_codes import not_found, unavailable
from accounts.errors import ApiError
from accounts.idempotency_keys import IdempotentRequest
from accounts.models import User
from jobs import services
from jobs.choices import CANCELLED_CODES
from jobs.error_codes import JOB_LET_GO
from jobs.models import UploadJob

MAX_JOBS = 1_000  # of a bulk action
MAX_SECONDS = 20.0  # of a bulk action: with files in a remote store each check of an invariant takes its time

PERMISSIONS: Mapping[str, str] = {
    "retry": "jobs.retry_uploadjob",
    "retry_from": "jobs.retry_uploadjob",
    "cancel": "jobs.cancel_uploadjob",
    "discard": "jobs.discard_uploadjob",
}


def retry(
    job: UploadJob,
    *,
    by: User | None,
    reason: str,
    stage: str | None = None,
    request: IdempotentRequest | None = None,
) -> UploadJob:
    """Retry a dead letter from its latest valid stage, or from an earlier ``stage``. Raises as ``services.retry``."""

    def write_entry(seen: UploadJob, moved: UploadJob) -> None:
        _check_not_cancelled(seen)  # the row as locked
        _write_entry("jobs.retry" if stage is None else "jobs.retry_from", seen, moved, by=by, reason=reason)

    log.clean_reason(reason)
    _check_not_cancelled(job)
    try:
        return services.retry(job, by=_actor_id(by), stage=stage, noted=write_entry, request=request)
    except OSError as error:
        raise unavailable("The file store cannot be reached to check the stages; try again shortly.") from error


def cancel(job: UploadJob, *, by: User | None, reason: str) -> UploadJob:
    with transaction.atomic():
        moved = services.cancel(job, by=_actor_id(by))
        _write_entry("jobs.cancel", job, moved, by=by, reason=reason)
    return moved


def discard(job: UploadJob, *, by: User | None, reason: str) -> UploadJob:
    with transaction.atomic():
        moved = services.discard(job, by=_actor_id(by))
        _write_entry("jobs.discard", job, moved, by=by, reason=reason)
    return moved


_ACTIONS: Mapping[str, Callable[..., UploadJob]] = {"retry": retry, "cancel": cancel, "discard": discard}


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Counts of a bulk action: jobs changed, errors by code, and jobs that were not tried."""

    count: int
    refused: dict[str, int] = field(default_factory=dict)
    left: int = 0


def run_action(verb: str, job_id: UUID, *, by: User | None, reason: str, stage: str | None = None) -> UploadJob:
    """Run ``verb`` (a key of ``PERMISSIONS``) on a job, in a transaction of its own; raise ``ApiError``."""
    log.clean_reason(reason)
    job = UploadJob.objects.filter(pk=job_id).first()
    if job is None:
        raise not_found()
    if verb == "retry_from":
        return retry(job, stage=stage or "", by=by, reason=reason)
    return _ACTIONS[verb](job, by=by, reason=reason)


def run_bulk_action(
    verb: str, job_ids: Iterable[UUID], *, by: User | None, reason: str, stage: str | None = None
) -> BulkResult:
    """Run ``verb`` on each of at most ``MAX_JOBS`` jobs, for at most ``MAX_SECONDS``; an error stops no other job.

    Raises ``ApiError("REASON_REQUIRED")`` and does nothing without a reason.
    """
    log.clean_reason(reason)
    job_ids = list(dict.fromkeys(job_ids))
    until, refused, tried = time.monotonic() + MAX_SECONDS, Counter[str](), 0
    for job_id in job_ids[:MAX_JOBS]:
        if time.monotonic() > until:
            break
        tried += 1
        try:
            run_action(verb, job_id, by=by, reason=reason, stage=stage)
        except ApiError as error:
            refused[error.code] += 1
    return BulkResult(tried - refused.total(), dict(refused), len(job_ids) - tried)


def _write_entry(action: str, job: UploadJob, moved: UploadJob, *, by: User | None, reason: str) -> None:
    log.record_action(
        by=by,
        action=action,
        reason=reason,
        object_type="upload_job",
        object_id=job.pk,
        tenant_id=job.user_id,
        document_id=str(job.document_id),
        code=(job.last_error or {}).get("code"),
        **{"from": job.stage, "to": moved.stage},
    )


def _actor_id(by: User | None) -> str:
    return str(by.pk) if by else log.COMMAND_LINE_ACTOR


def _check_not_cancelled(job: UploadJob) -> None:
    """Raise ``ApiError("JOB_LET_GO")`` for a job that a campaign cancelled: nobody would use what a retry buys."""
    if job.campaign_id is not None and (job.last_error or {}).get("code") in CANCELLED_CODES:
        raise ApiError(JOB_LET_GO)
