"""Generated vectors and their bulk insertion as searchable passages, by binary COPY."""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from django.conf import settings
from django.db import connection

from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, Vectors
from embeddings.models import ActiveModel

MODEL, VERSION = "text-embedding-3-small", "1"
LIVE_MODEL = EmbeddingModel(MODEL, VERSION)
PER_DOCUMENT = 100
_HEAD, _TAIL = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0), struct.pack(">h", -1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # of PostgreSQL's binary timestamps
_ROWS_PER_WRITE = 64
COPY_CHUNKS = """
    COPY document_chunks (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text,
    meta, embed_model, embed_version, vector_dim, vector_sha, embed_updated_at, embedding)
    FROM STDIN (FORMAT binary)"""
COPY_SHADOW_VECTORS = """
    COPY shadow_vectors (chunk_id, user_id, document_id, embed_model, embed_version, vector_dim, vector_sha,
    embed_updated_at, embedding) FROM STDIN (FORMAT binary)"""
COPY_DOCUMENTS = """
    COPY documents (document_id, user_id, filename, mime, bytes_len, file_sha256, raw_path, chunks_version,
    stored_at) FROM STDIN"""


@dataclass(frozen=True)
class StoredVectors:
    """What was written: passages in order, and the document of each."""

    user_id: UUID
    chunk_ids: list[UUID]
    document_ids: list[UUID]
    vectors: Vectors


def generate_vectors(count: int, *, seed: int = 0, latent: int = 96) -> Vectors:
    """Generate unit vectors around shared subjects, about forty passages each, as an embedding model does."""
    generator = np.random.default_rng(seed)
    axes = np.random.default_rng(99).normal(size=(latent, DIMENSIONS)).astype("f4")
    subjects = generator.normal(size=(max(1, count // 40), latent)).astype("f4")
    rows = subjects[generator.integers(0, len(subjects), count)] + 0.6 * generator.normal(size=(count, latent)).astype(
        "f4"
    )
    return normalize_vectors(rows @ axes + 2 * generator.normal(size=(count, DIMENSIONS)))


def perturb_vectors(rows: Vectors, *, seed: int = 0, noise: float = 0.015) -> Vectors:
    """Return the vectors with a little noise: documents that differ in a few words, or questions."""
    moved = np.random.default_rng(seed).normal(size=rows.shape)
    return normalize_vectors(rows + noise * moved)


def normalize_vectors(rows: Any) -> Vectors:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype="f4")


def store_vectors(
    user_id: UUID,
    rows: Vectors,
    *,
    live: EmbeddingModel = LIVE_MODEL,
    texts: Sequence[str] = (),
    per_document: int = PER_DOCUMENT,
) -> StoredVectors:
    """Write documents, passages and vectors of a tenant, and its pointer. The vectors' time is the present."""
    name, _, version = settings.CHUNKER.partition("@")
    documents = [uuid4() for _ in range(0, len(rows), per_document)]
    stored = StoredVectors(
        user_id, [uuid4() for _ in rows], [documents[at // per_document] for at in range(len(rows))], rows
    )
    _documents(user_id, documents)
    meta = b"\x01" + json.dumps({"pages": [1, 1], "headings": [], "start": 0, "end": 1}).encode()
    head = [name.encode(), version.encode()]
    embedded = _embedded(live)

    def lines() -> Iterator[bytes]:
        for at, (chunk_id, document_id) in enumerate(zip(stored.chunk_ids, stored.document_ids, strict=True)):
            text = texts[at] if texts else f"Passage {at} of {user_id}."
            sha = sha256(text.encode()).hexdigest().encode()
            columns = [
                chunk_id.bytes,
                user_id.bytes,
                document_id.bytes,
                *head,
                _int(at % per_document),
                sha,
                text.encode(),
            ]
            yield _row([*columns, meta, *embedded, _vector(rows[at])])

    _copy(COPY_CHUNKS, lines())
    ActiveModel.objects.get_or_create(user_id=user_id, embed_model=live.model, embed_version=live.version)
    return stored


def store_shadow_vectors(stored: StoredVectors, rows: Vectors, *, live: EmbeddingModel) -> None:
    """Write vectors of another model beside those that ``stored`` has."""
    embedded = _embedded(live)
    every = zip(stored.chunk_ids, stored.document_ids, rows, strict=True)
    user = stored.user_id.bytes
    _copy(
        COPY_SHADOW_VECTORS,
        (_row([chunk.bytes, user, doc.bytes, *embedded, _vector(row)]) for chunk, doc, row in every),
    )


def _documents(user_id: UUID, document_ids: Sequence[UUID]) -> None:
    with connection.cursor() as cursor, cursor.copy(COPY_DOCUMENTS) as copy:
        for document_id in document_ids:
            path = f"storage://raw/{user_id}/{document_id}.pdf"
            sha = sha256(document_id.bytes).hexdigest()
            now = datetime.now(UTC)
            copy.write_row(
                [document_id, user_id, "plan.pdf", "application/pdf", 1000, sha, path, settings.CHUNKER, now]
            )


def _embedded(live: EmbeddingModel) -> list[bytes]:
    """Model, version, dimensions, a sha that nobody compares, and the database's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    micros = struct.pack(">q", round((now - _EPOCH).total_seconds() * 1_000_000))
    return [live.model.encode(), live.version.encode(), _int(DIMENSIONS), b"0" * 64, micros]


def _vector(row: Vectors) -> bytes:
    return struct.pack(">hh", DIMENSIONS, 0) + row.astype(">f4").tobytes()


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _row(fields: Sequence[bytes]) -> bytes:
    return struct.pack(">h", len(fields)) + b"".join(_int(len(field)) + field for field in fields)


def _copy(sql: str, rows: Iterator[bytes]) -> None:
    with connection.cursor() as cursor, cursor.copy(sql) as copy:
        copy.write(_HEAD)
        chunk: list[bytes] = []
        for row in rows:
            chunk.append(row)
            if len(chunk) == _ROWS_PER_WRITE:
                copy.write(b"".join(chunk))
                chunk.clear()
        copy.write(b"".join([*chunk, _TAIL]))
