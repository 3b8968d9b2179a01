"""Removing what a disconnected source has left, a batch a message."""

from __future__ import annotations

from integrations import budget, doubts, messages, syncs
from integrations.messages import Message
from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, VaultToken
from integrations.queue import ARCHIVE
from integrations.statements import execute
from integrations.syncs import Tally
from vendors import gate

BATCH = 1_000

ROWS = """
    DELETE FROM source_documents WHERE id IN (
        SELECT id FROM source_documents WHERE source_id = %(source)s ORDER BY external_id LIMIT %(most)s)
    RETURNING id"""


# What was given up of it can never go on.
ARCHIVED = f"DELETE FROM {ARCHIVE} WHERE message ->> 'source_id' = %(source)s"


def work(message: Message, job: IngestionJob) -> None:
    """Delete the next batch of the source's records; after the last one, all else of it and the source itself."""
    with messages.fenced(message):
        rows = execute(ROWS, {"source": job.source_id, "most": BATCH})
        if not rows:
            _forget(job.source)
    doubts.settle(job.source_id)
    if rows:
        syncs.close(message, job, Tally(deleted=len(rows)), onward=message.body.next_page(None))


def _forget(source: ConnectedSource) -> None:
    ClientIntelligence.objects.filter(source=source).delete()
    VaultToken.objects.filter(source_id=source.pk).delete()
    IngestionJob.objects.filter(source=source).delete()
    ConnectedSource.objects.filter(pk=source.pk).delete()
    execute(ARCHIVED, {"source": str(source.pk)})
    gate.drop(budget.vendor(source))
