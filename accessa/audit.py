"""Every promise against every row: what stands somewhere without having earned it, and what belongs to nobody."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.db import connection

from documents.models import Document, Removal
from documents.storage import Bucket
from jobs import plan
from jobs.models import UploadJob

AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    subject: str
    reason: str


def findings() -> Iterator[Finding]:
    """Yield everything that is not as it should be; nothing when all is well."""
    yield from broken_jobs()
    yield from orphan_rows()
    yield from orphan_objects()


def broken_jobs() -> Iterator[Finding]:
    """Hold each job against the proof of the stage at which it stands, in batches along the primary key."""
    after = UUID(int=0)
    while jobs := list(UploadJob.objects.filter(pk__gt=after).order_by("pk")[:AT_ONCE]):
        after = jobs[-1].pk
        by_step: dict[tuple[str, str], list[UUID]] = {}
        for job in jobs:
            by_step.setdefault((job.pipeline, job.stage), []).append(job.pk)
        for (name, stage), job_ids in by_step.items():
            for job_id, reason in _broken(name, stage, job_ids).items():
                yield Finding("job", str(job_id), f"{stage}: {reason}")


def _broken(pipeline: str, stage: str, job_ids: list[UUID]) -> dict[UUID, str]:
    try:
        return plan.pipeline(pipeline).step(stage).proof(job_ids)
    except ImproperlyConfigured as error:
        return dict.fromkeys(job_ids, str(error))


# Rows whose foreign keys hold but whose tenant differs, and buffers of documents that nobody is working on.
ROWS = {
    "chunk": """SELECT c.chunk_id, 'The chunk belongs to another tenant than its document.'
        FROM document_chunks c JOIN documents d USING (document_id) WHERE c.user_id <> d.user_id""",
    "chunk of no job": """SELECT c.chunk_id, 'The chunk was cut by a chunker that no job of its document used.'
        FROM document_chunks c WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = c.document_id AND j.chunks_version = c.chunker_name || '@' || c.chunker_version)""",
    "vector": """SELECT b.buffer_id, 'A vector waits in the buffer though its document is not being worked on.'
        FROM document_vector_buffer b WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))""",
    "buffered chunk": """SELECT b.chunk_id, 'A chunk waits in the buffer though its document is not being worked on.'
        FROM document_chunk_buffer b WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = b.document_id AND j.state IN ('queued', 'working', 'retryable'))""",
    "document": """SELECT d.document_id, 'The document says another status than its job.'
        FROM documents d JOIN LATERAL (SELECT status FROM upload_jobs j WHERE j.document_id = d.document_id
            ORDER BY created_at DESC, job_id DESC LIMIT 1) j ON true
        WHERE d.processing_status IS DISTINCT FROM j.status""",
    "document without a job": """SELECT d.document_id, 'No job was ever made for the document.'
        FROM documents d WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j WHERE j.document_id = d.document_id)""",
}


def orphan_rows() -> Iterator[Finding]:
    for kind, sql in ROWS.items():
        with connection.cursor() as cursor:
            cursor.execute(sql)
            for subject, reason in cursor.fetchall():
                yield Finding(kind, str(subject), reason)


def orphan_objects() -> Iterator[Finding]:
    """Yield objects of documents that do not exist, those apart whose removal is already under way."""
    for name in ("raw", "parsed"):
        bucket = cast(Bucket, storages[name])
        names: list[str] = []
        for found in bucket.names():
            names.append(found)
            if len(names) == AT_ONCE:
                yield from _without_document(name, names)
                names = []
        yield from _without_document(name, names)


def _without_document(bucket: str, names: list[str]) -> Iterator[Finding]:
    by_id = {_document_id(name): name for name in names}
    known = set(Document.objects.filter(pk__in=by_id).values_list("pk", flat=True))
    known |= set(Removal.objects.filter(document_id__in=by_id).values_list("document_id", flat=True))
    for document_id, name in by_id.items():
        if document_id not in known:
            yield Finding("object", f"{bucket}:{Path(name).stem}", "The object belongs to no document.")


def _document_id(name: str) -> UUID:
    try:
        return UUID(Path(name).stem)
    except ValueError:
        return uuid.uuid4()  # certainly not a document's
