"""Ending a sync by hand: one that nobody wants any more, or whose message was lost with a queue."""

from __future__ import annotations

from django.db import transaction

from accounts.audit import log
from accounts.errors import ApiError
from accounts.models import User
from integrations.error_codes import SYNC_NOT_ACTIVE, SYNC_STOPPED
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import sync_jobs

STOPPED = SYNC_STOPPED


def stop_sync(source: ConnectedSource, *, by: User | None, reason: str) -> IngestionJob:
    """End the sync of a source that is under way; what it has brought stays. Return it.

    A worker that has a page of it ends with that page. Forgetting is not given up but begun anew, for what a tenant
    has let go of must go. Raises ``Refused``: "SYNC_NOT_ACTIVE", "REASON_REQUIRED".
    """
    with transaction.atomic():
        ConnectedSource.objects.select_for_update(no_key=True).filter(pk=source.pk).first()
        job = IngestionJob.objects.filter(source=source, status__in=sync_jobs.ACTIVE).first()
        if job is None or not sync_jobs.fail_sync(job.pk, STOPPED):
            raise ApiError(SYNC_NOT_ACTIVE, "No sync of this source is under way.")
        if job.kind == IngestionJob.Kind.FORGET:
            sync_jobs.start_sync(source, IngestionJob.Kind.FORGET, by=log.COMMAND_LINE_ACTOR)
        log.record_action(
            by=by,
            action="connectors.stop",
            reason=reason,
            object_type="connected_source",
            object_id=source.pk,
            tenant_id=source.user_id,
            kind=job.kind,
        )
    return job
