"""Putting back what was set aside: an archived message is worked on again, and its sync goes on where it stood."""

from __future__ import annotations

import json
from collections.abc import Sequence

from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.utils import IntegrityError

from accounts.audit.log import record_action
from accounts.errors import NOT_FOUND, ApiError, ErrorCode
from accounts.models import User
from integrations.error_codes import MESSAGE_MALFORMED, SOURCE_NOT_ACTIVE, SYNC_ALREADY_ACTIVE, SYNC_GONE, SYNC_WENT_ON
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import pgmq
from integrations.sync.pgmq import ARCHIVE, Body

_ARCHIVED = f"SELECT message FROM {ARCHIVE} WHERE msg_id = %s FOR UPDATE"
_FORGET = f"DELETE FROM {ARCHIVE} WHERE msg_id = %s"


def archived_message_ids() -> list[int]:
    """Return the ids of all archived messages, the newest first: of a source's, only the last sync's can go on."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT msg_id FROM {ARCHIVE} ORDER BY msg_id DESC")
        return [row[0] for row in cursor.fetchall()]


def replay_messages(msg_ids: Sequence[int], *, by: User | None, reason: str = "replayed") -> dict[int, int | ApiError]:
    """Put archived messages back into the queue; return what became of each: its new message's id, or why not.

    ``by`` None is somebody at the command line. One that is refused does not keep the others from it.
    """
    became: dict[int, int | ApiError] = {}
    for msg_id in msg_ids:
        try:
            with transaction.atomic():
                became[msg_id] = _replayed(msg_id, by, reason)
        except ApiError as refused:
            became[msg_id] = refused
    return became


def _replayed(msg_id: int, by: User | None, reason: str) -> int:
    body = _body(msg_id)
    job = IngestionJob.objects.select_related("source").select_for_update(of=("self",)).filter(pk=body.job_id).first()
    if job is None:
        raise _refused(SYNC_GONE, "The sync of this message is gone, with its source.")
    if job.status != IngestionJob.Status.FAILED or job.page != body.page:
        raise _refused(SYNC_WENT_ON, "The sync of this message is not where the message stopped it.")
    # Its end would take for gone what only the newer sync has seen.
    newer = IngestionJob.objects.filter(
        source_id=job.source_id, created_at__gt=job.created_at, finished_at__isnull=False
    )
    if body.kind != IngestionJob.Kind.FORGET and newer.exists():
        raise _refused(SYNC_WENT_ON, "A newer sync of this source has begun since.")
    if body.kind != IngestionJob.Kind.FORGET and job.source.status != ConnectedSource.Status.ACTIVE:
        raise _refused(SOURCE_NOT_ACTIVE, "The source is not active; its tenant has to connect it again first.")
    _activate(job)
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [msg_id])
    sent = pgmq.enqueue_page(body)
    record_action(
        by=by,
        action="ingestion.replay",
        reason=reason,
        object_type="ingestion_job",
        object_id=job.pk,
        tenant_id=job.user_id,
        archived=msg_id,
        message=sent,
    )
    return sent


def _body(msg_id: int) -> Body:
    with connection.cursor() as cursor:
        cursor.execute(_ARCHIVED, [msg_id])
        row = cursor.fetchone()
    if row is None:
        raise ApiError(NOT_FOUND, "There is no such message in the archive.")
    try:
        return Body.parse(json.loads(row[0] or "null"))
    except ValueError:
        raise _refused(MESSAGE_MALFORMED, "This message is no page of a sync.") from None


def _activate(job: IngestionJob) -> None:
    began = job.started_at is not None
    try:
        with transaction.atomic():
            IngestionJob.objects.filter(pk=job.pk).update(
                status=IngestionJob.Status.RUNNING if began else IngestionJob.Status.QUEUED,
                error_message=None,
                finished_at=None,
                updated_at=Now(),
            )
    except IntegrityError as error:
        if "uq_ingestion_job_active" not in str(error):
            raise
        raise _refused(SYNC_ALREADY_ACTIVE, "Another sync of this source is under way.") from error


def _refused(code: ErrorCode, detail: str) -> ApiError:
    return ApiError(code, detail)
