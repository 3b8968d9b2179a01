"""Pauses by staff: jobs of a pipeline or of a tenant, and calls to a vendor, wait until somebody resumes them.

A worker reads the pauses once in a drain, and parks the jobs that it claims of what is paused: they cost no attempt,
and stages that run are completed. A resumption makes the parked jobs due.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from django.db import IntegrityError, transaction

from accounts.audit import log
from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.models import User
from jobs import error_codes, lifecycle
from jobs.models import Pause, UploadJob
from jobs.outcomes import Wait
from jobs.services import notify_workers

WAIT_SECONDS = 300.0  # until a parked job looks again, if no resumption wakes it

PARKED = f"""
    SELECT job_id FROM upload_jobs
    WHERE run_after IS NOT NULL AND state = 'queued' AND wait_reason = '{error_codes.PAUSED_BY_STAFF}'
    LIMIT 500 FOR UPDATE SKIP LOCKED"""


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused, as read at one time."""

    keys: Collection[tuple[str, str]] = field(default_factory=frozenset)

    def find_wait(self, job: UploadJob) -> Wait | None:
        """Return the wait of a job whose pipeline or tenant is paused."""
        subjects = ((Pause.Kind.PIPELINE, job.pipeline), (Pause.Kind.TENANT, str(job.user_id)))
        return wait() if self.keys and any(subject in self.keys for subject in subjects) else None


def wait() -> Wait:
    return Wait(WAIT_SECONDS, error_codes.PAUSED_BY_STAFF)


def read_pauses() -> Pauses:
    kinds = (Pause.Kind.PIPELINE, Pause.Kind.TENANT)
    return Pauses(frozenset(Pause.objects.filter(kind__in=kinds).values_list("kind", "subject")))


def pause(*, kind: str, subject: str, known: Iterable[str], by: User, reason: str) -> Pause:
    """Pause a pipeline, a tenant (its id) or a vendor, with an audit entry.

    ``known`` are the subjects that there are. Raises ``ApiError``: "REASON_REQUIRED", "PAUSE_UNKNOWN", or
    "ALREADY_PAUSED".
    """
    reason = log.clean_reason(reason)
    if kind not in Pause.Kind.values or subject not in known:
        raise ApiError(error_codes.PAUSE_UNKNOWN, field="subject")
    try:
        with transaction.atomic():
            new_pause = Pause.objects.create(kind=kind, subject=subject, reason=reason, paused_by=by.pk)
            _write_entry("jobs.pause", new_pause, by=by, reason=reason)
    except IntegrityError as error:
        raise ApiError(error_codes.ALREADY_PAUSED, field="subject") from error
    return new_pause


def resume(pause_id: UUID, *, by: User, reason: str) -> Pause:
    """Remove a pause and make what it has parked due. Raises ``ApiError``: "REASON_REQUIRED", "NOT_FOUND"."""
    reason = log.clean_reason(reason)
    with transaction.atomic():
        row = Pause.objects.select_for_update().filter(pk=pause_id).first()
        if row is None:
            raise not_found()
        _write_entry("jobs.resume", row, by=by, reason=reason)
        Pause.objects.filter(pk=row.pk).delete()
    while lifecycle.make_move("due", PARKED):  # those of another pause are parked again
        pass
    notify_workers()
    return row


def _write_entry(action: str, row: Pause, *, by: User, reason: str) -> None:
    tenant_id = UUID(row.subject) if row.kind == Pause.Kind.TENANT else None
    log.record_action(
        by=by, action=action, reason=reason, object_type=row.kind, object_id=row.subject, tenant_id=tenant_id
    )
