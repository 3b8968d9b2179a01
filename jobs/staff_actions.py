"""What staff may do to a job: the service and its audit entry in one transaction, one by one or many at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from django.db import transaction

from accounts.audit import log
from accounts.errors import ApiError, not_found, unavailable
from accounts.models import User
from jobs import services
from jobs.error_codes import JOB_LET_GO
from jobs.models import UploadJob
from jobs.states import CANCELLED_CODES

MAX_JOBS = 1_000  # at once
MAX_SECONDS = 20.0  # a request must be answered: with the files in a far store each proof takes its time


def retry(job: UploadJob, *, by: User | None, reason: str) -> UploadJob:
    """Try a dead letter again from the last stage that is proven. Raises as ``services.retry``."""
    return _retried("jobs.retry", job, None, by=by, reason=reason)


def retry_from(job: UploadJob, stage: str, *, by: User | None, reason: str) -> UploadJob:
    """Try a dead letter again from an earlier stage. Raises as ``services.retry``."""
    return _retried("jobs.retry_from", job, stage, by=by, reason=reason)


def cancel(job: UploadJob, *, by: User | None, reason: str) -> UploadJob:
    return _audited("jobs.cancel", job, lambda: services.cancel(job, by=_name(by)), by=by, reason=reason)


def discard(job: UploadJob, *, by: User | None, reason: str) -> UploadJob:
    return _audited("jobs.discard", job, lambda: services.discard(job, by=_name(by)), by=by, reason=reason)


#: What can be asked, and the permission that it needs.
PERMISSIONS: Mapping[str, str] = {
    "retry": "jobs.retry_uploadjob",
    "retry_from": "jobs.retry_uploadjob",
    "cancel": "jobs.cancel_uploadjob",
    "discard": "jobs.discard_uploadjob",
}
_VERBS: Mapping[str, Callable[..., UploadJob]] = {"retry": retry, "cancel": cancel, "discard": discard}


@dataclass(frozen=True, slots=True)
class BulkResult:
    """How many were done, how many not, by code, and how many were not tried any more."""

    count: int
    refused: dict[str, int] = field(default_factory=dict)
    left: int = 0


def run_action(verb: str, job_id: UUID, *, by: User | None, reason: str, stage: str | None = None) -> UploadJob:
    """Do ``verb`` (a key of ``PERMISSIONS``) to a job as it is now, in a transaction of its own; raise ``Refused``."""
    log.clean_reason(reason)
    job = UploadJob.objects.filter(pk=job_id).first()
    if job is None:
        raise not_found()
    if verb == "retry_from":
        return retry_from(job, stage or "", by=by, reason=reason)
    return _VERBS[verb](job, by=by, reason=reason)


def run_bulk_action(
    verb: str, job_ids: Iterable[UUID], *, by: User | None, reason: str, stage: str | None = None
) -> BulkResult:
    """Do ``verb`` to each of at most ``MAX_JOBS`` jobs, for at most ``MAX_SECONDS``; a refused one stops no other.

    Raises ``Refused("REASON_REQUIRED")`` and does nothing without a reason.
    """
    log.clean_reason(reason)
    wanted = list(dict.fromkeys(job_ids))
    until, refused, tried = time.monotonic() + MAX_SECONDS, Counter[str](), 0
    for job_id in islice(wanted, MAX_JOBS):
        if time.monotonic() > until:
            break
        tried += 1
        try:
            run_action(verb, job_id, by=by, reason=reason, stage=stage)
        except ApiError as refusal:
            refused[refusal.code] += 1
    return BulkResult(tried - refused.total(), dict(refused), len(wanted) - tried)


def _retried(action: str, job: UploadJob, stage: str | None, *, by: User | None, reason: str) -> UploadJob:
    def noted(seen: UploadJob, moved: UploadJob) -> None:
        _refuse_let_go(seen)  # as the row is, whatever was looked at
        _record(action, seen, moved, by=by, reason=reason)

    log.clean_reason(reason)
    _refuse_let_go(job)
    try:
        return services.retry(job, by=_name(by), stage=stage, noted=noted)
    except OSError as error:
        raise unavailable("The store cannot be reached, so nothing can be proven; try again shortly.") from error


def _audited(action: str, job: UploadJob, act: Callable[[], UploadJob], *, by: User | None, reason: str) -> UploadJob:
    with transaction.atomic():
        moved = act()
        _record(action, job, moved, by=by, reason=reason)
    return moved


def _record(action: str, job: UploadJob, moved: UploadJob, *, by: User | None, reason: str) -> None:
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


def _name(by: User | None) -> str:
    return str(by.pk) if by else log.COMMAND_LINE_ACTOR


def _refuse_let_go(job: UploadJob) -> None:
    """What a campaign let go of, because it ended or a tenant's job came first, would buy for nobody."""
    if job.campaign_id is not None and (job.last_error or {}).get("code") in CANCELLED_CODES:
        detail = "Its campaign has let go of this job; begin another campaign instead."
        raise ApiError(JOB_LET_GO, detail)
