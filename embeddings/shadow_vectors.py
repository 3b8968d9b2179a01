"""Shadow vectors: those of another model beside the live ones, until that model is active."""

from typing import Any
from uuid import UUID

from django.db import connection, transaction

from documents.locks import lock_document
from embeddings import active_model
from embeddings.embedders.registry import EmbeddingModel
from embeddings.vector_store import SET_VECTOR, empty_buffers, execute_for
from outbox import search_feed

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
    if moved := execute_for(COMMIT_SHADOWS, document_id, model):
        search_feed.enqueue([document_id])
    return moved


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
    WHERE s.chunk_id = b.chunk_id AND s.embed_model = b.embed_model AND s.embed_version = b.embed_version
    RETURNING s.document_id"""
DELETE_OTHERS = """
    DELETE FROM shadow_vectors WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM shadow_vectors WHERE user_id = %(user)s
          AND (embed_model <> %(model)s OR embed_version <> %(version)s) LIMIT %(most)s))
    RETURNING document_id"""
DELETE_SHADOWS = """
    DELETE FROM shadow_vectors WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM shadow_vectors WHERE user_id = %(user)s
          AND embed_model = %(model)s AND embed_version = %(version)s LIMIT %(most)s))
    RETURNING document_id"""


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
            return _enqueue_returned(cursor)

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
        return _enqueue_returned(cursor)


def _enqueue_returned(cursor: Any) -> int:
    """Tell the search engine of the documents that a statement returned, and return of how many rows."""
    document_ids = [document_id for (document_id,) in cursor.fetchall()]
    search_feed.enqueue(document_ids)
    return len(document_ids)
