"""Deletion of orphaned imports: uploaded documents that no record refers to any more.

``orphan_candidates`` has a row for each document that may be orphaned, written in the transaction that made it so: by
the import, until the sync has written its record; and by the database's triggers (0002) when a record ceases to refer
to its document, for whatever reason. Rows are never updated, so that deleting the rows just checked deletes none that
came since. Each page ends by checking its own source's rows; a periodic task checks those left by a worker that died or
by a sync that was stopped.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from documents import services
from documents.models import Document
from integrations.models import OrphanCandidate
from integrations.records.prepared_sql import execute
from jobs.cluster import shared_state

AT_ONCE = 100

# Read under the lock under which documents are declared, and their rows in doubt are written in its transaction.
IN_USE = """
    SELECT EXISTS (SELECT FROM documents WHERE document_id = %(document)s AND NOT imported)
        OR EXISTS (SELECT FROM source_documents WHERE upload_document_id = %(document)s AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM orphan_candidates u JOIN ingestion_jobs j ON j.id = u.job_id
                   WHERE u.document_id = %(document)s AND j.status IN ('queued', 'running')) AS in_use"""
# The usual end of a row in doubt: its own record refers to the document. Another record is no reason, it may cease to.
# Not as a join, which the planner may begin with all records of the source.
DELETE_SETTLED = """
    DELETE FROM orphan_candidates u WHERE u.source_id = %(source)s AND u.job_id IS NOT NULL AND u.document_id = (
        SELECT d.upload_document_id FROM source_documents d
        WHERE d.source_id = u.source_id AND d.external_id = u.external_id AND d.deleted_at IS NULL)"""
_DUE = """
    SELECT u.id, u.document_id FROM orphan_candidates u
    WHERE {of} NOT EXISTS (
        SELECT FROM ingestion_jobs j WHERE j.id = u.job_id AND j.status IN ('queued', 'running'))
    ORDER BY u.id LIMIT %(most)s"""
DUE = _DUE.format(of="")
DUE_OF_SOURCE = _DUE.format(of="u.source_id = %(source)s AND")


def withdraw_upload(document_id: UUID) -> bool:
    """Delete a document that a connector imported; return whether it is gone. Call it in no transaction. Idempotent.

    It stays while the tenant has uploaded it too, a record refers to it, or the sync that imported it goes on: its
    record may be about to be written.
    """
    document = Document.objects.filter(pk=document_id).first()
    params = {"document": document_id}
    return document is None or services.delete(
        document,
        unless=lambda: bool(execute(IN_USE, params)[0].in_use),
        by="connector",
        reason="Deleted at its source.",
    )


def withdraw_orphans(source_id: UUID) -> None:
    """Delete the documents that no record of a source refers to any more. Call it in no transaction.

    A worker that has to stop leaves the rest to the periodic task.
    """
    execute(DELETE_SETTLED, {"source": source_id})
    params = {"source": source_id, "most": AT_ONCE}
    while not shared_state.is_stopping() and (due := execute(DUE_OF_SOURCE, params)):
        _withdraw(due)


def withdraw_due_orphans() -> int:
    """Delete orphaned documents of all sources; return how many rows in doubt were checked."""
    due = execute(DUE, {"most": AT_ONCE})
    _withdraw(due)
    return len(due)


def _withdraw(due: Sequence[Any]) -> None:
    """Delete the documents, then the rows by their ids, for a newer one may have come since."""
    for document_id in dict.fromkeys(row.document_id for row in due):
        withdraw_upload(document_id)
        OrphanCandidate.objects.filter(pk__in=[row.id for row in due if row.document_id == document_id]).delete()
