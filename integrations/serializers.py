"""What the API takes and gives for searches: of passages, and of connected systems' records."""

from __future__ import annotations

from django.conf import settings
from rest_framework import serializers

from embeddings.serializers import PartsAnswer, PassageAnswer, Unread
from tenancy.fields import Flag, Id, Text, Whole


class SearchRequest(serializers.Serializer[object]):
    query = Text(
        allow_blank=True,
        max_length=1_000_000,
        trim_whitespace=False,
        help_text='a question or words; "words in a row" must stand in a passage, -words must not',
    )
    k = Whole(default=10, help_text=f"how many at most, 1 to {settings.MAX_SEARCH_RESULTS}")
    mode = Text(default="hybrid", help_text="hybrid, vector or text")
    sources = serializers.ListField(
        child=Text(),
        required=False,
        allow_empty=False,
        max_length=20,
        help_text="documents (uploads, all that is searched without this), connected systems, clients",
    )
    document_ids = serializers.ListField(
        child=Id(), max_length=1000, required=False, help_text="of passages, as are filters and merge"
    )
    filters = Unread(required=False, allow_null=True)
    merge = Flag(default=False, help_text="join neighbouring passages of one section")


class RecordAnswer(serializers.Serializer[object]):
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
    parts = PartsAnswer(help_text="what each arm said; null where it did not name the record")
    updated_at = serializers.DateTimeField(help_text="at the provider, where it tells")


class SearchAnswer(serializers.Serializer[object]):
    passages = PassageAnswer(many=True)
    records = RecordAnswer(many=True, help_text="of connected systems; empty unless sources names one")
