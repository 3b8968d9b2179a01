"""What the API takes and gives for searches: of passages, of connected systems' records, of laws."""

from __future__ import annotations

from django.conf import settings
from rest_framework import serializers

from accounts.strict_json import StrictBooleanField, StrictCharField, StrictIntegerField, StrictUUIDField
from embeddings.serializers import FiltersField, PartsAnswer, PassageAnswer
from integrations.serializers import RecordAnswer
from statutes.models import Law


class SearchRequest(serializers.Serializer[object]):
    query = StrictCharField(
        allow_blank=True,
        max_length=1_000_000,
        trim_whitespace=False,
        help_text='a question or words; "words in a row" must stand in a passage, -words must not',
    )
    k = StrictIntegerField(default=10, help_text=f"how many at most, 1 to {settings.MAX_SEARCH_RESULTS}")
    mode = StrictCharField(default="hybrid", help_text="hybrid, vector or text")
    sources = serializers.ListField(
        child=StrictCharField(),
        required=False,
        allow_empty=False,
        max_length=20,
        help_text="documents (uploads, all that is searched without this), connected systems, clients, statutes",
    )
    document_ids = serializers.ListField(
        child=StrictUUIDField(), max_length=1000, required=False, help_text="of uploads: narrows their passages"
    )
    law_ids = serializers.ListField(
        child=StrictCharField(), max_length=1000, required=False, help_text="of statutes: narrows their passages"
    )
    filters = FiltersField(required=False, allow_null=True)  # of both, as is merge
    merge = StrictBooleanField(default=False, help_text="join neighbouring passages of one section")


class ArticleAnswer(serializers.Serializer[object]):
    id = serializers.CharField(help_text="its key within the law: 12-bis")
    # REST framework's serializers have an attribute of that name, which a declared field does not touch.
    label = serializers.CharField(help_text="as it stands there: Artículo 12 Bis")  # type: ignore[assignment]


class LawAnswer(serializers.Serializer[object]):
    chunk_id = serializers.UUIDField(help_text="of the best chunk, where several were merged")
    chunk_ids = serializers.ListField(child=serializers.UUIDField(), help_text="in reading order")
    law_id = serializers.CharField()
    title = serializers.CharField(help_text="of the law")
    version = serializers.CharField(help_text="of the law: 2024-01")
    status = serializers.ChoiceField([Law.Status.EMBEDDED.value, Law.Status.PARTIAL_FAILED.value])
    language = serializers.CharField(help_text="es or en")
    article = serializers.CharField(
        allow_null=True, help_text="label; null: in no article, or in several of which none stands out"
    )
    articles = ArticleAnswer(many=True, help_text="all that stand in the passage, in reading order")
    citation = serializers.CharField(help_text="Ley de Ejemplo (2024-01), Artículo 12 Bis, p. 3")
    headings = serializers.ListField(child=serializers.CharField(), help_text="heading path")
    pages = serializers.ListField(
        child=serializers.IntegerField(), help_text="first and last page; none where the file has no pages"
    )
    start = serializers.IntegerField(help_text="offset into the normalized law, in characters")
    end = serializers.IntegerField()
    text = serializers.CharField()
    snippet = serializers.CharField(help_text="HTML: about 40 words, what was asked for in <mark>")
    score = serializers.FloatField(help_text="of the fused ranks: compares the laws of one answer only")
    parts = PartsAnswer(help_text="what each arm said; null where it did not name the passage")


class SearchAnswer(serializers.Serializer[object]):
    passages = PassageAnswer(many=True)
    records = RecordAnswer(many=True, help_text="of connected systems; empty unless sources names one")
    laws = LawAnswer(many=True, help_text="passages of laws; empty unless sources has statutes")
