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
from jobs import failpoints
from jobs.models import UploadJob
from jobs.outcomes import Permanent
from statutes.models import LawVersion
from statutes.s3 import client, keys, manifests
from statutes.s3.manifests import Entry, Manifest, ManifestRefused
from statutes.s3.spool import Spool, What, spooled

JSONL = "application/jsonl"
ERROR = "error.json"
Each = TypeVar("Each")


def upload(version: LawVersion, *, sure: Callable[[], None] = lambda: None, known: str | None = None) -> str:
    """Put a version's objects into the bucket, the manifest last; return the sha256 of the manifest.

    Safe to repeat, with the same bytes each time. Its job says which chunker and which model; passages of which that
    model has no vector are named as missing. Call it with the law's turn (``turns.alone``); ``sure`` raises when that
    is lost, and is asked before the manifest. ``known`` is the sha256 of a manifest that the caller has had uploaded
    already: nothing is written where it is this one, and stands. Raises ``OSError`` of the store.
    """
    if version.job_id is None:
        raise Permanent("LAW_UNKNOWN", "Nothing is noted of this version's job.")
    job = UploadJob.objects.get(pk=version.job_id)
    what = What(
        law_id=version.law_id,
        version=version.version,
        document_id=version.pk,
        chunker=job.chunks_version,
        model=job.embed_model or "",
        model_version=job.embed_version or "",
    )
    bucket = client.bucket()
    with spooled(what) as made:
        if not made.chunks:
            raise Permanent("NO_CHUNKS", "There is nothing in the law to upload.")
        law = canonical_json(version.canonical).encode()
        manifest = _manifest(version, what, made, Entry.of(keys.law(version.law_id), law))
        content = manifest.content()
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 == known and _stands(bucket, version.law_id, content):
            return sha256
        _keep_former(bucket, manifest)
        _put(bucket, manifest, law, made)
    sure()
    failpoints.failpoint("uploading:manifest")
    client.put(bucket, keys.manifest(version.law_id), content)
    failpoints.failpoint("uploading:tidying")
    _tidy(bucket, manifest)
    return sha256


def _stands(bucket: str, law_id: str, content: bytes) -> bool:
    try:
        return client.read(bucket, keys.manifest(law_id), most=manifests.MOST_BYTES) == content
    except FileNotFoundError:
        return False


def _manifest(version: LawVersion, what: What, made: Spool, law: Entry) -> Manifest:
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


def current(bucket: str, law_id: str) -> Manifest | None:
    """Return the manifest that stands, if there is one that can be read."""
    try:
        return manifests.parse(client.read(bucket, keys.manifest(law_id), most=manifests.MOST_BYTES))
    except (FileNotFoundError, ManifestRefused):
        return None


def _keep_former(bucket: str, manifest: Manifest) -> None:
    """Move what will be overwritten out of the way, and let the former manifest name it there."""
    former = current(bucket, manifest.law_id)
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
        _each(lambda move: client.copy(bucket, move[0], to=move[1]), moved.items())
    except FileNotFoundError:  # somebody has removed a part of it: it is not whole anyway
        return
    failpoints.failpoint("uploading:former")
    kept = replace(
        former,
        law=_at(former.law, moved),
        embeddings=_at(former.embeddings, moved),
        chunks=tuple(_at(entry, moved) for entry in former.chunks),
    )
    client.put(bucket, keys.manifest(manifest.law_id), kept.content())


def _at(entry: Entry, moved: dict[str, str]) -> Entry:
    return replace(entry, key=moved.get(entry.key, entry.key))


def _put(bucket: str, manifest: Manifest, law: bytes, made: Spool) -> None:
    def passage(number: int) -> None:
        client.put(bucket, made.chunks[number].key, made.passage(number))
        failpoints.failpoint("uploading:chunk")

    client.put(bucket, manifest.law.key, law)
    failpoints.failpoint("uploading:law")
    _each(passage, range(len(made.chunks)))
    client.put(bucket, manifest.embeddings.key, made.vectors, mime=JSONL)
    failpoints.failpoint("uploading:vectors")


def _tidy(bucket: str, manifest: Manifest) -> None:
    """Remove what the manifest does not name: another version's passages, and what was kept of the former law."""
    named = {entry.key for entry in manifest.entries()}
    found = [*client.names(bucket, keys.chunks(manifest.law_id)), *client.names(bucket, keys.former(manifest.law_id))]
    _each(lambda key: client.delete(bucket, key), [key for key in found if key not in named])


def _each(act: Callable[[Each], None], those: Iterable[Each]) -> None:
    """Do something to each, a few at once; the first failure ends it, and is raised when none is under way."""
    with ThreadPoolExecutor(client.AT_ONCE, thread_name_prefix="upload") as pool:
        futures = [pool.submit(act, each) for each in those]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def archive(version: LawVersion, error: Mapping[str, Any]) -> None:
    """Copy what failed for good to failed/, with a record of why, its ``error`` (spec 004 §5.1); safe to repeat.

    What an earlier failure of the version has left there goes. A raw file that is gone, or that nobody may read (an
    infected one), leaves the record alone. Raises ``OSError`` of the store.
    """
    bucket, folder = client.bucket(), keys.failed(version.law_id, version.version)
    raw = _kept_raw(version, bucket, folder)
    record = {
        "law_id": version.law_id,
        "version": version.version,
        "document_id": str(version.pk),
        "source": {"bucket": version.bucket, "key": version.raw_key, "sha256": version.raw_sha256},
        "raw": raw,
        **error,
    }
    client.put(bucket, f"{folder}{ERROR}", canonical_json(record).encode())
    for former in set(client.names(bucket, folder)) - {raw, f"{folder}{ERROR}"}:  # of a failure before this one
        client.delete(bucket, former)


def _kept_raw(version: LawVersion, bucket: str, folder: str) -> str | None:
    if version.bucket not in client.raw_buckets():
        return None
    if version.bucket != bucket and not client.is_open(version.bucket):
        return None
    name = keys.name(PurePosixPath(version.raw_key).name or "raw")
    key = f"{folder}{f'raw.{name}' if name == ERROR else name}"
    try:
        client.copy(version.bucket, version.raw_key, to=key, to_bucket=bucket)
    except (
        FileNotFoundError,
        OperationNotAllowed,
    ):  # where it is our own bucket that refuses, the record is refused as well
        return None
    return key
