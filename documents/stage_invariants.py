"""Stage invariants: the original is stored, a parse was requested, and the stored parse is the recorded one."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from documents.models import Document
from documents.storage import buckets
from jobs.models import UploadJob
from jobs.pipeline import Invariant, all_invariants, cached_check, sql_invariant

tenant_matches = sql_invariant("""
    SELECT j.job_id, 'The job and its document belong to different tenants.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND d.user_id <> j.user_id""")

_pages_counted = sql_invariant("""
    SELECT j.job_id, 'The document has not been received and counted.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (d.stored_at IS NULL OR coalesce(d.pages, 0) < 1)""")

_parse_recorded = sql_invariant("""
    SELECT j.job_id, 'No parse of the document is recorded.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (
        d.parsed_sha256 IS NULL OR d.parsed_path IS NULL OR d.page_starts IS NULL
        OR j.parsed_sha256 IS DISTINCT FROM d.parsed_sha256 OR j.parsed_path IS DISTINCT FROM d.parsed_path)""")

_request_recorded = sql_invariant("""
    SELECT j.job_id, 'No parse of the document has been requested.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND (
        j.payload ->> 'parse_id' IS NULL
        OR (j.payload ->> 'parser_name' = 'llamaparse' AND NOT EXISTS (
            SELECT 1 FROM parse_requests r
            WHERE r.parse_id = (j.payload ->> 'parse_id')::uuid AND r.state IN ('submitted', 'collected'))))""")


def _original_violation(document: Document) -> str | None:
    bucket, name = buckets.locate(document.raw_path)
    if not bucket.exists(name):
        return "The original file is missing."
    return None if bucket.size(name) == document.bytes_len else "The original file has another length."


def _parse_violation(document: Document) -> str | None:
    bucket, name = buckets.locate(document.parsed_path or "")
    if not bucket.exists(name):
        return "The parsed file is missing."
    same = hashlib.sha256(bucket.read(name)).hexdigest() == document.parsed_sha256
    return None if same else "The parsed file is not the one that was recorded."


def _object_invariant(violation: Callable[[Document], str | None]) -> Invariant:
    """Return the invariant that checks each document's object in the store, once in one pass."""

    def prove(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        reasons: dict[UUID, str] = {}
        for job in UploadJob.objects.filter(pk__in=job_ids).select_related("document"):
            document = job.document
            key = (violation, document.pk, document.raw_path, document.parsed_path, document.parsed_sha256)
            if reason := cached_check(key, partial(violation, document)):
                reasons[job.pk] = reason
        return reasons

    return prove


original_stored = all_invariants(tenant_matches, _pages_counted, _object_invariant(_original_violation))
parse_requested = all_invariants(_request_recorded, original_stored)
parse_stored = all_invariants(_parse_recorded, original_stored, _object_invariant(_parse_violation))
parse_staged = all_invariants(
    parse_stored,
    sql_invariant("""
        SELECT j.job_id, 'The new parse is not the one that this job has made.'
        FROM upload_jobs j LEFT JOIN document_staged_parses s USING (document_id)
        WHERE j.job_id = ANY(%(jobs)s) AND (s.sha256 = j.payload ->> 'staged_sha256') IS NOT TRUE"""),
)
