"""Serializers of chunks, passages, search filters and /internal/embed."""

from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.strict_fields import StrictCharField
from documents.deterministic_ids import embedding_id
from documents.tags import MAX_FILTER_TAGS
from embeddings.models import DocumentChunk


class PlaceResponse(serializers.Serializer[object]):
    """Where a passage stands, and the table's title and header that are repeated before it."""

    start = serializers.IntegerField(min_value=0, help_text="offset into the parsed markdown, in characters")
    end = serializers.IntegerField(min_value=0)
    pages = serializers.ListField(child=serializers.IntegerField(min_value=1), help_text="first and last page")
    headings = serializers.ListField(child=serializers.CharField(), help_text="heading path")
    tokens = serializers.IntegerField(min_value=1)
    header = serializers.ListField(child=serializers.IntegerField(), required=False, help_text="start and end of it")
    title = serializers.ListField(child=serializers.IntegerField(), required=False, help_text="of the table, before it")


@extend_schema_field(PlaceResponse)
class ChunkMetaField(serializers.JSONField):
    """As the chunker wrote it."""


class ChunkResponse(serializers.ModelSerializer[DocumentChunk]):
    meta = ChunkMetaField(read_only=True)
    embedding_id = serializers.SerializerMethodField(help_text="follows from chunk, model and version; null without")

    class Meta:
        model = DocumentChunk
        fields = (
            "chunk_id",
            "chunk_ord",
            "chunker_name",
            "chunker_version",
            "chunk_sha",
            "text",
            "meta",
            "embed_model",
            "embed_version",
            "embedding_id",
        )
        read_only_fields = fields

    def get_embedding_id(self, chunk: DocumentChunk) -> UUID | None:
        if chunk.embed_model is None or chunk.embed_version is None:
            return None
        return embedding_id(chunk.pk, chunk.embed_model, chunk.embed_version)


class FiltersRequest(serializers.Serializer[object]):
    """For the OpenAPI schema only: ``embeddings.search.query_parser`` parses and validates the filters."""

    pages = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        min_length=2,
        max_length=2,
        required=False,
        help_text="first and last page; a passage that stands partly on them is found",
    )
    heading = serializers.CharField(required=False, help_text="a part of the heading path, upper or lower case")
    filename = serializers.CharField(required=False, help_text="the whole name, upper or lower case")
    tags = serializers.ListField(
        child=serializers.UUIDField(),
        min_length=1,
        max_length=MAX_FILTER_TAGS,
        required=False,
        help_text="ids; a document with any of these tags is searched",
    )
    uploaded_after = serializers.DateTimeField(required=False, help_text="a date or a time, itself included")
    uploaded_before = serializers.DateTimeField(required=False, help_text="a date or a time, itself not included")


@extend_schema_field(FiltersRequest)
class FiltersField(serializers.JSONField):
    """Filters as they were sent."""


class VectorPart(serializers.Serializer[object]):
    rank = serializers.IntegerField()
    similarity = serializers.FloatField(help_text="cosine, -1 to 1")


class TextPart(serializers.Serializer[object]):
    rank = serializers.IntegerField()
    bm25 = serializers.FloatField(help_text="how well its words single it out; of a record, by their rarity and place")


class RowPart(serializers.Serializer[object]):
    rank = serializers.IntegerField()
    bm25 = serializers.FloatField(help_text="how well the words of this row, with its column heads, single it out")
    number = serializers.IntegerField(help_text="of the row among those of the passage's tables, from 0")


class PartsResponse(serializers.Serializer[object]):
    vector = VectorPart(allow_null=True)
    text = TextPart(allow_null=True)
    row = RowPart(allow_null=True, help_text="the row of a table that has most of the query's words")


class PassageResponse(serializers.Serializer[object]):
    chunk_id = serializers.UUIDField(help_text="of the best chunk, where several were merged")
    chunk_ids = serializers.ListField(child=serializers.UUIDField(), help_text="in reading order")
    document_id = serializers.UUIDField()
    filename = serializers.CharField()
    pages = serializers.ListField(child=serializers.IntegerField(), help_text="first and last page")
    headings = serializers.ListField(child=serializers.CharField(), help_text="heading path")
    start = serializers.IntegerField(help_text="offset into the parsed markdown, in characters")
    end = serializers.IntegerField()
    text = serializers.CharField()
    snippet_text = serializers.CharField(help_text="whole sentences, list items or a table's row, without markdown")
    snippet_html = serializers.CharField(help_text="the same as safe HTML, the sentence that answers best in <mark>")
    answer_span = serializers.ListField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="start and end of that sentence or row in the parsed markdown, in characters; null in nearest",
    )
    score = serializers.FloatField(help_text="of the fused ranks: compares the passages of one answer only")
    parts = PartsResponse(help_text="rank and score by each retriever; null where it did not return the passage")


class EmbedRequest(serializers.Serializer[object]):
    texts = serializers.ListField(
        child=StrictCharField(allow_blank=True, trim_whitespace=False), help_text="1 to 256, none empty"
    )


class EmbeddingsResponse(serializers.Serializer[object]):
    embeddings = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="in the order of the texts"
    )
    model = serializers.CharField()
    dim = serializers.IntegerField()
