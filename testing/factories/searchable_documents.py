"""Factory of searchable documents, without the pipeline."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from embeddings import chunk_store
from embeddings.chunking import chunkers
from embeddings.chunking.chunkers import Chunk
from embeddings.embedders import registry
from embeddings.embedders.registry import DIMENSIONS, Vectors, vector_sha
from embeddings.models import DocumentChunk
from embeddings.search import bm25
from testing.factories import DocumentFactory


def create_searchable_document(
    user_id: UUID,
    texts: Sequence[str],
    *,
    headings: Sequence[Sequence[str]] = (),
    vectors: Vectors | None = None,
    **document: Any,
) -> UUID:
    """Store a document of one passage a page, found with the model that EMBEDDER names; return its id."""
    chunks, start = [], 0
    for at, text in enumerate(texts):
        path = tuple(headings[at]) if headings else ()
        chunks.append(Chunk(at, text, start, start + len(text), (at + 1, at + 1), path, tokens=len(text)))
        start += len(text) + 1
    return _create_searchable_chunks(user_id, chunks, chunk_store.CHUNKS_VERSION, vectors, **document)


def create_searchable_markdown(user_id: UUID, text: str, **document: Any) -> UUID:
    """Store a document of one page, split by the chunker that CHUNKER names; return its id."""
    chunks = chunkers.get_chunker(settings.CHUNKER).split(text)
    return _create_searchable_chunks(user_id, chunks, settings.CHUNKER, None, **document)


def _create_searchable_chunks(
    user_id: UUID, chunks: Sequence[Chunk], chunks_version: str, vectors: Vectors | None, **document: Any
) -> UUID:
    document_id: UUID = DocumentFactory.create(user_id=user_id, chunks_version=chunks_version, **document).pk
    chunk_store.buffer_chunks(user_id=user_id, document_id=document_id, chunks=chunks, chunks_version=chunks_version)
    chunk_store.commit_chunks(document_id, chunks_version=chunks_version)
    embedder = registry.get_embedder(settings.EMBEDDER)
    rows = embedder.embed([chunk.text for chunk in chunks]) if vectors is None else vectors
    for at, (row, sha) in enumerate(zip(rows, map(vector_sha, rows), strict=True)):
        DocumentChunk.objects.filter(document_id=document_id, chunk_ord=at).update(
            embedding=row,
            embed_model=embedder.model,
            embed_version=embedder.version,
            vector_dim=DIMENSIONS,
            vector_sha=sha,
            embed_updated_at=Now(),
        )
    bm25.index_document(document_id)
    return document_id
