"""Factory of sources and syncs, and a fake page handler for ``settings.INGESTION_WORK``."""

import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db.models import F

from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import pgmq
from integrations.sync.pgmq import Body, Message
from jobs import failpoints

PAGES = 3  # of each sync
WORK = "testing.factories.syncs.sync_page"


def create_source(user_id: UUID | None = None, **columns: Any) -> ConnectedSource:
    defaults = {"provider": "hubspot", "account": uuid4().hex, **columns}
    return ConnectedSource.objects.create(user_id=user_id or uuid4(), **defaults)


def create_sync(of: ConnectedSource | None = None, *, kind: str = "full_sync", **columns: Any) -> Body:
    """Begin a sync of ``of``; return the body of its first message, which is not sent yet."""
    of = of or create_source()
    job = IngestionJob.objects.create(user_id=of.user_id, source=of, kind=kind, **columns)
    return Body(job_id=job.pk, source_id=of.pk, user_id=of.user_id, kind=kind, page=job.page)


def sync_page(message: Message) -> None:
    """Count one item a page, as a page's work does: under the fence, with the next page or the end of the sync.

    Before that it waits for as long as the file that PAGED_UNTIL_GONE names is there.
    """
    body = message.body
    IngestionJob.objects.filter(pk=body.job_id).update(status="running", items_seen=F("items_seen") + 1)
    failpoints.failpoint("page:items")
    _wait()
    with pgmq.message_lease(message):
        job = IngestionJob.objects.filter(pk=body.job_id, page=body.page)
        if job.update(page=F("page") + 1, items_written=F("items_written") + 1):
            if body.page + 1 < PAGES:
                pgmq.enqueue_page(body.next_page(str(body.page + 1)))
            else:
                IngestionJob.objects.filter(pk=body.job_id).update(status="completed")


def _wait() -> None:
    gate = os.environ.get("PAGED_UNTIL_GONE", "")
    while gate and Path(gate).exists():
        time.sleep(0.02)
