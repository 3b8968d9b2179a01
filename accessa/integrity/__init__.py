"""Every promise against every row: what stands somewhere without having earned it, and what belongs to nobody."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.db import connection
from django.db.models import Exists, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from accessa.integrity import connectors, statutes
from documents import storage
from documents.models import Document, Removal
from documents.storage import Bucket
from embeddings import vector_store
from embeddings.periodic import WAITS_FOR_RETRY
from jobs import pipeline as plan
from jobs.models import UploadJob
from jobs.states import Stage, State
from statutes.models import LawVersion

AT_ONCE = 200
Owner = tuple[UUID, UUID]  # the tenant and the document, in which order objects are listed
NOBODYS: Owner = (UUID(int=0), UUID(int=0))
EVERYBODYS: Owner = (UUID(int=2**128 - 1), UUID(int=2**128 - 1))
EXTENSIONS = {"raw": "pdf", "parsed": "md"}


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    subject: str
    reason: str


def find_violations(*, deep: bool = False) -> Iterator[Violation]:
    """Yield all that is not as it should be; nothing when all is well. ``deep`` reads all that is stored too."""
    broken: set[UUID] = set()
    for finding in find_broken_jobs():
        broken.add(UUID(finding.subject))
        yield finding
    yield from _rows(ROWS | connectors.ROWS | statutes.ROWS)
    for name in storage.BUCKETS:
        yield from find_orphaned_files(name, broken)
    if deep:
        yield from _rows(connectors.DEEP)
        yield from find_changed_originals()
        yield from find_changed_vectors()
        yield from (Violation("artifact", law_id, reason) for law_id, reason in statutes.find_changed_artifacts())


def find_broken_jobs() -> Iterator[Violation]:
    """Hold each job against the proof of the stage at which it stands, in batches along the primary key.

    Dead letters are passed over: their buffers are swept, and a retry goes back to the last stage that holds. So is a
    finished job that a later one, a campaign's or a law's, has taken over from. What looks broken is looked at again,
    because jobs move on between two statements.
    """
    after = UUID(int=0)
    alive = UploadJob.objects.exclude(state=State.DEADLETTER).exclude(_superseded()).order_by("pk")
    while jobs := list(alive.filter(pk__gt=after)[:AT_ONCE]):
        after = jobs[-1].pk
        by_step: dict[tuple[str, str], list[UUID]] = {}
        for job in jobs:
            by_step.setdefault((job.pipeline, job.stage), []).append(job.pk)
        for (name, stage), job_ids in by_step.items():
            for job_id, reason in _broken(name, stage, list(_broken(name, stage, job_ids))).items():
                if not alive.filter(pk=job_id, stage=stage).exists():
                    continue
                yield Violation("job", str(job_id), f"{stage}: {reason}")


def _superseded() -> Q:
    later = Q(created_at__gt=OuterRef("created_at")) | Q(created_at=OuterRef("created_at"), pk__gt=OuterRef("pk"))
    reached = UploadJob.objects.filter(later, stage=Stage.EMBEDDED, document_id=OuterRef("document_id"))
    return Q(Exists(reached), state=State.DONE)


def _broken(pipeline: str, stage: str, job_ids: list[UUID]) -> dict[UUID, str]:
    try:
        return plan.get_pipeline(pipeline).step(stage).invariant(job_ids)
    except ImproperlyConfigured as error:
        return dict.fromkeys(job_ids, str(error))


_NOBODY_AT_IT = """NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = b.document_id AND (j.state IN ('queued', 'working', 'retryable')
                OR j.finished_at > clock_timestamp() - interval '2 minutes'))"""

# A law's passages that came as artifacts, made elsewhere.
_INGESTED = """EXISTS (SELECT 1 FROM law_versions v
            WHERE v.document_id = {}.document_id AND v.job_id IS NULL AND v.manifest_sha256 IS NOT NULL)"""

# Rows whose foreign keys hold but whose tenant differs, and buffers of documents that nobody is working on.
ROWS = {
    "chunk": """SELECT c.chunk_id, 'The chunk belongs to another tenant than its document.'
        FROM document_chunks c JOIN documents d USING (document_id) WHERE c.user_id <> d.user_id""",
    "chunk of no job": """SELECT c.chunk_id, 'The chunk was cut by a chunker that no job of its document used.'
        FROM document_chunks c WHERE NOT EXISTS (SELECT 1 FROM upload_jobs j
            WHERE j.document_id = c.document_id AND j.chunks_version = c.chunker_name || '@' || c.chunker_version)
            AND NOT """
    + _INGESTED.format("c"),
    "vector": """SELECT b.buffer_id, 'A vector waits in the buffer though its document is not being worked on.'
        FROM document_vector_buffer b WHERE """
    + f"{_NOBODY_AT_IT} AND NOT {WAITS_FOR_RETRY}",
    "buffered chunk": """SELECT b.chunk_id, 'A chunk waits in the buffer though its document is not being worked on.'
        FROM document_chunk_buffer b WHERE """
    + _NOBODY_AT_IT,
    "document": """SELECT d.document_id, 'The document says another status than its job.'
        FROM documents d JOIN LATERAL (SELECT status FROM upload_jobs j
            WHERE j.document_id = d.document_id AND j.campaign_id IS NULL
            ORDER BY created_at DESC, job_id DESC LIMIT 1) j ON true
        WHERE d.processing_status IS DISTINCT FROM j.status""",
    "document without a job": """SELECT d.document_id, 'No job was ever made for the document.'
        FROM documents d WHERE NOT EXISTS (
            SELECT 1 FROM upload_jobs j WHERE j.document_id = d.document_id AND j.campaign_id IS NULL)
            AND NOT """
    + _INGESTED.format("d"),
    "passage": """SELECT c.chunk_id, 'The passage is found though its document is searched by another cut.'
        FROM document_chunks c JOIN documents d USING (document_id)
        WHERE c.embed_model IS NOT NULL AND d.chunks_version <> c.chunker_name || '@' || c.chunker_version""",
    "shadow vector": """SELECT s.chunk_id, 'The vector belongs to another tenant or document than its chunk.'
        FROM shadow_vectors s JOIN document_chunks c USING (chunk_id)
        WHERE s.user_id <> c.user_id OR s.document_id <> c.document_id""",
    "words": """SELECT DISTINCT d.document_id, 'Words of the document belong to another tenant.'
        FROM document_terms t JOIN documents d USING (document_id) WHERE t.user_id <> d.user_id""",
}


def _rows(questions: Mapping[str, str]) -> Iterator[Violation]:
    for kind, sql in questions.items():
        with connection.cursor() as cursor:
            cursor.execute(sql)
            for subject, reason in cursor.fetchall():
                yield Violation(kind, str(subject), reason)


def find_orphaned_files(bucket: str, broken: Collection[UUID] = ()) -> Iterator[Violation]:
    """Yield objects without a document and documents without their object, in one listing of the bucket.

    ``broken`` are jobs that were named already: their documents are not named twice.
    """
    after = NOBODYS
    for names in _batches(cast(Bucket, storages[bucket]).names()):
        yield from _without_document(bucket, names)
        last = max((owner for owner in map(_owner, names) if owner), default=after)
        yield from _without_object(bucket, after, last, names, broken)
        after = max(after, last)
    yield from _without_object(bucket, after, EVERYBODYS, [], broken)


def _batches(names: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(names, AT_ONCE)):
        yield batch


# The documents whose object should be listed between two others. A store that lists in another order than ours only
# makes us look at more of them one by one.
EXPECTED = {
    "raw": """SELECT document_id, raw_path FROM documents WHERE stored_at IS NOT NULL
        AND (user_id, document_id) > (%s, %s) AND (user_id, document_id) <= (%s, %s)""",
    "parsed": """SELECT document_id, parsed_path FROM documents WHERE parsed_path IS NOT NULL
        AND (user_id, document_id) > (%s, %s) AND (user_id, document_id) <= (%s, %s)""",
}
MISSING = {"raw": "The original file is missing.", "parsed": "The parsed file is missing."}


def _without_object(
    bucket: str, after: Owner, last: Owner, names: list[str], broken: Collection[UUID]
) -> Iterator[Violation]:
    listed = {f"{storage.URI_PREFIX}{bucket}/{name}" for name in names}
    with connection.cursor() as cursor:
        cursor.execute(EXPECTED[bucket], [*after, *last])
        missing = [(pk, path) for pk, path in cursor.fetchall() if path not in listed]
    for document_id, path in missing:
        if _still_missing(path) and not UploadJob.objects.filter(document_id=document_id, pk__in=broken).exists():
            yield Violation("file", str(document_id), MISSING[bucket])


def _still_missing(path: str) -> bool:
    """Look again: documents come and go between the listing and the rows."""
    bucket, name = storage.locate(path)
    return not bucket.exists(name) and Document.objects.filter(Q(raw_path=path) | Q(parsed_path=path)).exists()


def _without_document(bucket: str, names: list[str]) -> Iterator[Violation]:
    ids = {_document_id(name) for name in names}
    owners = Document.objects.filter(pk__in=ids).values_list("user_id", "pk")
    known = {storage.object_uri(bucket, user_id, document_id, EXTENSIONS[bucket]) for user_id, document_id in owners}
    known |= set(Removal.objects.filter(document_id__in=ids).values_list("path", flat=True))
    for name in names:
        if f"{storage.URI_PREFIX}{bucket}/{name}" not in known:
            yield Violation("object", f"{bucket}:{Path(name).stem}", "The object belongs to no document.")


def find_changed_originals() -> Iterator[Violation]:
    """Hash every original again; slow, it reads the whole store."""
    laws = LawVersion.objects.filter(pk=OuterRef("pk")).values("raw_sha256")
    stored = Document.objects.filter(stored_at__isnull=False)
    for document in stored.annotate(sha256=Coalesce(Subquery(laws), "file_sha256")).iterator(chunk_size=AT_ONCE):
        bucket, name = storage.locate(document.raw_path)
        if not bucket.exists(name):
            continue  # found by the job's proof
        with bucket.local_file(name) as path, path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != document.sha256:
                yield Violation("original", str(document.pk), "The original is not the file that was declared.")


def find_changed_vectors() -> Iterator[Violation]:
    """Hold every vector against the sha that was written beside it; slow, it reads them all."""
    for chunk_id in vector_store.corrupt_chunks():
        yield Violation("vector", str(chunk_id), "The vector does not have its sha.")


def _owner(name: str) -> Owner | None:
    user_id, _, file = name.partition("/")
    try:
        return UUID(user_id), UUID(Path(file).stem)
    except ValueError:
        return None


def _document_id(name: str) -> UUID:
    try:
        return UUID(Path(name).stem)
    except ValueError:
        return uuid.uuid4()  # certainly not a document's
