"""API requests and responses of uploads and documents."""

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from accounts.strict_fields import StrictBooleanField, StrictCharField, StrictIntegerField, StrictUUIDField
from documents.models import Document, Tag
from documents.page_images import renderer


class NameField(StrictCharField):
    """Any text: ``validate_upload`` cleans the name; NUL is removed here."""

    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(data).replace("\0", "")


class UploadRequest(serializers.Serializer[object]):
    """MVP context §6; ``validate_upload`` checks the limits, each with its error code."""

    filename = NameField(trim_whitespace=False)
    bytes_len = StrictIntegerField(min_value=0)
    mime = StrictCharField(trim_whitespace=False)
    sha256 = StrictCharField(trim_whitespace=False)
    ocr = StrictBooleanField(default=False)


class UploadResponse(serializers.Serializer[object]):
    job_id = serializers.UUIDField()
    document_id = serializers.UUIDField()
    signed_url = serializers.URLField()
    upload_expires_at = serializers.DateTimeField(default_timezone=timezone.get_default_timezone())


class SavedResponse(serializers.Serializer[object]):
    """Savings in the payload of the document's newest job; zero before the job has planned."""

    passages = serializers.IntegerField(source="reused", default=0)
    tokens = serializers.IntegerField(source="tokens_saved", default=0)
    cents = serializers.FloatField(source="cents_saved", default=0.0)


class DocumentTagResponse(serializers.Serializer[object]):
    tag_id = serializers.UUIDField()
    name = serializers.CharField()
    color = serializers.ChoiceField(Tag.Color.choices)


class DocumentResponse(serializers.ModelSerializer[Document]):
    """Needs documents annotated with ``plan`` and ``tag_list``, as ``views.tenant_documents`` returns them."""

    tags = DocumentTagResponse(source="tag_list", many=True, read_only=True)
    saved = SavedResponse(source="plan", read_only=True)

    class Meta:
        model = Document
        fields = (
            "document_id", "filename", "mime", "bytes_len", "file_sha256", "parsed_sha256", "pages", "failed_pages",
            "doubtful_pages", "parser_name", "parser_version", "parse_fallback", "processing_status", "tags",
            "saved", "created_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields


class DocumentChanges(serializers.Serializer[object]):
    """``services`` validate name and tags, each with its error code."""

    filename = NameField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="a new name; nothing is bought for it"
    )
    tags = serializers.ListField(
        child=StrictUUIDField(), required=False, max_length=200, help_text="ids of all tags that it is to have"
    )


class TagRequest(serializers.Serializer[object]):
    name = NameField(allow_blank=True, trim_whitespace=False, help_text="unique without regard to upper and lower case")
    color = serializers.ChoiceField(Tag.Color.choices, default=Tag.Color.GRAY.value)


class TagChanges(serializers.Serializer[object]):
    name = NameField(required=False, allow_blank=True, trim_whitespace=False)
    color = serializers.ChoiceField(Tag.Color.choices, required=False)


class TagResponse(serializers.ModelSerializer[Tag]):
    class Meta:
        model = Tag
        fields = ("tag_id", "name", "color", "created_at")
        read_only_fields = fields


class LinkResponse(serializers.Serializer[object]):
    signed_url = serializers.URLField()
    expires_in = serializers.IntegerField(help_text="seconds")


class PageImageRequest(serializers.Serializer[object]):
    width = serializers.IntegerField(
        default=renderer.DEFAULT_WIDTH,
        min_value=renderer.MIN_WIDTH,
        max_value=renderer.MAX_WIDTH,
        help_text="pixels",
    )
