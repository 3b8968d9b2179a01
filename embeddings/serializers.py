"""What the API takes and gives for passages and searches."""

from __future__ import annotations

from rest_framework import serializers

from embeddings.models import DocumentChunk


class ChunkAnswer(serializers.ModelSerializer[DocumentChunk]):
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
        )
        read_only_fields = fields


class SearchRequest(serializers.Serializer[object]):
    query = serializers.CharField(allow_blank=True, max_length=1_000_000, trim_whitespace=False)
    k = serializers.IntegerField(default=10)
    document_ids = serializers.ListField(child=serializers.UUIDField(), max_length=1000, required=False)


class PassageAnswer(serializers.Serializer[object]):
    chunk_id = serializers.UUIDField()
    document_id = serializers.UUIDField()
    filename = serializers.CharField()
    text = serializers.CharField()
    score = serializers.FloatField(help_text="cosine similarity, -1 to 1")
    pages = serializers.ListField(child=serializers.IntegerField(), help_text="first and last page")
    headings = serializers.ListField(child=serializers.CharField(), help_text="heading path")
    start = serializers.IntegerField(help_text="offset into the parsed markdown, in characters")
    end = serializers.IntegerField()


class SearchAnswer(serializers.Serializer[object]):
    passages = PassageAnswer(many=True)


class EmbedRequest(serializers.Serializer[object]):
    texts = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False), help_text="1 to 256, none empty"
    )


class EmbedAnswer(serializers.Serializer[object]):
    embeddings = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="in the order of the texts"
    )
    model = serializers.CharField()
    dim = serializers.IntegerField()
