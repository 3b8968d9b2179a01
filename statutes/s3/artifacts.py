"""A law's objects in the bucket (spec 004 §4.7): all of them or none, which the manifest decides.

A reader trusts what the manifest names and nothing else; where a hash differs, a newer law is just being uploaded, and
the manifest is to be read again. Until the new manifest stands, the old one names a law that is whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

from documents.ids import canonical_json
from documents.models import Document
from documents.storage.s3 import OperationNotAllowed
from embeddings.embedders import DIMENSIONS
from embeddings.error_codes import NO_CHUNKS
from jobs import failpoints
from jobs.models import UploadJob
from jobs.outcomes import Permanent
from statutes.error_codes import LAW_UNKNOWN
from statutes.models import LawVersion
from statutes.s3 import client, keys, manifests
from statutes.s3.manifests import Entry, Manifest, ManifestRefused
from statutes.s3.spool import ArtifactSpec, Spool, spool_artifacts

JSONL = "application/jsonl"
ERROR = "error.json"
Each = TypeVar("Each")


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
        raise Permanent(LAW_UNKNOWN, "Nothing is noted of this version's job.")
    job = UploadJob.objects.get(pk=version.job_id)
    what = ArtifactSpec(
        law_id=version.law_id,
        version=version.version,
        document_id=version.pk,
        chunker=job.chunks_version,
        model=job.embed_model or "",
        model_version=job.embed_version or "",
    )
    bucket = client.statutes_bucket()
    with spool_artifacts(what) as made:
        if not made.chunks:
            raise Permanent(NO_CHUNKS, "There is nothing in the law to upload.")
        law = canonical_json(version.canonical).encode()
        manifest = _manifest(version, what, made, Entry.of(keys.law(version.law_id), law))
        content = manifest.content()
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 == known and _stands(bucket, version.law_id, content):
            return sha256
        _keep_former(bucket, manifest)
        _put(bucket, manifest, law, made)
    ensure_lock()
    failpoints.failpoint("uploading:manifest")
    client.put_object(bucket, keys.manifest(version.law_id), content)
    failpoints.failpoint("uploading:tidying")
    _tidy(bucket, manifest)
    return sha256


def _stands(bucket: str, law_id: str, content: bytes) -> bool:
    try:
        return client.read_object(bucket, keys.manifest(law_id), most=manifests.MAX_BYTES) == content
    except FileNotFoundError:
        return False


def _manifest(version: LawVersion, what: ArtifactSpec, made: Spool, law: Entry) -> Manifest:
    canonical: dict[str, Any] = version.canonical or {}
    document = Document.objects.filter(pk=version.pk).first()
    reader = f"{document.parser_name}@{document.parser_version}" if document and document.parser_name else ""
    told = {
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
        "reader": reader,
        "chunker": what.chunker,
        "model": {"name": what.model, "version": what.model_version, "dimensions": DIMENSIONS},
    }
    return Manifest(told, law, made.embeddings, tuple(made.chunks), tuple(made.missing))


def read_current_manifest(bucket: str, law_id: str) -> Manifest | None:
    """Return the manifest that stands, if there is one that can be read."""
    try:
        return manifests.parse_manifest(client.read_object(bucket, keys.manifest(law_id), most=manifests.MAX_BYTES))
    except (FileNotFoundError, ManifestRefused):
        return None


def _keep_former(bucket: str, manifest: Manifest) -> None:
    """Move what will be overwritten out of the way, and let the former manifest name it there."""
    former = read_current_manifest(bucket, manifest.law_id)
    if former is None:
        return
    new = {entry.key: entry.sha256 for entry in manifest.entries()}
    moved = {
        entry.key: f"{keys.former(manifest.law_id)}{PurePosixPath(entry.key).name}"
        for entry in former.entries()
        if new.get(entry.key, entry.sha256) != entry.sha256
    }
    if not moved:
        return
    try:
        _each(lambda move: client.copy_object(bucket, move[0], to=move[1]), moved.items())
    except FileNotFoundError:  # somebody has removed a part of it: it is not whole anyway
        return
    failpoints.failpoint("uploading:former")
    kept = replace(
        former,
        law=_at(former.law, moved),
        embeddings=_at(former.embeddings, moved),
        chunks=tuple(_at(entry, moved) for entry in former.chunks),
    )
    client.put_object(bucket, keys.manifest(manifest.law_id), kept.content())


def _at(entry: Entry, moved: dict[str, str]) -> Entry:
    return replace(entry, key=moved.get(entry.key, entry.key))


def _put(bucket: str, manifest: Manifest, law: bytes, made: Spool) -> None:
    def passage(number: int) -> None:
        client.put_object(bucket, made.chunks[number].key, made.passage(number))
        failpoints.failpoint("uploading:chunk")

    client.put_object(bucket, manifest.law.key, law)
    failpoints.failpoint("uploading:law")
    _each(passage, range(len(made.chunks)))
    client.put_object(bucket, manifest.embeddings.key, made.vectors, mime=JSONL)
    failpoints.failpoint("uploading:vectors")


def _tidy(bucket: str, manifest: Manifest) -> None:
    """Remove what the manifest does not name: another version's passages, and what was kept of the former law."""
    named = {entry.key for entry in manifest.entries()}
    found = [
        *client.list_keys(bucket, keys.chunks(manifest.law_id)),
        *client.list_keys(bucket, keys.former(manifest.law_id)),
    ]
    _each(lambda key: client.delete_object(bucket, key), [key for key in found if key not in named])


def _each(act: Callable[[Each], None], those: Iterable[Each]) -> None:
    """Do something to each, a few at once; the first failure ends it, and is raised when none is under way."""
    with ThreadPoolExecutor(client.CONCURRENCY, thread_name_prefix="upload") as pool:
        futures = [pool.submit(act, each) for each in those]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def archive_failure(version: LawVersion, error: Mapping[str, Any]) -> None:
    """Copy what failed for good to failed/, with a record of why, its ``error`` (spec 004 §5.1); safe to repeat.

    What an earlier failure of the version has left there goes. A raw file that is gone, or that nobody may read (an
    infected one), leaves the record alone. Raises ``OSError`` of the store.
    """
    bucket, folder = client.statutes_bucket(), keys.failed(version.law_id, version.version)
    raw = _kept_raw(version, bucket, folder)
    record = {
        "law_id": version.law_id,
        "version": version.version,
        "document_id": str(version.pk),
        "source": {"bucket": version.bucket, "key": version.raw_key, "sha256": version.raw_sha256},
        "raw": raw,
        **error,
    }
    client.put_object(bucket, f"{folder}{ERROR}", canonical_json(record).encode())
    for former in set(client.list_keys(bucket, folder)) - {raw, f"{folder}{ERROR}"}:  # of a failure before this one
        client.delete_object(bucket, former)


def _kept_raw(version: LawVersion, bucket: str, folder: str) -> str | None:
    if version.bucket not in client.raw_buckets():
        return None
    if version.bucket != bucket and not client.is_accessible(version.bucket):
        return None
    name = keys.quote_name(PurePosixPath(version.raw_key).name or "raw")
    key = f"{folder}{f'raw.{name}' if name == ERROR else name}"
    try:
        client.copy_object(version.bucket, version.raw_key, to=key, to_bucket=bucket)
    except (
        FileNotFoundError,
        OperationNotAllowed,
    ):  # where it is our own bucket that refuses, the record is refused as well
        return None
    return key
