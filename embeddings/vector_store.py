"""Vector storage: buffering by binary COPY, commits into document_chunks, integrity checks by sha."""

import struct
from collections.abc import Iterator, Sequence
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection

from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, Vectors, vector_sha
from outbox import search_feed

COPY = """COPY document_vector_buffer
    (user_id, document_id, chunk_id, embed_model, embed_version, vector_dim, vector_sha, embedding)
    FROM STDIN (FORMAT binary)"""
_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_ROWS_PER_WRITE = 32  # 200 kB: each write waits for the socket
_ROWS_PER_READ = 500  # 3 MB


def buffer_vectors(
    document_id: UUID, model: EmbeddingModel, chunk_ids: Sequence[UUID], vectors: Vectors, *, user_id: UUID
) -> None:
    """Write vectors, shape (len(chunk_ids), 1536), into the buffer."""
    name, version = model.model.encode(), model.version.encode()
    # A row is the number of its columns, then each column after its length. pgvector's wire form: the dimensions, an
    # unused half-word, then big-endian floats.
    before = struct.pack(">hi16si16si", 8, 16, user_id.bytes, 16, document_id.bytes, 16)
    form = f">i{len(name)}si{len(version)}siii"
    between = struct.pack(form, len(name), name, len(version), version, 4, DIMENSIONS, 64)
    head = struct.pack(">ihh", 4 + 4 * DIMENSIONS, DIMENSIONS, 0)
    binary = np.ascontiguousarray(vectors, dtype=">f4")
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        copy.write(_HEADER)
        rows = [
            b"".join([before, chunk_id.bytes, between, sha.encode(), head, row.tobytes()])
            for chunk_id, sha, row in zip(chunk_ids, map(vector_sha, vectors), binary, strict=True)
        ]
        for start in range(0, len(rows), _ROWS_PER_WRITE):
            copy.write(b"".join(rows[start : start + _ROWS_PER_WRITE]))
        copy.write(_TRAILER)


BUFFERED = """SELECT buffer_id, vector_sha, vector_send(embedding) FROM document_vector_buffer
    WHERE document_id = %(document)s AND buffer_id > %(after)s ORDER BY buffer_id LIMIT %(most)s"""
_COMMITTED = """SELECT chunk_id, vector_sha, vector_send(embedding) FROM document_chunks
    WHERE embedding IS NOT NULL AND chunk_id > %(after)s ORDER BY chunk_id LIMIT %(most)s"""
# WITH TIES: a chunk may have vectors of several models.
_SHADOW = """SELECT chunk_id, vector_sha, vector_send(embedding) FROM shadow_vectors
    WHERE chunk_id > %(after)s ORDER BY chunk_id FETCH FIRST %(most)s ROWS WITH TIES"""


def delete_corrupt_vectors(document_id: UUID) -> None:
    """Delete buffered vectors that no longer have their sha: a later attempt makes them again."""
    corrupt = list(corrupt_ids(BUFFERED, document=document_id))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_vector_buffer WHERE buffer_id = ANY(%s)", [corrupt])


def corrupt_chunks() -> Iterator[UUID]:
    """Yield the chunks of which a committed or shadow vector no longer has its sha. Reads every vector."""
    yield from corrupt_ids(_COMMITTED)
    yield from corrupt_ids(_SHADOW)


def corrupt_ids(sql: str, **params: UUID) -> Iterator[UUID]:
    """Yield the ids of the vectors that no longer have the sha that was computed when they came."""
    after = UUID(int=0)
    connection.ensure_connection()
    while True:
        with psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(sql, {**params, "after": after, "most": _ROWS_PER_READ})
            rows = cursor.fetchall()
        for after, sha, binary in rows:
            if vector_sha(decode_vector(binary)) != sha:
                yield after
        if len(rows) < _ROWS_PER_READ:
            return


def decode_vector(binary: bytes) -> Vectors:
    """Return the vector, shape (dimensions,), that ``vector_send`` has sent."""
    return np.frombuffer(binary, dtype=">f4", offset=4).astype("<f4")


# A vector of ``b`` becomes the live one of its chunk ``c``.
SET_VECTOR = """
    UPDATE document_chunks c
    SET embedding = b.embedding, embed_model = b.embed_model, embed_version = b.embed_version,
        vector_dim = b.vector_dim, vector_sha = b.vector_sha, embed_updated_at = clock_timestamp(),
        updated_at = clock_timestamp()"""
COMMIT = f"""{SET_VECTOR}
    FROM {{source}} b
    WHERE b.document_id = %(document)s AND c.chunk_id = b.chunk_id
      AND b.embed_model = %(model)s AND b.embed_version = %(version)s"""
EMPTY_CHUNK_BUFFER = "DELETE FROM document_chunk_buffer WHERE document_id = %(document)s"
BUFFER, SHADOW = "document_vector_buffer", "shadow_vectors"
# Chunks without a vector, of the chunker by which the document is found.
_ONLY_MISSING = """
      AND c.embedding IS NULL AND NOT EXISTS (
          SELECT 1 FROM documents d
          WHERE d.document_id = c.document_id AND d.chunks_version <> c.chunker_name || '@' || c.chunker_version)"""
DELETE = """
    DELETE FROM {source}
    WHERE document_id = %(document)s AND embed_model = %(model)s AND embed_version = %(version)s"""


def commit_vectors(document_id: UUID, model: EmbeddingModel) -> int:
    """Move a document's vectors of one model into its chunks and out of the buffers; return how many were moved.

    Call where the model is the tenant's active one: vectors of it in shadow_vectors move too. Vectors of another model,
    bought by a campaign that was overtaken, stay buffered until ``buffer_cleanup.empty_buffers`` moves them.
    """
    moved = sum(
        execute_for(f"{COMMIT};{DELETE}".format(source=source), document_id, model) for source in (SHADOW, BUFFER)
    )
    execute_for(EMPTY_CHUNK_BUFFER, document_id, model)
    return moved


def salvage_vectors(document_id: UUID, model: EmbeddingModel) -> None:
    """Copy a failed job's buffered vectors into chunks that have none yet; another chunker's stay unsearchable."""
    if execute_for(COMMIT.format(source=BUFFER) + _ONLY_MISSING, document_id, model):
        search_feed.enqueue([document_id])


def delete_buffered_vectors(document_id: UUID, model: EmbeddingModel) -> None:
    execute_for(DELETE.format(source=BUFFER), document_id, model)


def execute_for(sql: str, document_id: UUID, model: EmbeddingModel) -> int:
    """Return the row count of the first statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, {"document": document_id, **model.params})
        return int(cursor.rowcount)


def empty_buffers(document_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_vector_buffer WHERE document_id = %s", [document_id])
        cursor.execute(EMPTY_CHUNK_BUFFER, {"document": document_id})
