"""Request and response serializers of ``POST /search``."""

from django.conf import settings
from rest_framework import serializers

from accounts.strict_fields import StrictBooleanField, StrictCharField, StrictIntegerField, StrictUUIDField
from embeddings.serializers import FiltersField, PartsResponse, PassageResponse
from statutes.models import Law

MAX_BODY_CHARS = 1_000_000  # of a question: beyond it is no question at all, below too long


class ScopeRequest(serializers.Serializer[object]):
    """How and where to search."""

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
    filters = FiltersField(required=False, allow_null=True)  # of documents and statutes, as is merge


class SearchRequest(ScopeRequest):
    query = StrictCharField(
        allow_blank=True,
        max_length=MAX_BODY_CHARS,
        trim_whitespace=False,
        help_text='a question or words; "words in a row" must stand in a passage, -words must not',
    )
    k = StrictIntegerField(default=10, help_text=f"how many at most, 1 to {settings.MAX_SEARCH_RESULTS}")
    merge = StrictBooleanField(default=False, help_text="join neighbouring passages of one section")


class RecordResponse(serializers.Serializer[object]):
    record_id = serializers.UUIDField()
    # REST framework's serializers have an attribute of that name, which a declared field does not touch.
    source = serializers.CharField(help_text="the connected system, or clients")  # type: ignore[assignment]
    source_id = serializers.UUIDField(allow_null=True, help_text="null: the tenant's own entry")
    document_type = serializers.CharField(help_text="hubspot.company; client")
    external_id = serializers.CharField(allow_null=True, help_text="kind and id at the provider: company:512")
    title = serializers.CharField()
    url = serializers.CharField(allow_null=True, help_text="where the provider shows it")
    client_name = serializers.CharField(allow_null=True, help_text="of clients only")
    text = serializers.CharField(help_text="its beginning, 4,000 characters at most")
    snippet = serializers.CharField(help_text="HTML: about 40 words, what was asked for in <mark>")
    score = serializers.FloatField(help_text="of the fused ranks: compares the records of one answer only")
    parts = PartsResponse(help_text="what each arm said; null where it did not name the record")
    updated_at = serializers.DateTimeField(help_text="at the provider, where it tells")


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
    snippet_text = serializers.CharField(help_text="whole sentences or list items, without markdown")
    snippet_html = serializers.CharField(help_text="the same as safe HTML, the sentence that answers best in <mark>")
    answer_span = serializers.ListField(
        child=serializers.IntegerField(), allow_null=True, help_text="of that sentence, in the normalized text"
    )
    score = serializers.FloatField(help_text="of the fused ranks: compares the results of one response only")
    parts = PartsResponse(help_text="rank and score by retriever; null where it did not find the passage")


class SearchResponse(serializers.Serializer[object]):
    passages = PassageResponse(many=True)
    records = RecordResponse(many=True, help_text="of connected systems; empty unless sources names one")
    laws = LawResponse(many=True, help_text="passages of statutes; empty unless sources has statutes")
    nearest = PassageResponse(
        many=True, help_text="what came closest where no passage answers the query; of hybrid searches only"
    )
