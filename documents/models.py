"""What a tenant owns: documents, and the objects still to be removed for those that were deleted."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F
from django.db.models.functions import Now


class Document(models.Model):
    document_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField()
    filename = models.TextField()
    mime = models.TextField()
    bytes_len = models.BigIntegerField()
    file_sha256 = models.TextField()
    parsed_sha256 = models.TextField(null=True)
    raw_path = models.TextField()
    parsed_path = models.TextField(null=True)
    processing_status = models.TextField(null=True)
    ocr = models.BooleanField(db_default=False)
    pages = models.IntegerField(null=True)
    # Where each page begins in the parsed markdown, in characters: how a chunk knows its pages.
    page_starts = ArrayField(models.IntegerField(), null=True)
    parser_name = models.TextField(null=True)
    parser_version = models.TextField(null=True)
    # Pages that the parser gave up on though the rest of the document went well.
    failed_pages = ArrayField(models.IntegerField(), null=True)
    # Which chunker's passages are shown and found, as name@version; null until there are any.
    chunks_version = models.TextField(null=True)
    # Parsed here because the vendor was away (PARSE_FALLBACK).
    parse_fallback = models.BooleanField(db_default=False)
    # Made by a connector of a file that it found, and never declared by the tenant: it goes when that file goes.
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
            models.Index("user_id", F("created_at").desc(), "document_id", name="ix_documents_user_created"),
            # Read at each parse: does the tenant have the same text already?
            models.Index("user_id", "parsed_sha256", name="ix_documents_user_parsed"),
            # And who shares a document's text?
            models.Index("user_id", "parsed_path", name="ix_documents_user_path"),
        ]
        constraints = [
            # Per tenant: across tenants it would tell one what another has.
            models.UniqueConstraint("user_id", "file_sha256", name="uq_user_filehash"),
        ]

    def __str__(self) -> str:
        return str(self.document_id)


class ScannedPage(models.Model):
    """What OCR read on one page, until the whole document is parsed: a worker that dies loses a slice, not all."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="scanned_pages", db_index=False)
    user_id = models.UUIDField()
    page = models.IntegerField()  # from 1
    parser_version = models.TextField()
    text = models.TextField(null=True)  # None: this page could not be read

    class Meta:
        db_table = "document_scanned_pages"
        default_permissions = ()
        constraints = [models.UniqueConstraint("document", "page", name="uq_scanned_page")]

    def __str__(self) -> str:
        return f"{self.document_id} {self.page}"


class Removal(models.Model):
    """What is to go of a deleted document, here or at a vendor. Written with the deletion, dropped once it is gone."""

    removal_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    document_id = models.UUIDField()
    path = models.TextField()
    # Past the last stage of any worker that may still hold the deleted job and write the object once more.
    drop_after = models.DateTimeField(db_index=True)
    # What cannot go now is tried again later, behind what was not tried yet.
    try_after = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "object_removals"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint("path", name="uq_removal_path")]

    def __str__(self) -> str:
        return str(self.removal_id)


class ParseRequest(models.Model):
    """A parse that is asked of a vendor: written before it is asked, so that a crash finds it again and buys no other.

    ``round`` counts the purchases: a person who retries a parse that the vendor failed buys the next one.
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
    # A signed callback has come: look at once, whatever the poller's cadence says.
    called_back_at = models.DateTimeField(null=True)
    planned_at = models.DateTimeField(db_default=Now())
    submitted_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)

    class Meta:
        db_table = "parse_requests"
        default_permissions = ("view",)
        indexes = [
            models.Index("document", name="ix_parse_requests_document"),
            # Staff's lists, the newest first: all, and those that are out.
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
