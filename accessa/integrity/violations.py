"""Integrity checks of all rows and files: jobs against their invariants, tenants, orphans, changed bytes."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.db import connection
from django.db.models import Exists, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from accessa.integrity import violation_queries
from documents.models import Document, ObjectDeletion
from documents.storage import buckets
from documents.storage.buckets import Bucket
from embeddings import vector_store
from jobs.choices import Stage, State
from jobs.models import UploadJob
from jobs.pipeline import get_pipeline
from statutes import artifact_import
from statutes.artifact_import import Source
from statutes.models import Law, LawVersion
from statutes.s3 import keys
from statutes.s3.manifests import Entry, Manifest, ManifestRefused

BATCH_SIZE = 200
Owner = tuple[UUID, UUID]  # tenant and document: the order in which objects are listed
FIRST: Owner = (UUID(int=0), UUID(int=0))
LAST: Owner = (UUID(int=2**128 - 1), UUID(int=2**128 - 1))
EXTENSIONS = {"raw": ("pdf",), "parsed": ("md", "jpg")}  # jpg: the thumbnail, which a document may lack
MISSING = {"raw": "The original file is missing.", "parsed": "The parsed file is missing."}
CHANGED = "An object is missing, or is not the one that the manifest names"
NO_MANIFEST = "The statute's manifest is missing."
OTHER_MANIFEST = "The statute's manifest is not the one that was uploaded."
OTHER_VERSION = "The statute's manifest names another version than the searchable one."


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    subject: str
    reason: str


def find_violations(*, deep: bool = False) -> Iterator[Violation]:
    """Yield every violation. ``deep`` also reads all stored bytes and vectors."""
    broken: set[UUID] = set()
    for violation in find_broken_jobs():
        broken.add(UUID(violation.subject))
        yield violation
    yield from _select_violations(
        violation_queries.DOCUMENTS | violation_queries.CONNECTORS | violation_queries.STATUTES
    )
    for name in buckets.BUCKETS:
        yield from find_orphaned_files(name, broken)
    if deep:
        yield from _select_violations(violation_queries.CONNECTOR_TEXTS)
        yield from find_changed_originals()
        for chunk_id in vector_store.corrupt_chunks():
            yield Violation("vector", str(chunk_id), "The vector does not have its sha.")
        yield from find_changed_artifacts()


def _select_violations(statements: Mapping[str, str]) -> Iterator[Violation]:
    for kind, sql in statements.items():
        with connection.cursor() as cursor:
            cursor.execute(sql)
            yield from (Violation(kind, str(subject), reason) for subject, reason in cursor.fetchall())


def find_broken_jobs() -> Iterator[Violation]:
    """Check each job against the invariant of its stage, in batches along the primary key.

    Dead letters are skipped: their buffers are deleted, and a retry goes back to the last stage that holds. So is a
    finished job that a later one of the document has superseded. A broken job is checked twice, because jobs move on
    between two statements.
    """
    later = Q(created_at__gt=OuterRef("created_at")) | Q(created_at=OuterRef("created_at"), pk__gt=OuterRef("pk"))
    finished = UploadJob.objects.filter(later, stage=Stage.EMBEDDED, document_id=OuterRef("document_id"))
    superseded = Q(Exists(finished), state=State.DONE)
    alive = UploadJob.objects.exclude(state=State.DEADLETTER).exclude(superseded).order_by("pk")
    after = UUID(int=0)
    while jobs := list(alive.filter(pk__gt=after)[:BATCH_SIZE]):
        after = jobs[-1].pk
        by_step: dict[tuple[str, str], list[UUID]] = {}
        for job in jobs:
            by_step.setdefault((job.pipeline, job.stage), []).append(job.pk)
        for (pipeline, stage), job_ids in by_step.items():
            suspects = list(_check_invariant(pipeline, stage, job_ids))
            for job_id, reason in _check_invariant(pipeline, stage, suspects).items():
                if alive.filter(pk=job_id, stage=stage).exists():
                    yield Violation("job", str(job_id), f"{stage}: {reason}")


def _check_invariant(pipeline: str, stage: str, job_ids: list[UUID]) -> dict[UUID, str]:
    try:
        return get_pipeline(pipeline).step(stage).invariant(job_ids)
    except ImproperlyConfigured as error:
        return dict.fromkeys(job_ids, str(error))


def find_orphaned_files(bucket: str, broken: Collection[UUID] = ()) -> Iterator[Violation]:
    """Yield objects without a document and documents without their object, in one listing of the bucket.

    Documents of the ``broken`` jobs are not repeated.
    """
    after = FIRST
    listing = cast(Bucket, storages[bucket]).names()
    while names := list(islice(listing, BATCH_SIZE)):
        yield from _objects_without_document(bucket, names)
        last = max((owner for owner in map(_owner, names) if owner), default=after)
        yield from _documents_without_object(bucket, after, last, names, broken)
        after = max(after, last)
    yield from _documents_without_object(bucket, after, LAST, [], broken)


def _documents_without_object(
    bucket: str, after: Owner, last: Owner, names: list[str], broken: Collection[UUID]
) -> Iterator[Violation]:
    listed = {f"{buckets.URI_PREFIX}{bucket}/{name}" for name in names}
    with connection.cursor() as cursor:
        cursor.execute(violation_queries.EXPECTED_FILES[bucket], [*after, *last])
        missing = [(pk, path) for pk, path in cursor.fetchall() if path not in listed]
    for document_id, path in missing:
        place, name = buckets.locate(path)
        # Checked again: documents come and go between the listing and the rows.
        is_missing = not place.exists(name) and Document.objects.filter(Q(raw_path=path) | Q(parsed_path=path)).exists()
        if is_missing and not UploadJob.objects.filter(document_id=document_id, pk__in=broken).exists():
            yield Violation("file", str(document_id), MISSING[bucket])


def _objects_without_document(bucket: str, names: list[str]) -> Iterator[Violation]:
    ids = {owner[1] for name in names if (owner := _owner(name))}
    owners = Document.objects.filter(pk__in=ids).values_list("user_id", "pk")
    known = {
        buckets.object_uri(bucket, user_id, document_id, extension)
        for user_id, document_id in owners
        for extension in EXTENSIONS[bucket]
    }
    known |= set(ObjectDeletion.objects.filter(document_id__in=ids).values_list("path", flat=True))
    for name in names:
        if f"{buckets.URI_PREFIX}{bucket}/{name}" not in known:
            yield Violation("object", f"{bucket}:{Path(name).stem}", "The object belongs to no document.")


def _owner(name: str) -> Owner | None:
    user_id, _, file = name.partition("/")
    try:
        return UUID(user_id), UUID(Path(file).stem)
    except ValueError:
        return None


def find_changed_originals() -> Iterator[Violation]:
    """Hash every original again; slow, it reads the whole store."""
    laws = LawVersion.objects.filter(pk=OuterRef("pk")).values("raw_sha256")
    stored = Document.objects.filter(stored_at__isnull=False)
    for document in stored.annotate(sha256=Coalesce(Subquery(laws), "file_sha256")).iterator(chunk_size=BATCH_SIZE):
        bucket, name = buckets.locate(document.raw_path)
        if not bucket.exists(name):
            continue  # reported as a broken job
        with bucket.local_file(name) as path, path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != document.sha256:
                yield Violation("original", str(document.pk), "The original is not the file that was declared.")


def find_changed_artifacts() -> Iterator[Violation]:
    """Compare the objects of each statute with its manifest; slow, it reads the whole bucket.

    A statute that differs is checked twice, because it may be published meanwhile. One that was imported from
    elsewhere has no job, and no objects here.
    """
    if not settings.STATUTES_BUCKET:
        return
    source = artifact_import.BucketSource(settings.STATUTES_BUCKET)
    uploaded = LawVersion.objects.filter(manifest_sha256__isnull=False, job_id__isnull=False).values("pk")
    for law_id in list(Law.objects.filter(document_id__in=uploaded).order_by("pk").values_list("pk", flat=True)):
        if _find_difference(source, law_id) and (reason := _find_difference(source, law_id)):
            yield Violation("artifact", law_id, reason)


def _find_difference(source: Source, law_id: str) -> str | None:
    law = Law.objects.filter(pk=law_id).first()
    if law is None or law.document_id is None:
        return None
    version = LawVersion.objects.filter(pk=law.document_id).values_list("version", "manifest_sha256").first()
    try:
        manifest, sha256 = artifact_import.read_manifest(source, law_id)
    except FileNotFoundError:
        return NO_MANIFEST
    except ManifestRefused as error:
        return error.detail
    if version is None or manifest.version != version[0]:
        return OTHER_VERSION
    # While the next version is uploaded, the manifest names the place where this one's objects are kept.
    is_replaced = any(entry.key.startswith(keys.former(law_id)) for entry in manifest.entries())
    if sha256 != version[1] and not is_replaced:
        return OTHER_MANIFEST
    return next((reason for entry in manifest.entries() if (reason := _check_object(source, manifest, entry))), None)


def _check_object(source: Source, manifest: Manifest, entry: Entry) -> str | None:
    name = f"passage {entry.chunk_id}" if entry.chunk_id else "the canonical text"
    try:
        if entry is manifest.embeddings:
            name = "the vectors"
            with artifact_import.verified_file(source, entry):
                return None
        artifact_import.read_verified(source, entry)
    except ManifestRefused:
        return f"{CHANGED}: {name}."
    return None
