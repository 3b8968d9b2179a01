"""Response serializers of statute passages, as ``POST /search`` returns them."""

from rest_framework import serializers

from embeddings.serializers import PartsResponse
from statutes.models import Law


class ArticleResponse(serializers.Serializer[object]):
    id = serializers.CharField(help_text="its key within the statute: 12-bis")
    # REST framework's serializers have an attribute of that name, which a declared field does not touch.
    label = serializers.CharField(help_text="as in the source: Artículo 12 Bis")  # type: ignore[assignment]


class LawResponse(serializers.Serializer[object]):
    chunk_id = serializers.UUIDField(help_text="of the best chunk, where several were merged")
    chunk_ids = serializers.ListField(child=serializers.UUIDField(), help_text="in reading order")
    law_id = serializers.CharField()
    title = serializers.CharField(help_text="of the statute")
    version = serializers.CharField(help_text="of the statute: 2024-01")
    status = serializers.ChoiceField([Law.Status.EMBEDDED.value, Law.Status.PARTIAL_FAILED.value])
    language = serializers.CharField(help_text="es or en")
    article = serializers.CharField(allow_null=True, help_text="label; null: no article, or several that match alike")
    articles = ArticleResponse(many=True, help_text="all of the passage, in reading order")
    citation = serializers.CharField(help_text="Ley de Ejemplo (2024-01), Artículo 12 Bis, p. 3")
    headings = serializers.ListField(child=serializers.CharField(), help_text="heading path")
    pages = serializers.ListField(
        child=serializers.IntegerField(), help_text="first and last page; none where the file has no pages"
    )
    start = serializers.IntegerField(help_text="offset into the normalized text, in characters")
    end = serializers.IntegerField()
    text = serializers.CharField()
    snippet = serializers.CharField(help_text="HTML: about 40 words, with matches in <mark>")
    score = serializers.FloatField(help_text="of the fused ranks: compares the results of one response only")
    parts = PartsResponse(help_text="rank and score by retriever; null where it did not find the passage")
