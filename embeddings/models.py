"""Passages and their vectors: both write-ahead buffers and the table that search reads."""

from __future__ import annotations

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from pgvector.django import HnswIndex, VectorField

from embeddings.embedders import DIMENSIONS

_EMBEDDED = ("embed_model", "embed_version", "vector_dim", "embedding", "embed_updated_at")


def _filled_together() -> Q:
    return Q(**{f"{name}__isnull": True for name in _EMBEDDED}) | Q(**{f"{name}__isnull": False for name in _EMBEDDED})


class ChunkBuffer(models.Model):
    """Chunks of one run of the chunker, on their way into ``document_chunks``."""

    chunk_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField()
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="+", db_index=False)
    chunk_ord = models.IntegerField()
    chunker_name = models.TextField()
    chunker_version = models.TextField()
    chunk_sha = models.TextField()
    text = models.TextField()
    meta = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "document_chunk_buffer"
        indexes = [models.Index("document", name="idx_chunk_buffer_document")]

    def __str__(self) -> str:
        return str(self.chunk_id)


class DocumentChunk(models.Model):
    chunk_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField()
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="chunks", db_index=False)
    chunker_name = models.TextField()
    chunker_version = models.TextField()
    chunk_ord = models.IntegerField()
    chunk_sha = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    text = models.TextField()
    meta = models.JSONField(null=True)
    # The embedding columns come last: they are wide and mostly stored out of line (MVP context §12).
    embed_model = models.TextField(null=True)
    embed_version = models.TextField(null=True)
    vector_dim = models.IntegerField(null=True)
    embed_updated_at = models.DateTimeField(null=True)
    embedding = VectorField(dimensions=DIMENSIONS, null=True)

    class Meta:
        db_table = "document_chunks"
        indexes = [
            models.Index("user_id", "embed_model", "embed_version", name="ix_chunks_user_model"),
            HnswIndex(
                fields=["embedding"],
                name="idx_hnsw_chunks_te3s_v1",
                opclasses=["vector_cosine_ops"],
                condition=Q(embed_model="text-embedding-3-small", embed_version="1"),
            ),
        ]
        constraints = [
            models.UniqueConstraint("document", "chunker_name", "chunker_version", "chunk_ord", name="uq_chunk_ord"),
            models.CheckConstraint(condition=Q(vector_dim=DIMENSIONS), name="chunk_vector_dim"),
            models.CheckConstraint(condition=_filled_together(), name="chunk_embedding_whole"),
        ]

    def __str__(self) -> str:
        return str(self.chunk_id)


class VectorBuffer(models.Model):
    """Vectors as they come back, batch by batch, before they are committed to the chunks together."""

    buffer_id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    user_id = models.UUIDField()
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="+", db_index=False)
    chunk = models.ForeignKey(DocumentChunk, on_delete=models.CASCADE, related_name="+", db_index=False)
    embed_model = models.TextField()
    embed_version = models.TextField()
    vector_dim = models.IntegerField()
    vector_sha = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    embedding = VectorField(dimensions=DIMENSIONS)

    class Meta:
        db_table = "document_vector_buffer"
        # idx_vector_buffer_embedding_progress is made by the migration: Django refuses names of its length.
        indexes = [models.Index("document", name="idx_vector_buffer_document")]
        constraints = [
            models.UniqueConstraint("chunk", "embed_model", "embed_version", name="uq_vector_buffer"),
            models.CheckConstraint(condition=Q(vector_dim=DIMENSIONS), name="buffer_vector_dim"),
        ]

    def __str__(self) -> str:
        return str(self.buffer_id)
