"""What proves that a document has arrived, and that its parse is the one that was recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from uuid import UUID

from documents import storage
from documents.models import Document
from jobs.invariants import all_invariants, cached_check, sql_invariant
from jobs.models import UploadJob
from jobs.pipeline import Invariant

tenant_matches = sql_invariant("""
    SELECT j.job_id, 'The job and its document belong to different tenants.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND d.user_id <> j.user_id""")

_counted = sql_invariant("""
    SELECT j.job_id, 'The document has not been received and counted.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (d.stored_at IS NULL OR coalesce(d.pages, 0) < 1)""")

_recorded = sql_invariant("""
    SELECT j.job_id, 'No parse of the document is recorded.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (
        d.parsed_sha256 IS NULL OR d.parsed_path IS NULL OR d.page_starts IS NULL
        OR j.parsed_sha256 IS DISTINCT FROM d.parsed_sha256 OR j.parsed_path IS DISTINCT FROM d.parsed_path)""")


_asked = sql_invariant("""
    SELECT j.job_id, 'No parse of the document has been asked for.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (
        j.payload ->> 'parse_id' IS NULL
        OR (j.payload ->> 'parser_name' = 'llamaparse' AND NOT EXISTS (
            SELECT 1 FROM parse_requests r
            WHERE r.parse_id = (j.payload ->> 'parse_id')::uuid AND r.state IN ('submitted', 'collected'))))""")


def _original_missing(document: Document) -> str | None:
    return cached_check((document.pk, document.raw_path), lambda: _original(document))


def _parse_missing(document: Document) -> str | None:
    return cached_check((document.pk, document.parsed_path, document.parsed_sha256), lambda: _parse(document))


def _original(document: Document) -> str | None:
    bucket, name = storage.locate(document.raw_path)
    if not bucket.exists(name):
        return "The original file is missing."
    return None if bucket.size(name) == document.bytes_len else "The original file has another length."


def _parse(document: Document) -> str | None:
    bucket, name = storage.locate(document.parsed_path or "")
    if not bucket.exists(name):
        return "The parsed file is missing."
    same = hashlib.sha256(bucket.read(name)).hexdigest() == document.parsed_sha256
    return None if same else "The parsed file is not the one that was recorded."


def _stored(missing: Callable[[Document], str | None]) -> Invariant:
    """Return the proof that looks into the store, object by object."""

    def prove(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        jobs = UploadJob.objects.filter(pk__in=job_ids).select_related("document")
        found = ((job.pk, missing(job.document)) for job in jobs)
        return {job_id: reason for job_id, reason in found if reason}

    return prove


original_stored = all_invariants(tenant_matches, _counted, _stored(_original_missing))
parse_requested = all_invariants(_asked, original_stored)
parse_stored = all_invariants(_recorded, original_stored, _stored(_parse_missing))
