"""Vectors of another model beside the live ones: written by campaigns, and moved in once their model has been live."""

from __future__ import annotations

from uuid import UUID

from django.db import connection, transaction

from documents.locks import lock_document
from embeddings import active_model, vector_store

Parameters = dict[str, UUID | str]
AT_ONCE = 200  # rows in one transaction: 1.5 MB

# Only of passages that are found today, and that do not have the model's vector as their live one.
COMMIT = """
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


def commit_shadow_vectors(document_id: UUID, *, model: str, version: str) -> int:
    """Move a document's buffered vectors beside the live ones and empty both buffers; return how many were moved."""
    moved = salvage_shadow_vectors(document_id, model=model, version=version)
    vector_store.empty_buffers(document_id)
    return moved


def salvage_shadow_vectors(document_id: UUID, *, model: str, version: str) -> int:
    """Copy a document's buffered vectors beside the live ones; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(COMMIT, {"document": document_id, "model": model, "version": version})
        return int(cursor.rowcount)


_OF_LIVE = "{row}.embed_model = l.embed_model AND {row}.embed_version = l.embed_version"
_OF_TARGET = "{row}.embed_model = %(model)s AND {row}.embed_version = %(version)s"
_SHADOW = "(SELECT s.chunk_id FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id AND {condition} LIMIT 1)"
UNCOVERED = f"""
    SELECT DISTINCT c.document_id
    FROM live_models l JOIN document_chunks c ON c.user_id = l.user_id
    WHERE l.user_id = %(user)s AND c.embed_model IS NOT NULL AND NOT ({_OF_TARGET.format(row="c")})
      AND {_SHADOW.format(condition=_OF_TARGET.format(row="s"))} IS NULL
      AND ({_OF_LIVE.format(row="c")} OR {_SHADOW.format(condition=_OF_LIVE.format(row="s"))} IS NOT NULL)
    LIMIT %(most)s"""


def uncovered_documents(user_id: UUID, *, model: str, version: str, most: int = 1) -> list[UUID]:
    """Return up to ``most`` documents with a findable passage that has no vector of this model.

    None: the tenant can be cut over to it, if no other commit comes between; hold the pointer's row to be sure.
    """
    with connection.cursor() as cursor:
        cursor.execute(UNCOVERED, {"user": user_id, "model": model, "version": version, "most": most})
        return [document_id for (document_id,) in cursor.fetchall()]


NEXT = """
    SELECT document_id FROM shadow_vectors
    WHERE user_id = %(user)s AND embed_model = %(model)s AND embed_version = %(version)s LIMIT 1"""
# One statement: a row is never in neither table.
SETTLE = f"""
    WITH batch AS MATERIALIZED (
        SELECT * FROM shadow_vectors
        WHERE document_id = %(document)s AND embed_model = %(model)s AND embed_version = %(version)s
        LIMIT %(most)s FOR UPDATE),
    settled AS ({vector_store.SET_VECTOR}
        FROM batch b WHERE c.chunk_id = b.chunk_id)
    DELETE FROM shadow_vectors s USING batch b
    WHERE s.chunk_id = b.chunk_id AND s.embed_model = b.embed_model AND s.embed_version = b.embed_version"""
DROP_OTHERS = """
    DELETE FROM shadow_vectors WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM shadow_vectors WHERE user_id = %(user)s
          AND (embed_model <> %(model)s OR embed_version <> %(version)s) LIMIT %(most)s))"""
DROP = """
    DELETE FROM shadow_vectors WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM shadow_vectors WHERE user_id = %(user)s
          AND embed_model = %(model)s AND embed_version = %(version)s LIMIT %(most)s))"""


def settle_shadow_vectors(user_id: UUID, *, model: str, version: str, most: int = AT_ONCE) -> int:
    """Move up to ``most`` vectors of the tenant's live model into its passages; return how many, 0 when all is done.

    Then nothing is beside the live vectors any more: those of other models are dropped. Nothing is done while another
    model is live. Safe to be killed in, to run twice and to run at once. Call outside of a transaction.
    """
    params: Parameters = {"user": user_id, "model": model, "version": version}
    done = 0
    while done < most and (moved := _settle_document(params, most - done)) is not None:
        done += moved
    return done or _live_only(params, DROP_OTHERS, most) or 0


def drop_shadow_vectors(user_id: UUID, *, model: str, version: str, most: int = 10 * AT_ONCE) -> int:
    """Delete up to ``most`` of the tenant's vectors beside the live ones that are of this model; return how many.

    Nothing is deleted while this model is live: by what is beside the others, some of its passages may be found.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(active_model.LOCK_FOR_SHARE, {"user": user_id})
        if cursor.fetchone() == (model, version):
            return 0
        cursor.execute(DROP, {"user": user_id, "model": model, "version": version, "most": most})
        return int(cursor.rowcount)


def _settle_document(params: Parameters, most: int) -> int | None:
    """Settle the next document, under its lock: commits of its vectors wait. None when there is none."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(NEXT, params)
        if not (found := cursor.fetchone()):
            return None
        lock_document(found[0], "vectors")
        return _live_only({**params, "document": found[0]}, SETTLE, most)


def _live_only(params: Parameters, statement: str, most: int) -> int | None:
    with transaction.atomic(), connection.cursor() as cursor:
        if not active_model.confirm_active_model(
            UUID(str(params["user"])), model=str(params["model"]), version=str(params["version"])
        ):
            return None
        cursor.execute(statement, {**params, "most": most})
        return int(cursor.rowcount)
