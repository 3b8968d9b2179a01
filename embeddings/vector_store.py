"""Vectors move by binary COPY and by set-wise SQL, never row by row."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
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


def buffer_vectors(
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


def is_buffer_intact(document_id: UUID) -> bool:
    """Tell whether every buffered vector of a document still has the sha that was computed when it came."""
    return all(vector_sha(row) == sha for _, sha, row in _buffered(document_id))


def delete_corrupt_vectors(document_id: UUID) -> None:
    """Delete buffered vectors that no longer have their sha: a later try makes them anew."""
    bad = [buffer_id for buffer_id, sha, row in _buffered(document_id) if vector_sha(row) != sha]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_vector_buffer WHERE buffer_id = ANY(%s)", [bad])


def corrupt_chunks() -> Iterator[UUID]:
    """Yield the chunks of which a committed vector, live or beside it, no longer has its sha; reads every vector."""
    for rows in (_read(_COMMITTED, {}), _read(_BESIDE, {})):
        for chunk_id, sha, row in rows:
            if vector_sha(row) != sha:
                yield chunk_id


_BUFFERED = """SELECT buffer_id, vector_sha, vector_send(embedding) FROM document_vector_buffer
    WHERE document_id = %(document)s AND buffer_id > %(after)s ORDER BY buffer_id LIMIT %(most)s"""
_COMMITTED = """SELECT chunk_id, vector_sha, vector_send(embedding) FROM document_chunks
    WHERE embedding IS NOT NULL AND chunk_id > %(after)s ORDER BY chunk_id LIMIT %(most)s"""
# WITH TIES: a chunk may have vectors of several models.
_BESIDE = """SELECT chunk_id, vector_sha, vector_send(embedding) FROM shadow_vectors
    WHERE chunk_id > %(after)s ORDER BY chunk_id FETCH FIRST %(most)s ROWS WITH TIES"""


def _buffered(document_id: UUID) -> Iterator[tuple[UUID, str, Vectors]]:
    return _read(_BUFFERED, {"document": document_id})


def _read(sql: str, params: Mapping[str, UUID]) -> Iterator[tuple[UUID, str, Vectors]]:
    after = UUID(int=0)
    connection.ensure_connection()
    while True:
        with psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(sql, {**params, "after": after, "most": _AT_ONCE})
            rows = cursor.fetchall()
        for after, sha, wire in rows:
            yield after, sha, np.frombuffer(wire, dtype=">f4", offset=4).astype("<f4")
        if len(rows) < _AT_ONCE:
            return


# A vector of ``b`` becomes the live one of its chunk ``c``.
SET_VECTOR = """
    UPDATE document_chunks c
    SET embedding = b.embedding, embed_model = b.embed_model, embed_version = b.embed_version,
        vector_dim = b.vector_dim, vector_sha = b.vector_sha, embed_updated_at = clock_timestamp(),
        updated_at = clock_timestamp()"""
# The chosen vectors move into their chunks in one statement; where they come from keeps none of them.
COMMIT = f"""{SET_VECTOR}
    FROM {{source}} b
    WHERE b.document_id = %(document)s AND c.chunk_id = b.chunk_id
      AND b.embed_model = %(model)s AND b.embed_version = %(version)s"""
BUFFER, SHADOW = "document_vector_buffer", "shadow_vectors"
_LACKING = """
      AND c.embedding IS NULL AND NOT EXISTS (
          SELECT 1 FROM documents d
          WHERE d.document_id = c.document_id AND d.chunks_version <> c.chunker_name || '@' || c.chunker_version)"""
DROP = """
    DELETE FROM {source}
    WHERE document_id = %(document)s AND embed_model = %(model)s AND embed_version = %(version)s"""


def commit_vectors(document_id: UUID, *, model: str, version: str) -> int:
    """Move a document's vectors of one model into its chunks and out of the buffers; return how many were moved.

    Call where the model is the tenant's live one: what was bought of it beside another model moves too. What a campaign
    that was overtaken has paid for another model stays buffered: the sweep puts it where it belongs.
    """
    params = _of_model(document_id, model, version)
    moved = 0
    with connection.cursor() as cursor:
        for source in (SHADOW, BUFFER):
            cursor.execute(f"{COMMIT};{DROP}".format(source=source), params)
            moved += cursor.rowcount  # the first statement's
    empty_chunk_buffer(document_id)
    return moved


def salvage_vectors(document_id: UUID, *, model: str, version: str) -> None:
    """Copy what a job that failed has in its buffer into the chunks that have no vector yet; no other cut is shown."""
    with connection.cursor() as cursor:
        cursor.execute(COMMIT.format(source=BUFFER) + _LACKING, _of_model(document_id, model, version))


def delete_buffered_vectors(document_id: UUID, *, model: str, version: str) -> None:
    """Forget what is buffered of a model that is not wanted any more."""
    params = _of_model(document_id, model, version)
    with connection.cursor() as cursor:
        cursor.execute(DROP.format(source=BUFFER), params)


def _of_model(document_id: UUID, model: str, version: str) -> dict[str, UUID | str]:
    return {"document": document_id, "model": model, "version": version}


def empty_buffers(document_id: UUID) -> None:
    """Empty both buffers of a document."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_vector_buffer WHERE document_id = %s", [document_id])
    empty_chunk_buffer(document_id)


def empty_chunk_buffer(document_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_chunk_buffer WHERE document_id = %s", [document_id])
