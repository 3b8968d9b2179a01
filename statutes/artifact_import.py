"""From a law's artifacts to passages that are found: what another deployment has uploaded, or this one before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from uuid import UUID

import numpy
from django.db import connection, transaction
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services, storage
from documents.ids import chunk_id
from documents.locks import lock
from documents.models import Document
from embeddings import active_model
from embeddings.embedders import DIMENSIONS, vector_sha
from embeddings.error_codes import VECTORS_NOT_SOUND
from embeddings.indexes import bm25
from jobs.advisory_locks import session_lock
from jobs.models import UploadJob
from jobs.states import ACTIVE
from statutes import ids
from statutes.error_codes import LAW_BUSY, MANIFEST_INVALID, OTHER_MODEL, OUTDATED, VECTORS_TOO_WIDE
from statutes.intake import is_outdated
from statutes.models import Law, LawVersion
from statutes.s3 import artifact_source, client
from statutes.s3.artifact_source import Source
from statutes.s3.manifests import Entry, Manifest, ManifestRefused

BATCH_SIZE = 64  # passages read together
ARRIVING = """
    CREATE TEMP TABLE IF NOT EXISTS arriving_passages (
        chunk_id uuid, chunk_ord int, chunk_sha text, text text, meta jsonb, vector_sha text,
        embedding vector(1536)) ON COMMIT DROP;
    DELETE FROM arriving_passages  -- of another law, in a transaction of the caller's"""
COPY = "COPY arriving_passages (chunk_id, chunk_ord, chunk_sha, text, meta, vector_sha, embedding) FROM STDIN"
GONE = """
    DELETE FROM {table} c WHERE c.document_id = %(document)s
    AND NOT EXISTS (SELECT FROM arriving_passages a WHERE a.chunk_id = c.chunk_id)"""
UPSERT = """
    INSERT INTO document_chunks AS c
        (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text, meta,
         embed_model, embed_version, vector_dim, vector_sha, embedding, embed_updated_at)
    SELECT chunk_id, %(corpus)s, %(document)s, %(chunker)s, %(chunker_version)s, chunk_ord, chunk_sha, text, meta,
           CASE WHEN embedding IS NOT NULL THEN %(model)s END, CASE WHEN embedding IS NOT NULL THEN %(version)s END,
           CASE WHEN embedding IS NOT NULL THEN %(wide)s END, vector_sha, embedding,
           CASE WHEN embedding IS NOT NULL THEN clock_timestamp() END
    FROM arriving_passages
    ON CONFLICT (chunk_id) DO UPDATE SET
        chunk_ord = excluded.chunk_ord, chunk_sha = excluded.chunk_sha, text = excluded.text, meta = excluded.meta,
        embed_model = excluded.embed_model, embed_version = excluded.embed_version, vector_dim = excluded.vector_dim,
        vector_sha = excluded.vector_sha, embedding = excluded.embedding, embed_updated_at = excluded.embed_updated_at,
        updated_at = clock_timestamp()
    WHERE (c.chunk_sha, c.chunk_ord, c.meta, c.vector_sha, c.embed_model, c.embed_version) IS DISTINCT FROM
        (excluded.chunk_sha, excluded.chunk_ord, excluded.meta, excluded.vector_sha, excluded.embed_model,
         excluded.embed_version)"""


class Passage(NamedTuple):
    chunk_id: UUID
    ord: int
    sha: str
    text: str
    meta: dict[str, Any]


class ImportCounts(NamedTuple):
    """How many passages a law has now, and how many of them can be found by meaning."""

    passages: int
    vectors: int


def import_artifacts(source: Source, law_id: str) -> ImportCounts:
    """Make a law's passages findable from its artifacts, all of them or none; safe to repeat.

    Raises ``ManifestRefused`` for what is not to be trusted or does not fit (another model than the corpus', a version
    older than the one that is found, a version that is being worked on), and ``OSError`` of the source.
    """
    manifest, sha256 = artifact_source.read_manifest(source, law_id)
    document_id = _document_id(manifest)
    law = json.loads(artifact_source.read_verified(source, manifest.law))
    with (
        session_lock(ids.publish_lock_key(law_id)) as is_ours,
        artifact_source.verified_file(source, manifest.embeddings) as lines,
    ):
        if not is_ours:
            raise ManifestRefused(LAW_BUSY, "Another process is publishing this law.")
        _check(manifest)  # before everything is fetched in vain
        with _fetched(source, manifest, lines) as rows, transaction.atomic():
            old = _prepare(manifest, document_id)
            _arrive(rows)
            _commit(manifest, document_id)
            _record(manifest, document_id, law, sha256)
            if old is not None:
                services.delete_rows(old)
                LawVersion.objects.filter(pk=old.pk).update(canonical=None, job_id=None, updated_at=Now())
    if old is not None:
        services.delete_objects(old.pk)
    return ImportCounts(len(manifest.chunks), len(manifest.chunks) - len(manifest.missing))


def _document_id(manifest: Manifest) -> UUID:
    """Return the document that a manifest names: one of its version's, or its passages could be another law's."""
    named = str(manifest.header.get("document_id"))
    if named not in map(str, ids.document_ids(manifest.law_id, manifest.version)):
        raise ManifestRefused(MANIFEST_INVALID, "The manifest names another document.")
    return UUID(named)


def _prepare(manifest: Manifest, document_id: UUID) -> Document | None:
    """Make the version's document, locked; return the one that it replaces, if there is one."""
    found = Law.objects.filter(pk=manifest.law_id).exclude(document_id=None).first()
    replaced = found.document_id if found and found.document_id != document_id else None
    for each in sorted({*ids.document_ids(manifest.law_id, manifest.version), *([replaced] if replaced else [])}):
        lock(each)
    _check(manifest)
    model = manifest.header["model"]
    if not active_model.confirm_active_model(SYSTEM_TENANT_ID, model=model["name"], version=model["version"]):
        raise ManifestRefused(OTHER_MODEL, "The laws here are found with another model than these vectors are of.")
    defaults = {"chunks_version": manifest.header["chunker"], "filename": manifest.header["title"] or manifest.law_id}
    Document.objects.update_or_create(
        pk=document_id,
        defaults=defaults,
        create_defaults=defaults | _made(manifest, document_id),
    )
    return Document.objects.filter(pk=replaced).first() if replaced else None


def _check(manifest: Manifest) -> None:
    came = LawVersion(ingest_timestamp=_ingested(manifest))
    if is_outdated(manifest.law_id, manifest.version, came):
        raise ManifestRefused(OUTDATED, "A newer version of the law is found here.")
    both = ids.document_ids(manifest.law_id, manifest.version)
    if UploadJob.objects.filter(document_id__in=both, state__in=ACTIVE).exists():
        raise ManifestRefused(LAW_BUSY, "This version of the law is being worked on.")


def _made(manifest: Manifest, document_id: UUID) -> dict[str, Any]:
    source = _source(manifest)
    reader, _, reader_version = manifest.header["reader"].partition("@")
    return {
        "user_id": SYSTEM_TENANT_ID,
        "mime": "application/octet-stream",
        "bytes_len": source.get("size") or 0,
        "file_sha256": ids.file_sha256(document_id, source.get("sha256") or ""),
        "raw_path": storage.object_uri("raw", SYSTEM_TENANT_ID, document_id, "pdf"),
        "pages": source.get("pages"),
        "parser_name": reader or None,
        "parser_version": reader_version or None,
    }


def _source(manifest: Manifest) -> dict[str, Any]:
    told = manifest.header.get("source")
    return told if isinstance(told, dict) else {}


def _ingested(manifest: Manifest) -> datetime | None:
    said = manifest.header.get("ingest_timestamp")
    try:
        came = datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        came = datetime.min
    if came is not None and came.tzinfo is None:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest does not say when the law came.")
    return came


@contextmanager
def _fetched(source: Source, manifest: Manifest, lines: Path) -> Iterator[IO[bytes]]:
    """Lend passages with their vectors, proven, as rows on this machine's disk: no transaction waits for a bucket."""
    missing = set(manifest.missing)
    with TemporaryFile() as rows:
        with lines.open("rb") as file:
            for passage in _passages(source, manifest):
                sha = vector = None
                if passage.chunk_id not in missing:
                    sha, vector = _vector(file.readline(), manifest.law_id, passage)
                rows.write(json.dumps([str(passage.chunk_id), *passage[1:], sha, vector]).encode() + b"\n")
            if file.readline():
                raise _unsound("There are vectors of passages that the manifest does not name.")
        rows.seek(0)
        yield rows


def _arrive(rows: IO[bytes]) -> None:
    """Copy what was fetched into a table of this transaction, in the law's order."""
    with connection.cursor() as cursor:
        cursor.execute(ARRIVING)
        with cursor.copy(COPY) as copy:
            for row in rows:
                chunk_id, ord_, chunk_sha, text, meta, sha, vector = json.loads(row)
                copy.write_row((chunk_id, ord_, chunk_sha, text, Jsonb(meta), sha, vector))


def _passages(source: Source, manifest: Manifest) -> Iterator[Passage]:
    entries, ord_ = iter(manifest.chunks), 0
    chunker, _, version = manifest.header["chunker"].partition("@")
    document_id = _document_id(manifest)
    with ThreadPoolExecutor(client.CONCURRENCY, thread_name_prefix="ingest") as pool:
        while some := list(islice(entries, BATCH_SIZE)):
            for entry, content in zip(
                some, pool.map(lambda each: artifact_source.read_verified(source, each), some), strict=True
            ):
                # Any other id could be another document's, which would be overwritten.
                if entry.chunk_id != chunk_id(document_id, chunker, version, ord_):
                    raise _unsound("A passage does not have the id of its place in the law.")
                yield _passage(entry, content, manifest.law_id, ord_)
                ord_ += 1


def _passage(entry: Entry, content: bytes, law_id: str, ord_: int) -> Passage:
    try:
        told = json.loads(content)
        named = (UUID(told["chunk_id"]), told["law_id"], told["ord"])
        passage = Passage(named[0], ord_, told["chunk_sha256"], told["chunk_text"], told["chunk_meta"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _unsound("A passage cannot be read.") from None
    if named != (entry.chunk_id, law_id, ord_):
        raise _unsound("A passage is not the one that the manifest names.")
    return passage


def _vector(line: bytes, law_id: str, passage: Passage) -> tuple[str, str]:
    """Return a vector's sha and its text for the database; raise ``ManifestRefused`` for one that is none."""
    try:
        told = json.loads(line)
        numbers = numpy.array(told["vector"], dtype=numpy.float32)
        named = (UUID(told["chunk_id"]), told["law_id"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _unsound("A line of the vectors cannot be read.") from None
    if named != (passage.chunk_id, law_id):
        raise _unsound("The vectors are not in the order of the passages.")
    if numbers.shape != (DIMENSIONS,):
        raise ManifestRefused(VECTORS_TOO_WIDE, f"The vectors are not {DIMENSIONS} wide.")
    if not numpy.isfinite(numbers).all() or not numbers.any():
        raise _unsound("A vector has no length.")
    return vector_sha(numbers), str(numbers.tolist())


def _unsound(detail: str) -> ManifestRefused:
    return ManifestRefused(VECTORS_NOT_SOUND, detail)


def _commit(manifest: Manifest, document_id: UUID) -> None:
    model, (chunker, _, chunker_version) = manifest.header["model"], manifest.header["chunker"].partition("@")
    lock(document_id, "vectors")
    params = {
        "corpus": SYSTEM_TENANT_ID,
        "document": document_id,
        "chunker": chunker,
        "chunker_version": chunker_version,
        "model": model["name"],
        "version": model["version"],
        "wide": DIMENSIONS,
    }
    with connection.cursor() as cursor:
        for table in ("shadow_vectors", "document_vector_buffer", "document_chunks"):
            cursor.execute(GONE.format(table=table), params)
        cursor.execute(UPSERT, params)
    bm25.index_document(document_id)


def _record(manifest: Manifest, document_id: UUID, law: dict[str, Any], sha256: str) -> None:
    source, told = _source(manifest), manifest.header
    status = Law.Status.PARTIAL_FAILED if manifest.missing else Law.Status.EMBEDDED
    uploader = told.get("uploader_id")
    both = {"status": status, "uploader_id": uploader if isinstance(uploader, str) else "", "updated_at": Now()}
    LawVersion.objects.update_or_create(
        pk=document_id,
        defaults={
            **both,
            "law_id": manifest.law_id,
            "version": manifest.version,
            "bucket": str(source.get("bucket") or ""),
            "raw_key": str(source.get("key") or ""),
            "raw_sha256": source.get("sha256"),
            "format": source.get("format"),
            "ingest_timestamp": _ingested(manifest),
            "canonical": law,
            "refused": [str(chunk_id) for chunk_id in manifest.missing],
            "manifest_sha256": sha256,
            "error_code": None,
        },
    )
    Law.objects.update_or_create(
        pk=manifest.law_id,
        defaults={
            **both,
            "version": manifest.version,
            "title": told["title"],
            "language": told["language"],
            "chunk_count": len(manifest.chunks),
            "document_id": document_id,
        },
    )
