"""Lifecycle of a sync: start, page after page, end; stop, failure, and replay of an archived page."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Now
from django.utils import timezone
from psycopg.types.json import Jsonb

from accounts.audit.log import COMMAND_LINE_ACTOR, record_action
from accounts.common_error_codes import NOT_FOUND, not_found
from accounts.errors import ApiError
from accounts.models import User
from integrations import error_codes
from integrations.models import ConnectedSource, IngestionJob
from integrations.providers.interface import FailedItem
from integrations.records.prepared_sql import execute
from integrations.records.text_normalization import strip_unstorable
from integrations.sync import pgmq
from integrations.sync.pgmq import ARCHIVE, Body, Message
from jobs import failpoints
from outbox.webhooks import endpoints

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

Kind, Status = IngestionJob.Kind, IngestionJob.Status
ACTIVE = [Status.QUEUED, Status.RUNNING]
# Keys of a job's cursor beside its streams: streams whose listing was not complete,
CAPPED = "capped"
# and the ids that the next delta fetches again, by stream; this one is kept in the source's cursor too.
RETRY = "retry"
MOST_DETAILS = 50
COUNTED = ("seen", "deleted", "failed")

# A repeated reason is noted once, or fifty waits would push out the records' details.
NOTE = """
    UPDATE ingestion_jobs SET items_failed = items_failed + %(failed)s, updated_at = clock_timestamp(),
        error_details = CASE WHEN error_details -> -1 @> %(same)s THEN error_details ELSE (
            SELECT jsonb_agg(d ORDER BY n) FROM (
                SELECT d, n FROM jsonb_array_elements(error_details || %(detail)s) WITH ORDINALITY AS detail (d, n)
                ORDER BY n DESC LIMIT %(most)s) last) END
    WHERE id = %(job)s AND status = 'running'"""
_COUNTS = ", ".join(f"items_{name} = items_{name} + %({name})s" for name in COUNTED)
CLOSE = f"""
    UPDATE ingestion_jobs SET page = page + 1, kind = %(kind)s, cursor = %(cursor)s, error_details = %(details)s,
        {_COUNTS}, status = %(status)s, updated_at = clock_timestamp(),
        finished_at = CASE WHEN %(status)s = 'completed' THEN clock_timestamp() END
    WHERE id = %(job)s AND page = %(page)s AND status = 'running'"""
FAIL = """
    UPDATE ingestion_jobs SET status = 'failed', error_message = %(code)s, finished_at = clock_timestamp(),
        updated_at = clock_timestamp()
    WHERE id = %(job)s AND status IN ('queued', 'running') RETURNING id, user_id, source_id, kind"""
SEEN = """
    UPDATE source_documents SET seen_in = %(job)s, updated_at = clock_timestamp()
    WHERE source_id = %(source)s AND external_id = ANY(%(ids)s)"""
# Records that a delta saw before it became a full sync may have gone before that began, and deleted ones may be back.
UNSEEN = """
    UPDATE source_documents SET seen_in = NULL WHERE source_id = %(source)s AND seen_in = %(job)s"""
SYNCED = """
    UPDATE connected_sources SET cursor = (cursor - %(retry)s) || %(cursor)s, last_synced_at = clock_timestamp(),
        updated_at = clock_timestamp() WHERE id = %(source)s"""
LOCKED = "SELECT 1 FROM connected_sources WHERE id = %(source)s FOR NO KEY UPDATE"


@dataclass(slots=True)
class PageCounts:
    """Counts of a page's items. ``details`` has the error codes of those that need attention.

    Written, unchanged, embedded and deleted records are counted with each record.
    """

    seen: int = 0
    deleted: int = 0
    failed: int = 0
    details: list[dict[str, str]] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)  # listed, so not gone, but not written
    retry: list[str] = field(default_factory=list)  # those of them that the next delta fetches again

    def add_detail(self, external_id: str, code: str) -> None:
        at = timezone.now().isoformat(timespec="seconds")
        self.details.append({"external_id": strip_unstorable(external_id), "code": code, "at": at})

    def add_failure(self, item: FailedItem) -> None:
        self.failed += 1
        self.unwritten.append(strip_unstorable(item.external_id))
        if item.retry:
            self.retry.append(item.external_id)
        self.add_detail(item.external_id, item.code)


def start_sync(source: ConnectedSource, kind: str, *, by: str) -> IngestionJob:
    """Start a sync of a source, or the purge of a disconnected one; ``by`` is the actor, for the log.

    The first sync is a full one. A purge ends the sync that is under way. Raises ``ApiError``: "SYNC_ALREADY_ACTIVE",
    "SOURCE_NOT_ACTIVE", "NOT_FOUND".
    """
    with transaction.atomic():
        locked = ConnectedSource.objects.select_for_update(no_key=True).filter(pk=source.pk).first()
        if locked is None:
            raise not_found()
        if kind == Kind.FORGET:
            active = IngestionJob.objects.filter(source=locked, status__in=ACTIVE).exclude(kind=kind)
            for job_id in active.values_list("pk", flat=True):
                fail_sync(job_id, error_codes.SOURCE_DISCONNECTED)
        elif locked.status != ConnectedSource.Status.ACTIVE:
            raise ApiError(error_codes.SOURCE_NOT_ACTIVE, "Nothing can be fetched from this source: connect it again.")
        if kind == Kind.DELTA and locked.last_synced_at is None:
            kind = Kind.FULL
        with _only_active_sync():
            job = IngestionJob.objects.create(source=locked, user_id=locked.user_id, kind=kind)
        pgmq.enqueue_page(Body(job.pk, locked.pk, locked.user_id, kind))
    log.info("Sync begun", sync=str(job.pk), source=str(source.pk), kind=str(kind), by=by)
    return job


@contextmanager
def _only_active_sync() -> Iterator[None]:
    """Raise ``ApiError`` "SYNC_ALREADY_ACTIVE" when the source has another active sync."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if "uq_ingestion_job_active" not in str(error):
            raise
        raise ApiError(error_codes.SYNC_ALREADY_ACTIVE) from error


def stop_sync(source: ConnectedSource, *, by: User | None, reason: str) -> IngestionJob:
    """End a source's active sync and return it; what it has written stays.

    A worker that runs a page of it ends with that page. A purge is started again, for a disconnected source must go.
    Raises ``ApiError``: "SYNC_NOT_ACTIVE", "REASON_REQUIRED".
    """
    with transaction.atomic():
        ConnectedSource.objects.select_for_update(no_key=True).filter(pk=source.pk).first()
        job = IngestionJob.objects.filter(source=source, status__in=ACTIVE).first()
        if job is None or not fail_sync(job.pk, error_codes.SYNC_STOPPED):
            raise ApiError(error_codes.SYNC_NOT_ACTIVE)
        if job.kind == Kind.FORGET:
            start_sync(source, Kind.FORGET, by=COMMAND_LINE_ACTOR)
        record_source_action(source, "connectors.stop", by=by, reason=reason, kind=job.kind)
    return job


def record_source_action(source: ConnectedSource, action: str, *, by: User | None, reason: str, **details: Any) -> None:
    """Write an entry of the audit log. Raises ``ApiError`` "REASON_REQUIRED"."""
    audit: dict[str, Any] = {"object_type": "connected_source", "object_id": source.pk, "tenant_id": source.user_id}
    record_action(by=by, action=action, reason=reason, **audit, **details)


def fail_sync(job_id: UUID, code: str) -> bool:
    """Move queued or running -> failed, and tell the tenant's webhooks; return whether it was."""
    with transaction.atomic():
        failed = execute(FAIL, {"job": job_id, "code": code})
        for row in failed:
            if row.kind != Kind.FORGET:
                data = {"sync_id": row.id, "source_id": row.source_id, "kind": row.kind, "code": code}
                endpoints.publish(user_id=row.user_id, type="sync.failed", data=data)
    return bool(failed)


def note_error(job_id: UUID, subject: str, code: str, *, failed: int = 0) -> None:
    """Note in the sync why a page or a token refresh waits or is tried again (spec 002 §2 and §4)."""
    counts = PageCounts()
    counts.add_detail(subject, code)
    same = Jsonb({"external_id": subject, "code": code})
    params = {"job": job_id, "failed": failed, "detail": Jsonb(counts.details), "same": same, "most": MOST_DETAILS}
    execute(NOTE, params)


def begin_page(body: Body) -> IngestionJob | None:
    """Move queued -> running; return the sync if this is its current page; None for a page that is closed already."""
    current = IngestionJob.objects.filter(pk=body.job_id, page=body.page, status__in=ACTIVE)
    current.filter(status=Status.QUEUED).update(
        status=Status.RUNNING, started_at=Coalesce(F("started_at"), Now()), updated_at=Now()
    )
    return current.select_related("source").first()


def close_page(
    message: Message,
    job: IngestionJob,
    counts: PageCounts,
    *,
    next_body: Body | None,
    cursor: Mapping[str, Any] | None = None,
) -> None:
    """End a page in one transaction: its counts, the sync's cursor, and the next message or the sync's end.

    Without ``next_body`` the sync is completed, and its cursor becomes the source's. Durable, unlike the records' own
    transactions, which it makes durable with itself.
    """
    cursor = job.cursor if cursor is None else cursor
    params = {
        "job": job.pk,
        "page": job.page,
        "kind": next_body.kind if next_body else job.kind,
        "status": Status.RUNNING if next_body else Status.COMPLETED,
        "cursor": Jsonb(cursor),
        "details": Jsonb([*job.error_details, *counts.details][-MOST_DETAILS:]),
        **{name: getattr(counts, name) for name in COUNTED},
    }
    with pgmq.message_lease(message):
        if next_body is None:  # the source before the sync, the order of locks everywhere
            execute(LOCKED, {"source": job.source_id})
        if not execute(f"{CLOSE} RETURNING id", params):
            return
        if counts.unwritten:
            execute(SEEN, {"job": job.pk, "source": job.source_id, "ids": counts.unwritten})
        if next_body is not None:
            if next_body.kind != job.kind:
                execute(UNSEEN, {"job": job.pk, "source": job.source_id})
            pgmq.enqueue_page(next_body)
        else:
            # An incomplete delta leaves its stream's cursor as it was.
            left = {CAPPED, *(cursor.get(CAPPED, ()) if job.kind == Kind.DELTA else ())}
            synced = {name: position for name, position in cursor.items() if name not in left}
            execute(SYNCED, {"source": job.source_id, "cursor": Jsonb(synced), "retry": RETRY})
        failpoints.failpoint("page:before-commit")
    failpoints.failpoint("page:after-commit")


# --- replay ---------------------------------------------------------------------------------------------------------
def archived_message_ids() -> list[int]:
    """Return the ids of all archived messages, newest first: of a source's, only the last sync's can continue."""
    return [row.msg_id for row in execute(f"SELECT msg_id FROM {ARCHIVE} ORDER BY msg_id DESC", {})]


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
    rows = execute(f"SELECT message FROM {ARCHIVE} WHERE msg_id = %(id)s FOR UPDATE", {"id": msg_id})
    if not rows:
        raise ApiError(NOT_FOUND, "There is no such message in the archive.")
    try:
        body = Body.parse(json.loads(rows[0].message or "null"))
    except ValueError:
        raise ApiError(error_codes.MESSAGE_MALFORMED) from None
    job = IngestionJob.objects.select_related("source").select_for_update(of=("self",)).filter(pk=body.job_id).first()
    if job is None:
        raise ApiError(error_codes.SYNC_GONE)
    if job.status != Status.FAILED or job.page != body.page:
        raise ApiError(error_codes.SYNC_WENT_ON, "The sync of this message is not where the message stopped it.")
    if body.kind != Kind.FORGET:
        # The old sync's end would delete records that only the newer one has seen.
        others = IngestionJob.objects.filter(source_id=job.source_id, finished_at__isnull=False)
        if others.filter(created_at__gt=job.created_at).exists():
            raise ApiError(error_codes.SYNC_WENT_ON, "A newer sync of this source has begun since.")
        if job.source.status != ConnectedSource.Status.ACTIVE:
            detail = "The source is not active; its tenant has to connect it again first."
            raise ApiError(error_codes.SOURCE_NOT_ACTIVE, detail)
    status = Status.QUEUED if job.started_at is None else Status.RUNNING
    with _only_active_sync():
        resumed = {"status": status, "error_message": None, "finished_at": None}
        IngestionJob.objects.filter(pk=job.pk).update(**resumed, updated_at=Now())
    execute(f"DELETE FROM {ARCHIVE} WHERE msg_id = %(id)s", {"id": msg_id})
    new_id = pgmq.enqueue_page(body)
    audit: dict[str, Any] = {"object_type": "ingestion_job", "object_id": job.pk, "tenant_id": job.user_id}
    record_action(by=by, action="ingestion.replay", reason=reason, **audit, archived=msg_id, message=new_id)
    return new_id
