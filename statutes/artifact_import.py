"""Import of a law from its artifacts, which another deployment has uploaded, or this one before."""

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
from documents.deterministic_ids import chunk_id
from documents.files import lock_document
from documents.models import Document
from embeddings import active_model
from embeddings.embedders import DIMENSIONS, EmbeddingModel, vector_sha
from embeddings.error_codes import VECTORS_NOT_SOUND
from embeddings.search import bm25
from jobs.advisory_locks import session_lock
from jobs.choices import ACTIVE
from jobs.models import UploadJob
from statutes import queries, versions
from statutes.error_codes import LAW_BUSY, MANIFEST_INVALID, OTHER_MODEL, OUTDATED, VECTORS_TOO_WIDE
from statutes.intake import is_outdated
from statutes.models import Law, LawVersion
from statutes.s3 import artifact_source, client
from statutes.s3.artifact_source import Source
from statutes.s3.manifests import Manifest, ManifestRefused

BATCH_SIZE = 64  # passages read together


class Passage(NamedTuple):
    chunk_id: UUID
    ord: int
    sha: str
    text: str
    meta: dict[str, Any]


class ImportCounts(NamedTuple):
    """The law's passages, and how many of them have a vector."""

    passages: int
    vectors: int


def import_artifacts(source: Source, law_id: str) -> ImportCounts:
    """Import a law's passages and vectors, all or none; safe to repeat.

    Raises ``ManifestRefused`` for invalid artifacts and for what does not fit (another model, a version older than the
    live one, a version with an active job), and ``OSError`` of the source.
    """
    manifest, sha256 = artifact_source.read_manifest(source, law_id)
    document_id = _document_id(manifest)
    law = json.loads(artifact_source.read_verified(source, manifest.law))
    with (
        session_lock(versions.publish_lock_key(law_id)) as is_ours,
        artifact_source.verified_file(source, manifest.embeddings) as vectors,
    ):
        if not is_ours:
            raise ManifestRefused(LAW_BUSY, "Another process is publishing this law.")
        _check_version(manifest)  # before the passages are downloaded in vain
        with _spooled_rows(source, manifest, vectors) as rows, transaction.atomic():
            old = _prepare_document(manifest, document_id)
            _write_passages(manifest, document_id, rows)
            _record(manifest, document_id, law, sha256)
            if old is not None:
                services.delete_rows(old)
                LawVersion.objects.filter(pk=old.pk).update(canonical=None, job_id=None, updated_at=Now())
    if old is not None:
        services.delete_objects(old.pk)
    return ImportCounts(len(manifest.chunks), len(manifest.chunks) - len(manifest.missing))


def _document_id(manifest: Manifest) -> UUID:
    """Return the document of the manifest, one of its version's two: any other could belong to another law."""
    document_id = str(manifest.header.get("document_id"))
    if document_id not in map(str, versions.document_ids(manifest.law_id, manifest.version)):
        raise ManifestRefused(MANIFEST_INVALID, "The manifest names another document.")
    return UUID(document_id)


def _check_version(manifest: Manifest) -> None:
    if is_outdated(manifest.law_id, manifest.version, LawVersion(ingest_timestamp=_ingest_timestamp(manifest))):
        raise ManifestRefused(OUTDATED, "A newer version of the law is found here.")
    both = versions.document_ids(manifest.law_id, manifest.version)
    if UploadJob.objects.filter(document_id__in=both, state__in=ACTIVE).exists():
        raise ManifestRefused(LAW_BUSY, "This version of the law is being worked on.")


def _ingest_timestamp(manifest: Manifest) -> datetime | None:
    text = manifest.header.get("ingest_timestamp")
    try:
        timestamp = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        timestamp = datetime.min
    if timestamp is not None and timestamp.tzinfo is None:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest does not say when the law came.")
    return timestamp


def _source_fields(manifest: Manifest) -> dict[str, Any]:
    fields = manifest.header.get("source")
    return fields if isinstance(fields, dict) else {}


@contextmanager
def _spooled_rows(source: Source, manifest: Manifest, vectors: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file of verified passages with their vectors: no transaction waits for the bucket."""
    missing = set(manifest.missing)
    with TemporaryFile() as rows:
        with vectors.open("rb") as lines:
            for passage in _passages(source, manifest):
                sha = vector = None
                if passage.chunk_id not in missing:
                    sha, vector = _parse_vector(lines.readline(), manifest.law_id, passage)
                rows.write(json.dumps([str(passage.chunk_id), *passage[1:], sha, vector]).encode() + b"\n")
            if lines.readline():
                raise _unsound("There are vectors of passages that the manifest does not name.")
        rows.seek(0)
        yield rows


def _passages(source: Source, manifest: Manifest) -> Iterator[Passage]:
    entries, ord_ = iter(manifest.chunks), 0
    chunker, _, version = manifest.header["chunker"].partition("@")
    document_id = _document_id(manifest)
    with ThreadPoolExecutor(client.CONCURRENCY, thread_name_prefix="ingest") as pool:
        while batch := list(islice(entries, BATCH_SIZE)):
            contents = pool.map(lambda entry: artifact_source.read_verified(source, entry), batch)
            for entry, content in zip(batch, contents, strict=True):
                # Any other id could belong to another document, whose passage would be overwritten.
                if entry.chunk_id != chunk_id(document_id, chunker, version, ord_):
                    raise _unsound("A passage does not have the id of its place in the law.")
                try:
                    body = json.loads(content)
                    identity = (UUID(body["chunk_id"]), body["law_id"], body["ord"])
                    passage = Passage(identity[0], ord_, body["chunk_sha256"], body["chunk_text"], body["chunk_meta"])
                except (ValueError, TypeError, KeyError, AttributeError):
                    raise _unsound("A passage cannot be read.") from None
                if identity != (entry.chunk_id, manifest.law_id, ord_):
                    raise _unsound("A passage is not the one that the manifest names.")
                yield passage
                ord_ += 1


def _parse_vector(line: bytes, law_id: str, passage: Passage) -> tuple[str, str]:
    """Return a vector's sha and its pgvector text. Raises ``ManifestRefused`` for an invalid one."""
    try:
        body = json.loads(line)
        numbers = numpy.array(body["vector"], dtype=numpy.float32)
        identity = (UUID(body["chunk_id"]), body["law_id"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _unsound("A line of the vectors cannot be read.") from None
    if identity != (passage.chunk_id, law_id):
        raise _unsound("The vectors are not in the order of the passages.")
    if numbers.shape != (DIMENSIONS,):
        raise ManifestRefused(VECTORS_TOO_WIDE, f"The vectors are not {DIMENSIONS} wide.")
    if not numpy.isfinite(numbers).all() or not numbers.any():
        raise _unsound("A vector has no length.")
    return vector_sha(numbers), str(numbers.tolist())


def _unsound(detail: str) -> ManifestRefused:
    return ManifestRefused(VECTORS_NOT_SOUND, detail)


def _prepare_document(manifest: Manifest, document_id: UUID) -> Document | None:
    """Lock and create the version's document; return the live document that it replaces, if there is one."""
    live = Law.objects.filter(pk=manifest.law_id).exclude(document_id=None).first()
    replaced = live.document_id if live and live.document_id != document_id else None
    both = versions.document_ids(manifest.law_id, manifest.version)
    for pk in sorted({*both, *([replaced] if replaced else [])}):
        lock_document(pk)
    _check_version(manifest)
    header, source = manifest.header, _source_fields(manifest)
    model = EmbeddingModel(header["model"]["name"], header["model"]["version"])
    if not active_model.confirm_active_model(SYSTEM_TENANT_ID, model):
        raise ManifestRefused(OTHER_MODEL, "The laws here are found with another model than these vectors are of.")
    reader, _, reader_version = header["reader"].partition("@")
    defaults = {"chunks_version": header["chunker"], "filename": header["title"] or manifest.law_id}
    Document.objects.update_or_create(
        pk=document_id,
        defaults=defaults,
        create_defaults={
            **defaults,
            "user_id": SYSTEM_TENANT_ID,
            "mime": "application/octet-stream",
            "bytes_len": source.get("size") or 0,
            "file_sha256": versions.file_sha256(document_id, source.get("sha256") or ""),
            "raw_path": storage.object_uri("raw", SYSTEM_TENANT_ID, document_id, "pdf"),
            "pages": source.get("pages"),
            "parser_name": reader or None,
            "parser_version": reader_version or None,
        },
    )
    return Document.objects.filter(pk=replaced).first() if replaced else None


def _write_passages(manifest: Manifest, document_id: UUID, rows: IO[bytes]) -> None:
    model, (chunker, _, chunker_version) = manifest.header["model"], manifest.header["chunker"].partition("@")
    params = {
        "user": SYSTEM_TENANT_ID,
        "document": document_id,
        "chunker": chunker,
        "chunker_version": chunker_version,
        "model": model["name"],
        "version": model["version"],
        "dimensions": DIMENSIONS,
    }
    with connection.cursor() as cursor:
        cursor.execute(queries.CREATE_IMPORT_TABLE)
        with cursor.copy(queries.COPY_PASSAGES) as copy:
            for row in rows:
                pk, ord_, chunk_sha, text, meta, sha, vector = json.loads(row)
                copy.write_row((pk, ord_, chunk_sha, text, Jsonb(meta), sha, vector))
        lock_document(document_id, "vectors")
        for table in ("shadow_vectors", "document_vector_buffer", "document_chunks"):
            cursor.execute(queries.DELETE_OTHER_PASSAGES.format(table=table), params)
        cursor.execute(queries.UPSERT_PASSAGES, params)
    bm25.index_document(document_id)


def _record(manifest: Manifest, document_id: UUID, law: dict[str, Any], sha256: str) -> None:
    source, header = _source_fields(manifest), manifest.header
    uploader = header.get("uploader_id")
    both = {
        "version": manifest.version,
        "status": Law.Status.PARTIAL_FAILED if manifest.missing else Law.Status.EMBEDDED,
        "uploader_id": uploader if isinstance(uploader, str) else "",
        "updated_at": Now(),
    }
    LawVersion.objects.update_or_create(
        pk=document_id,
        defaults={
            **both,
            "law_id": manifest.law_id,
            "bucket": str(source.get("bucket") or ""),
            "raw_key": str(source.get("key") or ""),
            "raw_sha256": source.get("sha256"),
            "format": source.get("format"),
            "ingest_timestamp": _ingest_timestamp(manifest),
            "canonical": law,
            "refused": [str(pk) for pk in manifest.missing],
            "manifest_sha256": sha256,
            "error_code": None,
        },
    )
    Law.objects.update_or_create(
        pk=manifest.law_id,
        defaults={
            **both,
            "title": header["title"],
            "language": header["language"],
            "chunk_count": len(manifest.chunks),
            "document_id": document_id,
        },
    )
