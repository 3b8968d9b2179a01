"""Vectors move by binary COPY and by set-wise SQL, never row by row."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection

from embeddings.embedders import DIMENSIONS, Vectors, vector_sha, vector_shas

COPY = """COPY document_vector_buffer
    (user_id, document_id, chunk_id, embed_model, embed_version, vector_dim, vector_sha, embedding)
    FROM STDIN (FORMAT binary)"""
_HEAD = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TAIL = struct.pack(">h", -1)
_TOGETHER = 32  # rows in one write, 200 kB: each write waits for the socket
_AT_ONCE = 500  # rows read back together: 3 MB


def buffer(
    *, user_id: UUID, document_id: UUID, model: str, version: str, chunk_ids: Sequence[UUID], vectors: Vectors
) -> None:
    """Write vectors, shape (len(chunk_ids), 1536), beside their chunks."""
    before = struct.pack(">h", 8) + _field(user_id.bytes) + _field(document_id.bytes)
    between = _field(model.encode()) + _field(version.encode()) + _field(struct.pack(">i", DIMENSIONS))
    wire = np.ascontiguousarray(vectors, dtype=">f4")
    # pgvector's wire form: the dimensions, an unused half-word, then big-endian floats.
    head = struct.pack(">ihh", 4 + 4 * DIMENSIONS, DIMENSIONS, 0)
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        copy.write(_HEAD)
        rows = [
            b"".join([before, _field(chunk_id.bytes), between, _field(sha.encode()), head, row.tobytes()])
            for chunk_id, sha, row in zip(chunk_ids, vector_shas(vectors), wire, strict=True)
        ]
        for start in range(0, len(rows), _TOGETHER):
            copy.write(b"".join(rows[start : start + _TOGETHER]))
        copy.write(_TAIL)


def _field(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def sound(document_id: UUID) -> bool:
    """Tell whether every buffered vector of a document still has the sha that was computed when it came."""
    return all(vector_sha(row) == sha for _, sha, row in _buffered(document_id))


def drop_unsound(document_id: UUID) -> None:
    """Delete buffered vectors that no longer have their sha: a later try makes them anew."""
    bad = [buffer_id for buffer_id, sha, row in _buffered(document_id) if vector_sha(row) != sha]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_vector_buffer WHERE buffer_id = ANY(%s)", [bad])


def _buffered(document_id: UUID) -> Iterator[tuple[UUID, str, Vectors]]:
    sql = """SELECT buffer_id, vector_sha, vector_send(embedding) FROM document_vector_buffer
             WHERE document_id = %(document)s AND buffer_id > %(after)s ORDER BY buffer_id LIMIT %(most)s"""
    after = UUID(int=0)
    connection.ensure_connection()
    while True:
        with psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(sql, {"document": document_id, "after": after, "most": _AT_ONCE})
            rows = cursor.fetchall()
        for after, sha, wire in rows:
            yield after, sha, np.frombuffer(wire, dtype=">f4", offset=4).astype("<f4")
        if len(rows) < _AT_ONCE:
            return


# The chosen vectors move into their chunks in one statement; the buffer keeps none of them.
COMMIT = """
    UPDATE document_chunks c
    SET embedding = b.embedding, embed_model = b.embed_model, embed_version = b.embed_version,
        vector_dim = b.vector_dim, vector_sha = b.vector_sha, embed_updated_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM document_vector_buffer b
    WHERE b.document_id = %(document)s AND c.chunk_id = b.chunk_id"""
OF_MODEL = " AND b.embed_model = %(model)s AND b.embed_version = %(version)s"


def commit(document_id: UUID, *, model: str, version: str) -> int:
    """Copy a document's buffered vectors into its chunks and empty both buffers; return how many were copied."""
    with connection.cursor() as cursor:
        cursor.execute(COMMIT + OF_MODEL, {"document": document_id, "model": model, "version": version})
        copied: int = cursor.rowcount
    empty(document_id)
    return copied


def keep(document_id: UUID) -> None:
    """Copy what a job that failed has in its buffer into the chunks that have no vector yet."""
    with connection.cursor() as cursor:
        cursor.execute(COMMIT + " AND c.embedding IS NULL", {"document": document_id})


def empty(document_id: UUID) -> None:
    with connection.cursor() as cursor:
        for table in ("document_vector_buffer", "document_chunk_buffer"):
            cursor.execute(f"DELETE FROM {table} WHERE document_id = %s", [document_id])
