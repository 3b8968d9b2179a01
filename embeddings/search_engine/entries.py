"""Entries of the search engine: a passage with its vector of a model and the weights of its words, as the rows are."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from embeddings.embedders.registry import EmbeddingModel, Vectors
from embeddings.search.bm25 import IMPACT, IMPACT_PARAMS, SCALE, SIZE
from embeddings.vector_store import decode_vector

SHA = "left({vector}.vector_sha, 32) || left(c.chunk_sha, 32)"
# Chunks with a vector, live or shadow. The version comes in the same statement: what is read later is newer.
SELECT_ENTRIES = f"""
    WITH chunks AS (
        SELECT chunk_id, embed_model, embed_version, {SHA.format(vector="c")} AS sha, embedding, search
        FROM document_chunks c WHERE document_id = %(document)s AND embedding IS NOT NULL
        UNION ALL
        SELECT chunk_id, s.embed_model, s.embed_version, {SHA.format(vector="s")}, s.embedding, c.search
        FROM shadow_vectors s JOIN document_chunks c USING (chunk_id) WHERE s.document_id = %(document)s)
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint, p.*
    FROM (SELECT) one LEFT JOIN LATERAL (
        SELECT p.chunk_id, p.embed_model, p.embed_version, p.sha,
               vector_send(p.embedding), words.lexemes, words.impacts
        FROM (SELECT *, {SIZE} AS size FROM chunks) p, LATERAL (
            SELECT array_agg(w.lexeme) AS lexemes, array_agg({IMPACT}::int) AS impacts FROM unnest(p.search) w) words
        ) p ON true"""


class EngineUnavailable(ConnectionError):
    """The search engine does not answer, or with an error."""


class Entry(NamedTuple):
    """A passage with its vector of one model. ``sha`` is of its vector and its text."""

    chunk_id: UUID
    model: EmbeddingModel
    sha: str
    vector: Vectors
    words: Mapping[str, float]


def load_engine() -> Any:
    """Return the module of the engine, whose package is optional and takes half a second to import."""
    return import_module("embeddings.search_engine.milvus")


def read_entries(document_id: UUID) -> tuple[int, list[Entry]]:
    """Return the entries of a document as it is now, none of one that is gone, and their version."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_ENTRIES, IMPACT_PARAMS | {"document": document_id})
        rows = cursor.fetchall()
    entries = [
        Entry(
            chunk_id,
            EmbeddingModel(name, version),
            sha,
            decode_vector(vector),
            {lexeme: impact / SCALE for lexeme, impact in zip(lexemes or (), impacts or (), strict=True)},
        )
        for _, chunk_id, name, version, sha, vector, lexemes, impacts in rows
        if chunk_id
    ]
    return rows[0][0], entries
