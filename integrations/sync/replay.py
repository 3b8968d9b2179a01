"""Replay of archived messages: they return to the queue, and their syncs continue where they stopped."""

import json
from collections.abc import Sequence

from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.utils import IntegrityError

from accounts.audit.log import record_action
from accounts.error_codes import NOT_FOUND, ApiError
from accounts.models import User
from integrations.error_codes import MESSAGE_MALFORMED, SOURCE_NOT_ACTIVE, SYNC_ALREADY_ACTIVE, SYNC_GONE, SYNC_WENT_ON
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import pgmq
from integrations.sync.pgmq import ARCHIVE, Body

_LOCK = f"SELECT message FROM {ARCHIVE} WHERE msg_id = %s FOR UPDATE"
_DELETE = f"DELETE FROM {ARCHIVE} WHERE msg_id = %s"


def archived_message_ids() -> list[int]:
    """Return the ids of all archived messages, newest first: of a source's, only the last sync's can continue."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT msg_id FROM {ARCHIVE} ORDER BY msg_id DESC")
        return [row[0] for row in cursor.fetchall()]


def replay_messages(msg_ids: Sequence[int], *, by: User | None, reason: str = "replayed") -> dict[int, int | ApiError]:
    """Put archived messages back into the queue; return each one's new message id, or its error.

    ``by`` None is the command line. A refused message does not keep the others from being replayed.
    """
    outcomes: dict[int, int | ApiError] = {}
    for msg_id in msg_ids:
        try:
            with transaction.atomic():
                outcomes[msg_id] = _replay(msg_id, by, reason)
        except ApiError as error:
            outcomes[msg_id] = error
    return outcomes


def _replay(msg_id: int, by: User | None, reason: str) -> int:
    body = _lock_archived(msg_id)
    job = IngestionJob.objects.select_related("source").select_for_update(of=("self",)).filter(pk=body.job_id).first()
    if job is None:
        raise ApiError(SYNC_GONE)
    if job.status != IngestionJob.Status.FAILED or job.page != body.page:
        raise ApiError(SYNC_WENT_ON, "The sync of this message is not where the message stopped it.")
    if body.kind != IngestionJob.Kind.FORGET:
        # The old sync's end would delete records that only the newer one has seen.
        newer = IngestionJob.objects.filter(
            source_id=job.source_id, created_at__gt=job.created_at, finished_at__isnull=False
        )
        if newer.exists():
            raise ApiError(SYNC_WENT_ON, "A newer sync of this source has begun since.")
        if job.source.status != ConnectedSource.Status.ACTIVE:
            raise ApiError(SOURCE_NOT_ACTIVE, "The source is not active; its tenant has to connect it again first.")
    _activate(job)
    with connection.cursor() as cursor:
        cursor.execute(_DELETE, [msg_id])
    new_id = pgmq.enqueue_page(body)
    record_action(
        by=by,
        action="ingestion.replay",
        reason=reason,
        object_type="ingestion_job",
        object_id=job.pk,
        tenant_id=job.user_id,
        archived=msg_id,
        message=new_id,
    )
    return new_id


def _lock_archived(msg_id: int) -> Body:
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [msg_id])
        row = cursor.fetchone()
    if row is None:
        raise ApiError(NOT_FOUND, "There is no such message in the archive.")
    try:
        return Body.parse(json.loads(row[0] or "null"))
    except ValueError:
        raise ApiError(MESSAGE_MALFORMED) from None


def _activate(job: IngestionJob) -> None:
    """Move failed -> running, or queued if it never ran."""
    status = IngestionJob.Status.QUEUED if job.started_at is None else IngestionJob.Status.RUNNING
    try:
        with transaction.atomic():
            IngestionJob.objects.filter(pk=job.pk).update(
                status=status, error_message=None, finished_at=None, updated_at=Now()
            )
    except IntegrityError as error:
        if "uq_ingestion_job_active" not in str(error):
            raise
        raise ApiError(SYNC_ALREADY_ACTIVE) from error
