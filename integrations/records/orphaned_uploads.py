"""Uploaded documents of PDFs that are gone, have a new version, or were never written: withdrawn, whoever died when.

What is in doubt is in ``uploads_in_doubt`` since the very transaction that made it so: with the document, by the sync
that brings it and is yet to write its record; and by the database's triggers (0002) when a record ceases to refer to
one, for whatever reason. It is a row each time, and none is ever changed: so who takes out the rows that he has looked
at takes out none that came since. Each page ends with the doubts of its own source; the keeper's sweep finds what a
worker that died, or a sync that was ended, has left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from integrations.models import UploadInDoubt
from integrations.records import pdf_import
from integrations.records.sql import execute
from jobs.cluster import shared_memory

AT_ONCE = 100

# The usual end of a claim: its own record refers to the document. That another does is no reason, it may cease to.
# Not as a join, which the planner may well begin with all records of the source.
KEPT = """
    DELETE FROM uploads_in_doubt u WHERE u.source_id = %(source)s AND u.job_id IS NOT NULL AND u.document_id = (
        SELECT d.upload_document_id FROM source_documents d
        WHERE d.source_id = u.source_id AND d.external_id = u.external_id AND d.deleted_at IS NULL)"""
_DUE = """
    SELECT u.id, u.document_id FROM uploads_in_doubt u
    WHERE {of} NOT EXISTS (
        SELECT FROM ingestion_jobs j WHERE j.id = u.job_id AND j.status IN ('queued', 'running'))
    ORDER BY u.id LIMIT %(most)s"""
DUE = _DUE.format(of="")
DUE_OF = _DUE.format(of="u.source_id = %(source)s AND")


def withdraw_orphans(source_id: UUID) -> None:
    """Withdraw what no record of a source refers to any more. Call it in no transaction.

    A worker that has to stop leaves the rest to the sweep.
    """
    execute(KEPT, {"source": source_id})
    while not shared_memory.is_stopping() and (due := execute(DUE_OF, {"source": source_id, "most": AT_ONCE})):
        _withdraw(due)


def withdraw_due_orphans() -> int:
    """Withdraw what nobody has looked at since it was left; return how many doubts there were."""
    params: Mapping[str, Any] = {"most": AT_ONCE}
    due = execute(DUE, params)
    _withdraw(due)
    return len(due)


def _withdraw(due: Sequence[Any]) -> None:
    """Doubts go after their document: by their ids, for a newer one may have come since."""
    for document_id in dict.fromkeys(row.document_id for row in due):
        pdf_import.withdraw_upload(document_id)
        UploadInDoubt.objects.filter(pk__in=[row.id for row in due if row.document_id == document_id]).delete()
