"""Vector storage: buffering by binary COPY, commits into document_chunks or shadow_vectors, integrity checks by sha.

shadow_vectors has another model's vectors beside the live ones; they move into the chunks once that model is active.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection, transaction

from documents.files import lock_document
from embeddings import active_model
from embeddings.embedders import DIMENSIONS, EmbeddingModel, Vectors, vector_sha

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
            if vector_sha(np.frombuffer(binary, dtype=">f4", offset=4).astype("<f4")) != sha:
                yield after
        if len(rows) < _ROWS_PER_READ:
            return


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
    bought by a campaign that was overtaken, stay buffered: ``periodic.empty_buffers`` puts them where they belong.
    """
    moved = sum(_execute(f"{COMMIT};{DELETE}".format(source=source), document_id, model) for source in (SHADOW, BUFFER))
    _execute(EMPTY_CHUNK_BUFFER, document_id, model)
    return moved


def salvage_vectors(document_id: UUID, model: EmbeddingModel) -> None:
    """Copy a failed job's buffered vectors into chunks that have none yet; another chunker's stay unsearchable."""
    _execute(COMMIT.format(source=BUFFER) + _ONLY_MISSING, document_id, model)


def delete_buffered_vectors(document_id: UUID, model: EmbeddingModel) -> None:
    _execute(DELETE.format(source=BUFFER), document_id, model)


def _execute(sql: str, document_id: UUID, model: EmbeddingModel) -> int:
    """Return the row count of the first statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, {"document": document_id, **model.params})
        return int(cursor.rowcount)


def empty_buffers(document_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_vector_buffer WHERE document_id = %s", [document_id])
        cursor.execute(EMPTY_CHUNK_BUFFER, {"document": document_id})


ROWS_PER_TRANSACTION = 200  # 1.5 MB

# Only of chunks that search finds today, and whose live vector is of another model.
COMMIT_SHADOWS = """
    INSERT INTO shadow_vectors AS s (chunk_id, user_id, document_id, embed_model, embed_version, vector_dim, vector_sha,
        embed_updated_at, embedding)
    SELECT b.chunk_id, b.user_id, b.document_id, b.embed_model, b.embed_version, b.vector_dim, b.vector_sha,
        clock_timestamp(), b.embedding
    FROM document_vector_buffer b
    WHERE b.document_id = %(document)s AND b.embed_model = %(model)s AND b.embed_version = %(version)s
      AND (SELECT c.embed_model <> %(model)s OR c.embed_version <> %(version)s
           FROM document_chunks c WHERE c.chunk_id = b.chunk_id)
    ON CONFLICT (chunk_id, embed_model, embed_version) DO UPDATE SET
        vector_dim = excluded.vector_dim, vector_sha = excluded.vector_sha, embedding = excluded.embedding,
        embed_updated_at = excluded.embed_updated_at
    WHERE s.vector_sha <> excluded.vector_sha"""


def commit_shadow_vectors(document_id: UUID, model: EmbeddingModel) -> int:
    """Move a document's buffered vectors to shadow_vectors and empty both buffers; return how many were moved."""
    moved = salvage_shadow_vectors(document_id, model)
    empty_buffers(document_id)
    return moved


def salvage_shadow_vectors(document_id: UUID, model: EmbeddingModel) -> int:
    return _execute(COMMIT_SHADOWS, document_id, model)


_OF_LIVE = "{row}.embed_model = l.embed_model AND {row}.embed_version = l.embed_version"
_OF_TARGET = "{row}.embed_model = %(model)s AND {row}.embed_version = %(version)s"
_OF_SHADOW = "(SELECT s.chunk_id FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id AND {condition} LIMIT 1)"
UNCOVERED = f"""
    SELECT DISTINCT c.document_id
    FROM active_models l JOIN document_chunks c ON c.user_id = l.user_id
    WHERE l.user_id = %(user)s AND c.embed_model IS NOT NULL AND NOT ({_OF_TARGET.format(row="c")})
      AND {_OF_SHADOW.format(condition=_OF_TARGET.format(row="s"))} IS NULL
      AND ({_OF_LIVE.format(row="c")} OR {_OF_SHADOW.format(condition=_OF_LIVE.format(row="s"))} IS NOT NULL)
    LIMIT %(most)s"""


def uncovered_documents(user_id: UUID, model: EmbeddingModel, *, most: int = 1) -> list[UUID]:
    """Return up to ``most`` documents with a searchable chunk that has no vector of this model.

    Without any, the tenant can be cut over to it, unless a commit comes between; lock the active model to be sure.
    """
    with connection.cursor() as cursor:
        cursor.execute(UNCOVERED, {"user": user_id, "most": most, **model.params})
        return [document_id for (document_id,) in cursor.fetchall()]


NEXT = """
    SELECT document_id FROM shadow_vectors
    WHERE user_id = %(user)s AND embed_model = %(model)s AND embed_version = %(version)s LIMIT 1"""
# One statement: at no moment is a row in neither table.
SETTLE = f"""
    WITH batch AS MATERIALIZED (
        SELECT * FROM shadow_vectors
        WHERE document_id = %(document)s AND embed_model = %(model)s AND embed_version = %(version)s
        LIMIT %(most)s FOR UPDATE),
    settled AS ({SET_VECTOR}
        FROM batch b WHERE c.chunk_id = b.chunk_id)
    DELETE FROM shadow_vectors s USING batch b
    WHERE s.chunk_id = b.chunk_id AND s.embed_model = b.embed_model AND s.embed_version = b.embed_version"""
DELETE_OTHERS = """
    DELETE FROM shadow_vectors WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM shadow_vectors WHERE user_id = %(user)s
          AND (embed_model <> %(model)s OR embed_version <> %(version)s) LIMIT %(most)s))"""
DELETE_SHADOWS = """
    DELETE FROM shadow_vectors WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM shadow_vectors WHERE user_id = %(user)s
          AND embed_model = %(model)s AND embed_version = %(version)s LIMIT %(most)s))"""


def settle_shadow_vectors(user_id: UUID, model: EmbeddingModel, *, most: int = ROWS_PER_TRANSACTION) -> int:
    """Move up to ``most`` vectors of the tenant's active model into its chunks; return how many, 0 when all is done.

    Afterwards no shadow vectors are left: those of other models are deleted. Nothing is done while another model is
    active. Safe to be killed, repeated and run concurrently. Call outside of a transaction.
    """
    params: dict[str, Any] = {"user": user_id, **model.params}

    def execute_if_active(statement: str, **more: Any) -> int | None:
        with transaction.atomic(), connection.cursor() as cursor:
            if not active_model.confirm_active_model(user_id, model):
                return None
            cursor.execute(statement, params | more)
            return int(cursor.rowcount)

    def settle_next_document(most: int) -> int | None:
        """Settle a document under its lock: commits of its vectors wait."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(NEXT, params)
            if not (row := cursor.fetchone()):
                return None
            lock_document(row[0], "vectors")
            return execute_if_active(SETTLE, document=row[0], most=most)

    settled = 0
    while settled < most and (moved := settle_next_document(most - settled)) is not None:
        settled += moved
    return settled or execute_if_active(DELETE_OTHERS, most=most) or 0


def drop_shadow_vectors(user_id: UUID, model: EmbeddingModel, *, most: int = 10 * ROWS_PER_TRANSACTION) -> int:
    """Delete up to ``most`` of the tenant's shadow vectors of this model; return how many.

    Nothing is deleted while this model is active: search may find chunks by them.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(active_model.LOCK_FOR_SHARE, {"user": user_id})
        if cursor.fetchone() == (model.model, model.version):
            return 0
        cursor.execute(DELETE_SHADOWS, {"user": user_id, "most": most, **model.params})
        return int(cursor.rowcount)
