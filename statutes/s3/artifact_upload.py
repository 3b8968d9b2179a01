"""Upload of a law's artifacts to S3 (spec 004 §4.7), all or none as the manifest decides.

A reader trusts only what the manifest names. Where a hash differs, a newer law is being uploaded, and the manifest is
to be read again. Until the new manifest is written, the old one names a complete law.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar
from uuid import UUID

from django.db import connection

from documents.deterministic_ids import canonical_json
from documents.models import Document
from embeddings.embedders.registry import DIMENSIONS
from embeddings.error_codes import NO_CHUNKS
from jobs import failpoints
from jobs.models import UploadJob
from jobs.outcomes import Permanent
from statutes.error_codes import LAW_UNKNOWN, statute_failure
from statutes.models import LawVersion
from statutes.s3 import client, keys, manifests
from statutes.s3.manifests import Entry, Manifest, ManifestRefused

BATCH_SIZE = 40  # passages read together: 1 MB
JSONL = "application/jsonl"
T = TypeVar("T")
# pgvector writes the shortest decimals that give the same float32 again, and always the same: valid JSON.
# The model's vector is committed already, or waits in the buffer or among the shadow vectors. Subqueries, because the
# planner has no statistics of a buffer that fills in seconds.
_PENDING_VECTOR = """(
    SELECT v.embedding::text FROM {table} v
    WHERE v.chunk_id = c.chunk_id AND v.embed_model = %(model)s AND v.embed_version = %(model_version)s LIMIT 1)"""
PASSAGES_WITH_VECTORS = f"""
    SELECT chunk_id, chunk_ord, chunk_sha, text, meta::text, coalesce(
        CASE WHEN embed_model = %(model)s AND embed_version = %(model_version)s THEN embedding::text END,
        {_PENDING_VECTOR.format(table="document_vector_buffer")}, {_PENDING_VECTOR.format(table="shadow_vectors")})
    FROM document_chunks c
    WHERE document_id = %(document)s AND chunker_name || '@' || chunker_version = %(chunker)s AND chunk_ord > %(after)s
    ORDER BY chunk_ord LIMIT %(most)s"""


@dataclass(slots=True)
class Spool:
    """Two temporary files; threads may read passages concurrently."""

    vectors: IO[bytes]
    passages: IO[bytes]
    chunks: list[Entry] = field(default_factory=list)
    missing: list[UUID] = field(default_factory=list)
    embeddings: Entry = field(default_factory=lambda: Entry("", "", 0))
    _starts: list[int] = field(default_factory=list)
    _end: int = 0

    def add(self, entry: Entry, content: bytes) -> None:
        self.passages.write(content)
        self._starts.append(self._end)
        self._end += len(content)
        self.chunks.append(entry)

    def passage(self, number: int) -> bytes:
        return os.pread(self.passages.fileno(), self.chunks[number].size, self._starts[number])


@contextmanager
def spool_artifacts(version: LawVersion, job: UploadJob) -> Iterator[Spool]:
    """Yield the spooled passages and vectors of the job's chunker and model; memory does not grow with the law."""
    with TemporaryFile() as vectors, TemporaryFile() as passages:
        spool = Spool(vectors, passages)
        digest, size = hashlib.sha256(), 0
        for chunk_id, ord_, sha, text, meta_json, vector in _passage_rows(version.pk, job):
            meta: dict[str, Any] = json.loads(meta_json) if meta_json else {}
            passage = {"law_id": version.law_id, "version": version.version, "chunk_id": str(chunk_id), "ord": ord_}
            passage |= {"chunk_sha256": sha, "chunk_text": text, "chunk_meta": meta}
            content = canonical_json(passage).encode()
            spool.add(Entry.from_content(keys.chunk(version.law_id, chunk_id), content, chunk_id), content)
            if vector is None:
                spool.missing.append(chunk_id)
                continue
            law_id = canonical_json(version.law_id)
            metadata = canonical_json({**meta, "ord": ord_, "version": version.version, "chunk_sha256": sha})
            fields = f'"chunk_id":"{chunk_id}","vector":{vector},"law_id":{law_id},"metadata":{metadata}'
            line = f"{{{fields}}}\n".encode()
            vectors.write(line)
            digest.update(line)
            size += len(line)
        vectors.flush()
        passages.flush()
        vectors.seek(0)
        spool.embeddings = Entry(keys.vectors(version.law_id), digest.hexdigest(), size)
        yield spool


def _passage_rows(document_id: UUID, job: UploadJob) -> Iterator[tuple[Any, ...]]:
    params: dict[str, Any] = {"document": document_id, "chunker": job.chunks_version, "after": -1, "most": BATCH_SIZE}
    params |= {"model": job.embed_model or "", "model_version": job.embed_version or ""}
    while True:
        with connection.cursor() as cursor:
            cursor.execute(PASSAGES_WITH_VECTORS, params)
            rows = cursor.fetchall()
        yield from rows
        if len(rows) < BATCH_SIZE:
            return
        params["after"] = rows[-1][1]


def upload_artifacts(
    version: LawVersion, *, ensure_lock: Callable[[], None] = lambda: None, known: str | None = None
) -> str:
    """Put a version's objects into the bucket, the manifest last; return the sha256 of the manifest.

    Safe to repeat, with the same bytes each time. Its job says which chunker and which model; passages without a vector
    of that model are listed as missing. Call it under the law's publish lock; ``ensure_lock`` raises when that is lost,
    and is called before the manifest is written. ``known`` is the sha256 of a manifest that the caller has uploaded
    before: nothing is written where it is this one, and is still there. Raises ``OSError`` of the store.
    """
    if version.job_id is None:
        raise Permanent(LAW_UNKNOWN)
    job = UploadJob.objects.get(pk=version.job_id)
    bucket = client.statutes_bucket()
    manifest_key = keys.manifest(version.law_id)
    with spool_artifacts(version, job) as spool:
        if not spool.chunks:
            raise statute_failure(NO_CHUNKS)
        law = canonical_json(version.canonical).encode()
        manifest = _build_manifest(version, job, spool, Entry.from_content(keys.law(version.law_id), law))
        content = manifest.content()
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 == known:
            try:
                if client.read_object(bucket, manifest_key, most=manifests.MAX_BYTES) == content:
                    return sha256
            except FileNotFoundError:
                pass
        _keep_former_law(bucket, manifest)
        _put_objects(bucket, manifest, law, spool)
    ensure_lock()
    failpoints.failpoint("uploading:manifest")
    client.put_object(bucket, manifest_key, content)
    failpoints.failpoint("uploading:tidying")
    # Another version's passages, and the copies of the former law.
    names = {entry.key for entry in manifest.entries()}
    for folder in (keys.chunks(version.law_id), keys.former(version.law_id)):
        _for_each(
            lambda key: client.delete_object(bucket, key),
            [key for key in client.list_keys(bucket, folder) if key not in names],
        )
    return sha256


def _build_manifest(version: LawVersion, job: UploadJob, spool: Spool, law: Entry) -> Manifest:
    canonical: dict[str, Any] = version.canonical or {}
    document = Document.objects.filter(pk=version.pk).first()
    header = {
        "law_id": version.law_id,
        "version": version.version,
        "document_id": str(version.pk),
        "title": str(canonical.get("title", "")),
        "language": str(canonical.get("language", "")),
        "uploader_id": version.uploader_id,
        "source": {
            "bucket": version.bucket,
            "key": version.raw_key,
            "sha256": version.raw_sha256,
            "format": version.format,
            "size": document.bytes_len if document else None,
            "pages": document.pages if document else None,
        },
        "ingest_timestamp": version.ingest_timestamp.isoformat() if version.ingest_timestamp else None,
        "reader": f"{document.parser_name}@{document.parser_version}" if document and document.parser_name else "",
        "chunker": job.chunks_version,
        "model": {"name": job.embed_model or "", "version": job.embed_version or "", "dimensions": DIMENSIONS},
    }
    return Manifest(header, law, spool.embeddings, tuple(spool.chunks), tuple(spool.missing))


def read_current_manifest(bucket: str, law_id: str) -> Manifest | None:
    try:
        return manifests.parse_manifest(client.read_object(bucket, keys.manifest(law_id), most=manifests.MAX_BYTES))
    except (FileNotFoundError, ManifestRefused):
        return None


def _keep_former_law(bucket: str, manifest: Manifest) -> None:
    """Copy the objects that will be overwritten, and let the former manifest name the copies."""
    former = read_current_manifest(bucket, manifest.law_id)
    if former is None:
        return
    new = {entry.key: entry.sha256 for entry in manifest.entries()}
    copies = {
        entry.key: f"{keys.former(manifest.law_id)}{PurePosixPath(entry.key).name}"
        for entry in former.entries()
        if new.get(entry.key, entry.sha256) != entry.sha256
    }
    if not copies:
        return
    try:
        _for_each(lambda pair: client.copy_object(bucket, pair[0], to=pair[1]), copies.items())
    except FileNotFoundError:  # a part of it was removed: it is not complete anyway
        return
    failpoints.failpoint("uploading:former")

    def moved(entry: Entry) -> Entry:
        return replace(entry, key=copies.get(entry.key, entry.key))

    former = replace(
        former,
        law=moved(former.law),
        embeddings=moved(former.embeddings),
        chunks=tuple(moved(entry) for entry in former.chunks),
    )
    client.put_object(bucket, keys.manifest(manifest.law_id), former.content())


def _put_objects(bucket: str, manifest: Manifest, law: bytes, spool: Spool) -> None:
    def put_passage(number: int) -> None:
        client.put_object(bucket, spool.chunks[number].key, spool.passage(number))
        failpoints.failpoint("uploading:chunk")

    client.put_object(bucket, manifest.law.key, law)
    failpoints.failpoint("uploading:law")
    _for_each(put_passage, range(len(spool.chunks)))
    client.put_object(bucket, manifest.embeddings.key, spool.vectors, mime=JSONL)
    failpoints.failpoint("uploading:vectors")


def _for_each(call: Callable[[T], None], arguments: Iterable[T]) -> None:
    """Call concurrently; the first error cancels the calls that have not started, and is raised after the others."""
    with ThreadPoolExecutor(client.CONCURRENCY, thread_name_prefix="upload") as pool:
        futures = [pool.submit(call, argument) for argument in arguments]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
