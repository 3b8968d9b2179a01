"""Passages that are there to be found, without the way that leads there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from embeddings import chunk_store, embedders
from embeddings.chunking import Chunk
from embeddings.embedders import DIMENSIONS, Vectors, vector_shas
from embeddings.indexes import bm25
from embeddings.models import DocumentChunk
from testing.factories import DocumentFactory


def findable(
    user_id: UUID,
    texts: Sequence[str],
    *,
    headings: Sequence[Sequence[str]] = (),
    vectors: Vectors | None = None,
    **document: Any,
) -> UUID:
    """Store a document of one passage a page, found with the model that EMBEDDER names; return its id."""
    made: UUID = DocumentFactory.create(user_id=user_id, chunks_version=chunk_store.CHUNKS_VERSION, **document).pk
    cut, start = [], 0
    for at, text in enumerate(texts):
        path = tuple(headings[at]) if headings else ()
        cut.append(Chunk(at, text, start, start + len(text), (at + 1, at + 1), path, tokens=len(text)))
        start += len(text) + 1
    chunk_store.buffer_chunks(user_id=user_id, document_id=made, chunks=cut)
    chunk_store.commit_chunks(made)
    embedder = embedders.get_embedder(settings.EMBEDDER)
    found = embedder.embed(texts) if vectors is None else vectors
    for at, (row, sha) in enumerate(zip(found, vector_shas(found), strict=True)):
        DocumentChunk.objects.filter(document_id=made, chunk_ord=at).update(
            embedding=row,
            embed_model=embedder.model,
            embed_version=embedder.version,
            vector_dim=DIMENSIONS,
            vector_sha=sha,
            embed_updated_at=Now(),
        )
    bm25.index_document(made)
    return made
