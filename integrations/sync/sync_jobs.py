"""The life of a sync: begun, page after page, ended or given up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Now
from django.utils import timezone
from psycopg.types.json import Jsonb

from accounts.errors import ApiError, not_found
from integrations.error_codes import SOURCE_DISCONNECTED, SOURCE_NOT_ACTIVE, SYNC_ALREADY_ACTIVE
from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import FailedItem
from integrations.records.sql import execute
from integrations.records.text import strip_unstorable
from integrations.sync import pgmq
from integrations.sync.pgmq import Body, Message
from jobs import failpoints

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

Kind, Status = IngestionJob.Kind, IngestionJob.Status
ACTIVE = [Status.QUEUED, Status.RUNNING]
DISCONNECTED = SOURCE_DISCONNECTED
# In a job's cursor, beside its streams: those whose listing was not complete,
CAPPED = "capped"
# and the ids that the next delta tries again, by stream; this is kept in the source's cursor too.
AGAIN = "again"
MOST_DETAILS = 50
COUNTED = ("seen", "deleted", "failed")


@dataclass(slots=True)
class PageCounts:
    """What became of a page's items. ``details`` tell why, by code, of those that need a look.

    What is written, unchanged, embedded or buried is counted with each record.
    """

    seen: int = 0
    deleted: int = 0
    failed: int = 0
    details: list[dict[str, str]] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)  # listed, so not gone, but not written
    retry: list[str] = field(default_factory=list)  # of those, what may go well another time

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
    """Begin a sync of a source, or the forgetting of a disconnected one; ``by`` is who asked, for the log.

    There is a delta only after a full sync. Forgetting ends the sync that is under way. Raises ``Refused``:
    "SYNC_ALREADY_ACTIVE", "SOURCE_NOT_ACTIVE", "NOT_FOUND".
    """
    with transaction.atomic():
        locked = ConnectedSource.objects.select_for_update(no_key=True).filter(pk=source.pk).first()
        if locked is None:
            raise not_found()
        if kind == Kind.FORGET:
            for job_id in (
                IngestionJob.objects.filter(source=locked, status__in=ACTIVE)
                .exclude(kind=kind)
                .values_list("pk", flat=True)
            ):
                fail_sync(job_id, DISCONNECTED)
        elif locked.status != ConnectedSource.Status.ACTIVE:
            detail = "Nothing can be fetched from this source: connect it again."
            raise ApiError(SOURCE_NOT_ACTIVE, detail)
        if kind == Kind.DELTA and locked.last_synced_at is None:
            kind = Kind.FULL
        job = _created(locked, kind)
        pgmq.enqueue_page(Body(job.pk, locked.pk, locked.user_id, kind))
    log.info("Sync begun", sync=str(job.pk), source=str(source.pk), kind=str(kind), by=by)
    return job


def _created(source: ConnectedSource, kind: str) -> IngestionJob:
    try:
        with transaction.atomic():
            return IngestionJob.objects.create(source=source, user_id=source.user_id, kind=kind)
    except IntegrityError as error:
        if "uq_ingestion_job_active" not in str(error):
            raise
    raise ApiError(SYNC_ALREADY_ACTIVE, "A sync of this source is under way.")


def fail_sync(job_id: UUID, code: str) -> bool:
    """queued or running -> failed; tell whether it was."""
    failed = IngestionJob.objects.filter(pk=job_id, status__in=ACTIVE).update(
        status=Status.FAILED, error_message=code, finished_at=Now(), updated_at=Now()
    )
    return bool(failed)


# What is told again in a row is told once, or fifty waits would push out what the records' details say.
NOTE = """
    UPDATE ingestion_jobs SET items_failed = items_failed + %(failed)s, updated_at = clock_timestamp(),
        error_details = CASE WHEN error_details -> -1 @> %(same)s THEN error_details ELSE (
            SELECT jsonb_agg(d ORDER BY n) FROM (
                SELECT d, n FROM jsonb_array_elements(error_details || %(detail)s) WITH ORDINALITY AS told (d, n)
                ORDER BY n DESC LIMIT %(most)s) last) END
    WHERE id = %(job)s AND status = 'running'"""


def note_page_error(body: Body, code: str) -> None:
    """Tell in the sync why a page of it has to wait or to be tried again (spec 002 §4)."""
    _note(body.job_id, f"page:{body.page}", code, failed=0)


def note_refresh_error(job: IngestionJob, code: str) -> None:
    """Count a refresh of the tokens that failed and will be tried again (spec 002 §2)."""
    _note(job.pk, "token", code, failed=1)


def _note(job_id: UUID, what: str, code: str, *, failed: int) -> None:
    tally = PageCounts()
    tally.add_detail(what, code)
    same = Jsonb({"external_id": what, "code": code})
    params = {"job": job_id, "failed": failed, "detail": Jsonb(tally.details), "same": same, "most": MOST_DETAILS}
    execute(NOTE, params)


def begin_page(body: Body) -> IngestionJob | None:
    """queued -> running: return the sync if this is the page it stands at; None for a page that is closed already."""
    waiting = IngestionJob.objects.filter(pk=body.job_id, page=body.page, status__in=ACTIVE)
    waiting.filter(status=Status.QUEUED).update(
        status=Status.RUNNING, started_at=Coalesce(F("started_at"), Now()), updated_at=Now()
    )
    return waiting.select_related("source").first()


_COUNTS = ", ".join(f"items_{name} = items_{name} + %({name})s" for name in COUNTED)
CLOSE = f"""
    UPDATE ingestion_jobs SET page = page + 1, kind = %(kind)s, cursor = %(cursor)s, error_details = %(details)s,
        {_COUNTS}, status = %(status)s, updated_at = clock_timestamp(),
        finished_at = CASE WHEN %(status)s = 'completed' THEN clock_timestamp() END
    WHERE id = %(job)s AND page = %(page)s AND status = 'running'"""
SEEN = """
    UPDATE source_documents SET seen_in = %(job)s, updated_at = clock_timestamp()
    WHERE source_id = %(source)s AND external_id = ANY(%(ids)s)"""
# What a delta saw before it became a full sync may have gone before that began, and what it buried may be there again.
UNSEEN = """
    UPDATE source_documents SET seen_in = NULL WHERE source_id = %(source)s AND seen_in = %(job)s"""
SYNCED = """
    UPDATE connected_sources SET cursor = (cursor - %(again)s) || %(cursor)s, last_synced_at = clock_timestamp(),
        updated_at = clock_timestamp() WHERE id = %(source)s"""
LOCKED = "SELECT 1 FROM connected_sources WHERE id = %(source)s FOR NO KEY UPDATE"


def close_page(
    message: Message,
    job: IngestionJob,
    tally: PageCounts,
    *,
    onward: Body | None,
    cursor: Mapping[str, Any] | None = None,
) -> None:
    """End a page in one transaction: what came of it, where the sync stands, and its next message; or its end.

    Without a page ``onward`` the sync is completed, and its cursor becomes the source's. Durable, unlike the items'
    own transactions, which it makes durable with itself.
    """
    cursor = job.cursor if cursor is None else cursor
    with pgmq.message_lease(message):
        if onward is None:  # the source before the sync, as everybody locks them
            execute(LOCKED, {"source": job.source_id})
        if not _closed(job, tally, onward, cursor):
            return
        if tally.unwritten:
            execute(SEEN, {"job": job.pk, "source": job.source_id, "ids": tally.unwritten})
        if onward is not None:
            if onward.kind != job.kind:
                execute(UNSEEN, {"job": job.pk, "source": job.source_id})
            pgmq.enqueue_page(onward)
        else:
            # A delta that was not whole leaves its stream where it was.
            left = {CAPPED, *(cursor.get(CAPPED, ()) if job.kind == Kind.DELTA else ())}
            stands = {name: place for name, place in cursor.items() if name not in left}
            execute(SYNCED, {"source": job.source_id, "cursor": Jsonb(stands), "again": AGAIN})
        failpoints.failpoint("page:before-commit")
    failpoints.failpoint("page:after-commit")


def _closed(job: IngestionJob, tally: PageCounts, onward: Body | None, cursor: Mapping[str, Any]) -> bool:
    details = [*job.error_details, *tally.details][-MOST_DETAILS:]
    params = {
        "job": job.pk,
        "page": job.page,
        "kind": onward.kind if onward else job.kind,
        "status": Status.RUNNING if onward else Status.COMPLETED,
        "cursor": Jsonb(cursor),
        "details": Jsonb(details),
        **{name: getattr(tally, name) for name in COUNTED},
    }
    return bool(execute(f"{CLOSE} RETURNING id", params))
