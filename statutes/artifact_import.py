"""Import of a law from its artifacts, which another deployment has uploaded, or this one before."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from shutil import copyfile
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Any, NamedTuple, Protocol
from uuid import UUID

import numpy
from django.db import connection, transaction
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services
from documents.deterministic_ids import chunk_id
from documents.error_codes import HASH_MISMATCH
from documents.locks import lock_document
from documents.models import Document
from documents.storage import buckets
from embeddings import active_model
from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, vector_sha
from embeddings.error_codes import VECTORS_NOT_SOUND
from embeddings.search import bm25
from jobs.advisory_locks import session_lock
from jobs.choices import ACTIVE
from jobs.models import UploadJob
from statutes import document_ids, version_order
from statutes.error_codes import LAW_BUSY, MANIFEST_INVALID, OTHER_MODEL, OUTDATED, VECTORS_TOO_WIDE
from statutes.models import Law, LawVersion
from statutes.s3 import client, keys
from statutes.s3.manifests import MAX_BYTES, Entry, Manifest, ManifestRefused, parse_manifest

BATCH_SIZE = 64  # passages read together
DIFFERENT_OBJECT = "An object is not the one that the manifest names: read it again."
CREATE_IMPORT_TABLE = """
    CREATE TEMP TABLE IF NOT EXISTS arriving_passages (
        chunk_id uuid, chunk_ord int, chunk_sha text, text text, meta jsonb, vector_sha text,
        embedding vector(1536)) ON COMMIT DROP;
    DELETE FROM arriving_passages  -- of another law, in a transaction of the caller's"""
COPY_PASSAGES = """
    COPY arriving_passages (chunk_id, chunk_ord, chunk_sha, text, meta, vector_sha, embedding) FROM STDIN"""
DELETE_OTHER_PASSAGES = """
    DELETE FROM {table} c WHERE c.document_id = %(document)s
    AND NOT EXISTS (SELECT FROM arriving_passages a WHERE a.chunk_id = c.chunk_id)"""
UPSERT_PASSAGES = """
    INSERT INTO document_chunks AS c
        (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text, meta,
         embed_model, embed_version, vector_dim, vector_sha, embedding, embed_updated_at)
    SELECT chunk_id, %(user)s, %(document)s, %(chunker)s, %(chunker_version)s, chunk_ord, chunk_sha, text, meta,
           CASE WHEN embedding IS NOT NULL THEN %(model)s END, CASE WHEN embedding IS NOT NULL THEN %(version)s END,
           CASE WHEN embedding IS NOT NULL THEN %(dimensions)s END, vector_sha, embedding,
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


# Sources


class Source(Protocol):
    def read(self, key: str, most: int) -> bytes: ...
    def fetch(self, key: str, to: Path, most: int) -> None: ...


class BucketSource:
    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, key: str, most: int) -> bytes:
        return client.read_object(self._name, key, most=most)

    def fetch(self, key: str, to: Path, most: int) -> None:
        client.download_object(self._name, key, to, most=most)


class FolderSource:
    """A folder as ``aws s3 sync`` makes it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, key: str, most: int) -> bytes:
        with (self._root / key).open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise client.ObjectTooLarge
        return content

    def fetch(self, key: str, to: Path, most: int) -> None:
        if (self._root / key).stat().st_size > most:
            raise client.ObjectTooLarge
        copyfile(self._root / key, to)


def read_manifest(source: Source, law_id: str) -> tuple[Manifest, str]:
    """Return a law's manifest and its sha256. Raises ``ManifestRefused``, and ``FileNotFoundError`` without one."""
    content = source.read(keys.manifest(law_id), MAX_BYTES)
    manifest = parse_manifest(content)
    if manifest.law_id != law_id:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest belongs to another statute.")
    return manifest, hashlib.sha256(content).hexdigest()


def read_verified(source: Source, entry: Entry) -> bytes:
    """Return an object whose hash is the manifest's; raise ``ManifestRefused("HASH_MISMATCH")`` otherwise."""
    try:
        content = source.read(entry.key, max(1, entry.size))
    except (client.ObjectTooLarge, FileNotFoundError):
        raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT) from None
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT)
    return content


@contextmanager
def verified_file(source: Source, entry: Entry) -> Iterator[Path]:
    """Yield a large object as a temporary file with a verified hash; raises as ``read_verified``."""
    with NamedTemporaryFile(prefix="accessa-vectors-") as file:
        path = Path(file.name)
        try:
            source.fetch(entry.key, path, max(1, entry.size))
        except (client.ObjectTooLarge, FileNotFoundError):
            raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT) from None
        with path.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != entry.sha256:
                raise ManifestRefused(HASH_MISMATCH, DIFFERENT_OBJECT)
        yield path


# Import


class Passage(NamedTuple):
    chunk_id: UUID
    ord: int
    sha: str
    text: str
    meta: dict[str, Any]


def import_artifacts(source: Source, law_id: str) -> tuple[int, int]:
    """Import a law's passages and vectors, all or none; safe to repeat. Return how many of each it has.

    Raises ``ManifestRefused`` for invalid artifacts and for what does not fit (another model, a version older than the
    live one, a version with an active job), and ``OSError`` of the source.
    """
    manifest, sha256 = read_manifest(source, law_id)
    document_id = _document_id(manifest)
    law = json.loads(read_verified(source, manifest.law))
    with (
        session_lock(document_ids.publish_lock_key(law_id)) as is_ours,
        verified_file(source, manifest.embeddings) as vectors,
    ):
        if not is_ours:
            raise ManifestRefused(LAW_BUSY, "Another process is publishing this statute.")
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
    return len(manifest.chunks), len(manifest.chunks) - len(manifest.missing)


def _document_id(manifest: Manifest) -> UUID:
    """Return the document of the manifest, one of its version's two: any other could belong to another law."""
    document_id = str(manifest.header.get("document_id"))
    if document_id not in map(str, document_ids.document_ids(manifest.law_id, manifest.version)):
        raise ManifestRefused(MANIFEST_INVALID, "The manifest names another document.")
    return UUID(document_id)


def _check_version(manifest: Manifest) -> None:
    if version_order.is_outdated(manifest.law_id, manifest.version, _ingest_timestamp(manifest)):
        raise ManifestRefused(OUTDATED, "A newer version of the statute is searched here.")
    both = document_ids.document_ids(manifest.law_id, manifest.version)
    if UploadJob.objects.filter(document_id__in=both, state__in=ACTIVE).exists():
        raise ManifestRefused(LAW_BUSY, "This version of the statute is being processed.")


def _ingest_timestamp(manifest: Manifest) -> datetime | None:
    text = manifest.header.get("ingest_timestamp")
    try:
        timestamp = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        timestamp = datetime.min
    if timestamp is not None and timestamp.tzinfo is None:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest has no valid ingest_timestamp.")
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
            contents = pool.map(lambda entry: read_verified(source, entry), batch)
            for entry, content in zip(batch, contents, strict=True):
                # Any other id could belong to another document, whose passage would be overwritten.
                if entry.chunk_id != chunk_id(document_id, chunker, version, ord_):
                    raise _unsound("A passage does not have the id of its place in the statute.")
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
    both = document_ids.document_ids(manifest.law_id, manifest.version)
    for pk in sorted({*both, *([replaced] if replaced else [])}):
        lock_document(pk)
    _check_version(manifest)
    header, source = manifest.header, _source_fields(manifest)
    model = EmbeddingModel(header["model"]["name"], header["model"]["version"])
    if not active_model.confirm_active_model(SYSTEM_TENANT_ID, model):
        raise ManifestRefused(OTHER_MODEL, "Statutes are searched with another model here.")
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
            "file_sha256": document_ids.file_sha256(document_id, source.get("sha256") or ""),
            "raw_path": buckets.object_uri("raw", SYSTEM_TENANT_ID, document_id, "pdf"),
            "pages": source.get("pages"),
            "parser_name": reader or None,
            "parser_version": reader_version or None,
        },
    )
    return Document.objects.filter(pk=replaced).first() if replaced else None


def _write_passages(manifest: Manifest, document_id: UUID, rows: IO[bytes]) -> None:
    model, (chunker, _, chunker_version) = manifest.header["model"], manifest.header["chunker"].partition("@")
    params = {"user": SYSTEM_TENANT_ID, "document": document_id, "chunker": chunker, "chunker_version": chunker_version}
    params |= {"model": model["name"], "version": model["version"], "dimensions": DIMENSIONS}
    with connection.cursor() as cursor:
        cursor.execute(CREATE_IMPORT_TABLE)
        with cursor.copy(COPY_PASSAGES) as copy:
            for row in rows:
                pk, ord_, chunk_sha, text, meta, sha, vector = json.loads(row)
                copy.write_row((pk, ord_, chunk_sha, text, Jsonb(meta), sha, vector))
        lock_document(document_id, "vectors")
        for table in ("shadow_vectors", "document_vector_buffer", "document_chunks"):
            cursor.execute(DELETE_OTHER_PASSAGES.format(table=table), params)
        cursor.execute(UPSERT_PASSAGES, params)
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
