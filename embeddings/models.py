"""Chunks, vectors and words: the write-ahead buffers, the tables that search reads, active models, vector indexes."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import Func, Q
from django.db.models.functions import Now
from pgvector.django import VectorField

from embeddings.embedders.registry import DIMENSIONS

REEMBED, RECHUNK = "reembed", "rechunk"  # of a campaign's jobs; a third pipeline is replacement_parses.REPARSE
STAGED = "~reparse"  # ends the chunker's label of chunks of a parse that is not the document's yet
_EMBEDDED = ("embed_model", "embed_version", "vector_dim", "vector_sha", "embedding", "embed_updated_at")
# Headings weigh more than the text below them. Two arguments: immutable, as a generated column must be. The languages
# and the parted words are those of search.lexemes.
_READ = (
    "setweight(jsonb_to_tsvector('{0}', coalesce(meta -> 'headings', '[]'), '\"string\"'), 'A')"
    r" || to_tsvector('{0}', regexp_replace(text, '([[:alpha:]])/(?=[[:alpha:]])', '\1 ', 'g'))"
)
_WORDS = f"CASE meta ->> 'language' WHEN 'es' THEN {_READ.format('spanish')} ELSE {_READ.format('english')} END"


def _filled_together() -> Q:
    return Q(**{f"{name}__isnull": True for name in _EMBEDDED}) | Q(**{f"{name}__isnull": False for name in _EMBEDDED})


class ChunkBuffer(models.Model):
    """Chunks of one run of the chunker, before they are committed to ``document_chunks``."""

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
        default_permissions = ("view",)
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
    # What full text search counts (embeddings.search.bm25) and looks phrases up in.
    search = models.GeneratedField(
        expression=Func(template=f"({_WORDS})", output_field=SearchVectorField()),
        output_field=SearchVectorField(),
        db_persist=True,
    )
    # The embedding columns come last (MVP context §12). The vector is stored in line: see the migration.
    embed_model = models.TextField(null=True)
    embed_version = models.TextField(null=True)
    vector_dim = models.IntegerField(null=True)
    vector_sha = models.TextField(null=True)
    # Of the database's clock: a vector index covers what is older than its building (embeddings.hnsw_indexes).
    embed_updated_at = models.DateTimeField(null=True)
    embedding = VectorField(dimensions=DIMENSIONS, null=True)

    class Meta:
        db_table = "document_chunks"
        verbose_name = "passage"
        default_permissions = ("view",)
        indexes = [
            # A tenant's exact scan, of all its passages of a model or of those that no vector index covers yet.
            models.Index("user_id", "embed_model", "embed_version", "embed_updated_at", name="ix_chunks_user_model"),
            # Is this text embedded already, for this tenant or for any?
            models.Index("chunk_sha", "user_id", "embed_model", "embed_version", name="ix_chunks_sha"),
        ]
        constraints = [
            models.UniqueConstraint("document", "chunker_name", "chunker_version", "chunk_ord", name="uq_chunk_ord"),
            models.CheckConstraint(condition=Q(vector_dim=DIMENSIONS), name="chunk_vector_dim"),
            models.CheckConstraint(condition=_filled_together(), name="chunk_embedding_whole"),
        ]

    def __str__(self) -> str:
        return str(self.chunk_id)


class VectorBuffer(models.Model):
    """Vectors saved batch by batch, before they are committed to the chunks together."""

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
        default_permissions = ("view",)
        # idx_vector_buffer_embedding_progress is made by the migration: Django refuses names of its length.
        indexes = [models.Index("document", name="idx_vector_buffer_document")]
        constraints = [
            models.UniqueConstraint("chunk", "embed_model", "embed_version", name="uq_vector_buffer"),
            models.CheckConstraint(condition=Q(vector_dim=DIMENSIONS), name="buffer_vector_dim"),
        ]

    def __str__(self) -> str:
        return str(self.buffer_id)


class ShadowVector(models.Model):
    """Vector of another model beside the live one, written by a campaign until its tenant is cut over.

    A table of its own, not a second column of document_chunks: there each write would rewrite a row of 7 kB, and enter
    it again in every vector index that covers it (docs/decisions.md).
    """

    pk = models.CompositePrimaryKey("chunk", "embed_model", "embed_version")
    chunk = models.ForeignKey(DocumentChunk, on_delete=models.CASCADE, related_name="+", db_index=False)
    user_id = models.UUIDField()
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="+", db_index=False)
    embed_model = models.TextField()
    embed_version = models.TextField()
    vector_dim = models.IntegerField()
    vector_sha = models.TextField()
    embed_updated_at = models.DateTimeField(db_default=Now())
    embedding = VectorField(dimensions=DIMENSIONS)

    class Meta:
        db_table = "shadow_vectors"
        default_permissions = ()
        indexes = [
            models.Index("user_id", "embed_model", "embed_version", "embed_updated_at", name="ix_shadows_user_model"),
            models.Index("document", name="ix_shadows_document"),
        ]
        constraints = [models.CheckConstraint(condition=Q(vector_dim=DIMENSIONS), name="shadow_vector_dim")]

    def __str__(self) -> str:
        return f"{self.chunk_id} {self.embed_model}@{self.embed_version}"


class SentenceVectors(models.Model):
    """Vectors of a passage's sentences by the sentence model, null until they are made (embeddings.sentence_vectors).

    ``vectors`` are int8 rows of the sentences in any order; a row without sentences the model could read is empty. It
    holds for ``chunk_sha``: where the passage has another text by now, search leaves it out.
    """

    # ON DELETE CASCADE in the database (see the migration), since chunks are deleted by SQL in many places.
    chunk = models.OneToOneField(
        DocumentChunk, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    user_id = models.UUIDField()
    document = models.ForeignKey(
        "documents.Document", on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    chunk_sha = models.TextField()
    model = models.TextField()  # with its version
    vectors = models.BinaryField(null=True)

    class Meta:
        db_table = "sentence_vectors"
        default_permissions = ()
        indexes = [
            models.Index("document", name="ix_sentences_document"),
            models.Index("chunk_sha", name="ix_sentences_sha"),
            models.Index("user_id", "document", name="ix_sentences_pending", condition=Q(vectors=None)),
        ]

    def __str__(self) -> str:
        return str(self.chunk_id)


class DocumentTerm(models.Model):
    """BM25 postings of a document's term: the searchable chunks with it, and its impact in each.

    Written in the transaction that makes the chunks searchable, and merged with those of other documents soon after
    (embeddings.search.posting_segments). Then one row is left, whose term is MERGED instead of the empty one, and which
    like that has every chunk. ``postings`` are bytes as embeddings.search.postings.POSTING lays them out.
    """

    pk = models.CompositePrimaryKey("user_id", "term", "document")
    user_id = models.UUIDField()
    term = models.TextField()
    # No constraint, which would be checked for each of thousands of rows: they are written under the claim of the
    # document's job and removed with the document, in its transaction (documents.services).
    document = models.ForeignKey(
        "documents.Document", on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    postings = models.BinaryField()
    # Of the rows of tables in the chunks, as ROW_POSTING: null without any.
    row_postings = models.BinaryField(null=True)
    segment_id = models.BigIntegerField(null=True)  # of a merged document

    class Meta:
        db_table = "document_terms"
        default_permissions = ()
        indexes = [
            models.Index("document", name="ix_terms_document"),
            # How many documents of each tenant are not merged yet?
            models.Index("user_id", name="ix_terms_unmerged", condition=Q(term="")),
        ]

    def __str__(self) -> str:
        return f"{self.document_id} {self.term}"


class PostingSegment(models.Model):
    """Documents of a tenant whose postings are merged. Each has slots in it: a chunk's is the first plus its ordinal.

    A trigger lists the documents whose terms are deleted; their postings count no more, and go when the segment is
    merged again.
    """

    segment_id = models.BigAutoField(primary_key=True)
    user_id = models.UUIDField()
    documents = models.BinaryField()  # as embeddings.search.postings.SEGMENT_DOCUMENT
    slots = models.IntegerField()
    rows = models.IntegerField()  # of tables in the chunks
    deleted_documents = ArrayField(models.UUIDField(), db_default=[])
    deleted_at = models.DateTimeField(null=True)  # the first of them

    class Meta:
        db_table = "posting_segments"
        default_permissions = ()
        indexes = [
            models.Index("user_id", name="ix_posting_segments_user"),
            models.Index("deleted_at", name="ix_posting_segments_deleted", condition=Q(deleted_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return str(self.segment_id)


class PostingBlock(models.Model):
    """Postings of a term in a segment's documents, as SEGMENT_POSTING or DENSE_IMPACT of embeddings.search.postings."""

    pk = models.CompositePrimaryKey("user_id", "term", "segment_id")
    user_id = models.UUIDField()
    term = models.TextField()
    segment_id = models.BigIntegerField()
    size = models.IntegerField()  # postings
    postings = models.BinaryField()
    row_postings = models.BinaryField(null=True)  # as SEGMENT_ROW_POSTING

    class Meta:
        db_table = "posting_blocks"
        default_permissions = ()
        indexes = [models.Index("segment_id", name="ix_posting_blocks_segment")]

    def __str__(self) -> str:
        return f"{self.segment_id} {self.term}"


class ActiveModel(models.Model):
    """Active embedding model of a tenant, created with its first vectors (embeddings.active_model)."""

    user_id = models.UUIDField(primary_key=True)
    embed_model = models.TextField()
    embed_version = models.TextField()
    # What it was before the last cut-over, for as long as that can be rolled back.
    previous_model = models.TextField(null=True)
    previous_version = models.TextField(null=True)
    # No campaign moves a pinned tenant.
    pinned = models.BooleanField(db_default=False)
    # Some of the live model's vectors are in shadow_vectors.
    shadowed = models.BooleanField(db_default=False)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "active_models"
        default_permissions = ("view",)
        indexes = [models.Index("embed_model", "embed_version", "user_id", name="ix_active_models_model")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.embed_model}@{self.embed_version}"


class VectorIndex(models.Model):
    """A partial HNSW index over one tenant's vectors of one model that are older than ``upto``."""

    class Table(models.TextChoices):
        LIVE = "document_chunks"
        SHADOW = "shadow_vectors"

    name = models.TextField(primary_key=True)  # of the index in the database
    user_id = models.UUIDField()
    table_name = models.TextField(choices=Table.choices)
    embed_model = models.TextField()
    embed_version = models.TextField()
    # Covers embed_updated_at in [since, upto).
    since = models.DateTimeField()
    upto = models.DateTimeField()
    passages = models.IntegerField(db_default=0)
    # Null while it is being built: search does not use it yet.
    built_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "vector_indexes"
        default_permissions = ("view",)
        verbose_name_plural = "vector indexes"
        indexes = [models.Index("user_id", "embed_model", "embed_version", name="ix_vector_indexes_user")]

    def __str__(self) -> str:
        return self.name
