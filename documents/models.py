"""Documents, their tags, pages read by OCR, pending deletions of objects, and parse requests to a vendor."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import OpClass
from django.db import models
from django.db.models import F
from django.db.models.functions import Left, Lower, Now
from django.utils.translation import gettext_lazy as _


class Document(models.Model):
    document_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField()
    filename = models.TextField()
    # By which a tenant's list is sorted and searched: a policy lets no index serve a condition on lower(). Shortened:
    # an index entry has a limit.
    sort_name = models.GeneratedField(
        expression=Lower(Left("filename", 200)), output_field=models.TextField(), db_persist=True
    )
    mime = models.TextField()
    bytes_len = models.BigIntegerField()
    file_sha256 = models.TextField()
    parsed_sha256 = models.TextField(null=True)
    raw_path = models.TextField()
    parsed_path = models.TextField(null=True)
    processing_status = models.TextField(null=True)
    ocr = models.BooleanField(db_default=False)
    pages = models.IntegerField(null=True)
    # Offset of each page in the parsed markdown, in characters; gives a chunk its pages.
    page_starts = ArrayField(models.IntegerField(), null=True)
    parser_name = models.TextField(null=True)
    parser_version = models.TextField(null=True)
    # Pages that could not be parsed although the rest of the document could.
    failed_pages = ArrayField(models.IntegerField(), null=True)
    # Pages whose parsed text may be in the wrong reading order, or is a part of it.
    doubtful_pages = ArrayField(models.IntegerField(), null=True)
    # The chunker whose chunks are shown and searched, as name@version; null until there are any.
    chunks_version = models.TextField(null=True)
    # Parsed locally because the vendor was unavailable (PARSE_FALLBACK).
    parse_fallback = models.BooleanField(db_default=False)
    # Imported by a connector and never declared by the tenant: deleted with the connector's file.
    imported = models.BooleanField(db_default=False)
    upload_expires_at = models.DateTimeField(null=True)
    stored_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "documents"
        default_permissions = ("view",)
        permissions = [("read_text", "Can read tenants' text, with a reason")]
        indexes = [
            # Staff's list, the newest first.
            models.Index(F("created_at").desc(), "document_id", name="ix_documents_created"),
            models.Index("user_id", name="ix_documents_user"),
            # Staff's search by a file's name or its beginning, in any case. Shortened: an index entry has a limit.
            models.Index(OpClass(Lower(Left("filename", 200)), "text_pattern_ops"), name="ix_documents_filename"),
            models.Index("user_id", F("created_at").desc(), "document_id", name="ix_documents_user_created"),
            # The tenant's list by name and by size.
            models.Index("user_id", "sort_name", "document_id", name="ix_documents_user_name"),
            models.Index("user_id", "bytes_len", "document_id", name="ix_documents_user_size"),
            # For each parse: has the tenant stored the same text already?
            models.Index("user_id", "parsed_sha256", name="ix_documents_user_parsed"),
            # For each deletion: which documents share the text?
            models.Index("user_id", "parsed_path", name="ix_documents_user_path"),
        ]
        constraints = [
            # Per tenant: across tenants it would tell one what another has.
            models.UniqueConstraint("user_id", "file_sha256", name="uq_user_filehash"),
        ]

    def __str__(self) -> str:
        return str(self.document_id)


class Tag(models.Model):
    """A tag of a tenant. ``key`` is the name without case, by which it is unique."""

    class Color(models.TextChoices):
        GRAY = "gray", _("Gray")
        RED = "red", _("Red")
        ORANGE = "orange", _("Orange")
        YELLOW = "yellow", _("Yellow")
        GREEN = "green", _("Green")
        TEAL = "teal", _("Teal")
        BLUE = "blue", _("Blue")
        PURPLE = "purple", _("Purple")
        PINK = "pink", _("Pink")

    tag_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    name = models.TextField()
    key = models.TextField()
    color = models.TextField(choices=Color.choices, db_default=Color.GRAY)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "tags"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint("user_id", "key", name="uq_tag_key"),
            models.CheckConstraint(
                condition=models.Q(
                    color__in=["gray", "red", "orange", "yellow", "green", "teal", "blue", "purple", "pink"]
                ),
                name="tag_color_known",
            ),
        ]

    def __str__(self) -> str:
        return str(self.tag_id)


class DocumentTag(models.Model):
    """A document has a tag of the same tenant."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="tag_rows", db_index=False)
    tag = models.ForeignKey(Tag, on_delete=models.CASCADE, related_name="+", db_index=False)
    user_id = models.UUIDField()

    class Meta:
        db_table = "document_tags"
        default_permissions = ()
        constraints = [models.UniqueConstraint("document", "tag", name="uq_document_tag")]
        # For lists and searches by tag.
        indexes = [models.Index("tag", "document", name="ix_document_tags_tag")]

    def __str__(self) -> str:
        return f"{self.document_id} {self.tag_id}"


class OcrPage(models.Model):
    """OCR text of one page, kept until the whole document is parsed: a worker that dies loses one batch, not all."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="ocr_pages", db_index=False)
    user_id = models.UUIDField()
    page = models.IntegerField()  # from 1
    parser_version = models.TextField()
    text = models.TextField(null=True)  # None: this page could not be read

    class Meta:
        db_table = "document_ocr_pages"
        default_permissions = ()
        constraints = [models.UniqueConstraint("document", "page", name="uq_ocr_page")]

    def __str__(self) -> str:
        return f"{self.document_id} {self.page}"


class StagedParse(models.Model):
    """A new parse of a searchable document (documents.replacement_parses); its chunks and vectors are being made."""

    document = models.OneToOneField(Document, primary_key=True, on_delete=models.CASCADE, related_name="+")
    user_id = models.UUIDField()
    parser_name = models.TextField()
    parser_version = models.TextField()
    text = models.TextField()
    sha256 = models.TextField()
    # The other fields of documents.parse_store.ParseResult.
    details = models.JSONField()
    # The text that is to be replaced: a worker may be killed when it has stored the new one and not committed.
    former_text = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "document_staged_parses"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.document_id)


class ObjectDeletion(models.Model):
    """An object in the store or a copy at a vendor that must be deleted, because its document was deleted."""

    deletion_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField(db_index=True)
    document_id = models.UUIDField()
    path = models.TextField()
    # Past the last stage of any worker that may still hold the deleted job and write the object once more.
    drop_after = models.DateTimeField(db_index=True)
    # A failed deletion is tried again later, behind those that were not tried yet.
    try_after = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "object_deletions"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint("path", name="uq_object_deletion_path")]

    def __str__(self) -> str:
        return str(self.deletion_id)


class ParseRequest(models.Model):
    """A parse requested from a vendor. Written before the call, so that after a crash it is found and not bought again.

    ``round`` counts the purchases: retrying a parse that failed at the vendor buys the next one.
    """

    class State(models.TextChoices):
        PLANNED = "planned"
        SUBMITTED = "submitted"
        COLLECTED = "collected"
        FAILED = "failed"

    parse_id = models.UUIDField(primary_key=True)
    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="parse_requests", db_index=False)
    user_id = models.UUIDField()
    job_id = models.UUIDField()
    parser_name = models.TextField()
    parser_version = models.TextField()
    state = models.TextField(choices=State.choices, db_default=State.PLANNED)
    round = models.IntegerField(db_default=1)
    purchase_id = models.UUIDField(null=True)
    file_id = models.TextField(null=True)
    vendor_job_id = models.TextField(null=True, unique=True)
    # Time of a signed callback: the poller then polls at once.
    called_back_at = models.DateTimeField(null=True)
    planned_at = models.DateTimeField(db_default=Now())
    submitted_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)

    class Meta:
        db_table = "parse_requests"
        default_permissions = ("view",)
        indexes = [
            models.Index("document", name="ix_parse_requests_document"),
            # Staff's lists, the newest first: all, and by state.
            models.Index(F("planned_at").desc(), "parse_id", name="ix_parse_requests_planned"),
            models.Index("state", F("planned_at").desc(), "parse_id", name="ix_parse_requests_state"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["planned", "submitted", "collected", "failed"]),
                name="parse_request_state_known",
            ),
        ]

    def __str__(self) -> str:
        return str(self.parse_id)
