"""Removing what a disconnected source has left, a batch a message."""

from __future__ import annotations

from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, VaultToken
from integrations.records import orphaned_uploads
from integrations.records.sql import execute
from integrations.sync import pgmq, sync_jobs
from integrations.sync.pgmq import ARCHIVE, Message
from integrations.sync.sync_jobs import PageCounts
from integrations.transports.responses import source_vendor
from vendors import guard

BATCH = 1_000

ROWS = """
    DELETE FROM source_documents WHERE id IN (
        SELECT id FROM source_documents WHERE source_id = %(source)s ORDER BY external_id LIMIT %(most)s)
    RETURNING id"""


# What was given up of it can never go on.
ARCHIVED = f"DELETE FROM {ARCHIVE} WHERE message ->> 'source_id' = %(source)s"


def purge_batch(message: Message, job: IngestionJob) -> None:
    """Delete the next batch of the source's records; after the last one, all else of it and the source itself."""
    with pgmq.message_lease(message):
        rows = execute(ROWS, {"source": job.source_id, "most": BATCH})
        if not rows:
            _forget(job.source)
    orphaned_uploads.withdraw_orphans(job.source_id)
    if rows:
        sync_jobs.close_page(message, job, PageCounts(deleted=len(rows)), onward=message.body.next_page(None))


def _forget(source: ConnectedSource) -> None:
    ClientIntelligence.objects.filter(source=source).delete()
    VaultToken.objects.filter(source_id=source.pk).delete()
    IngestionJob.objects.filter(source=source).delete()
    ConnectedSource.objects.filter(pk=source.pk).delete()
    execute(ARCHIVED, {"source": str(source.pk)})
    guard.delete_vendor_state(source_vendor(source))
