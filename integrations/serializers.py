"""API serializer of records of connected systems."""

from rest_framework import serializers

from embeddings.serializers import PartsResponse


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
