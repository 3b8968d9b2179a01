"""Request and response serializers of ``POST /search``."""

from django.conf import settings
from rest_framework import serializers

from accounts.strict_fields import StrictBooleanField, StrictCharField, StrictIntegerField, StrictUUIDField
from embeddings.serializers import FiltersField, PassageResponse
from integrations.serializers import RecordResponse
from statutes.serializers import LawResponse


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
    filters = FiltersField(required=False, allow_null=True)  # of documents and statutes, as is merge
    merge = StrictBooleanField(default=False, help_text="join neighbouring passages of one section")


class SearchResponse(serializers.Serializer[object]):
    passages = PassageResponse(many=True)
    records = RecordResponse(many=True, help_text="of connected systems; empty unless sources names one")
    laws = LawResponse(many=True, help_text="passages of statutes; empty unless sources has statutes")
