"""Models of statutes (spec 004): laws, their versions, and SQS consumers."""

from datetime import timedelta

from django.db import models
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now


class Law(models.Model):
    """A law and its live version. ``law_id`` is the message's document_id, a text as in the spec."""

    class Status(models.TextChoices):
        PROCESSING = "processing"
        NORMALIZED = "normalized"
        EMBEDDED = "embedded"
        PARTIAL_FAILED = "partial_failed"
        FAILED = "failed"

    law_id = models.TextField(primary_key=True)
    version = models.TextField()  # the live one
    status = models.TextField(choices=Status.choices)
    title = models.TextField(db_default="", default="")
    language = models.TextField(db_default="", default="")
    chunk_count = models.IntegerField(db_default=0, default=0)
    document_id = models.UUIDField(null=True)
    uploader_id = models.TextField(db_default="", default="")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "laws"
        verbose_name = "statute"
        default_permissions = ("view",)
        permissions = [("withdraw_law", "Can withdraw a statute")]
        indexes = [
            models.Index(F("updated_at").desc(), "law_id", name="ix_laws_updated"),
            models.Index("status", F("updated_at").desc(), "law_id", name="ix_laws_status"),
        ]

    def __str__(self) -> str:
        return self.law_id


class LawVersion(models.Model):
    """A version of a law; its row is the processing lock (spec 004 §5.2). Reprocessed while live, it has two."""

    document_id = models.UUIDField(primary_key=True)  # of the corpus' document: one of document_ids.document_ids
    law_id = models.TextField()
    version = models.TextField()
    status = models.TextField(choices=Law.Status.choices, db_default=Law.Status.PROCESSING)
    job_id = models.UUIDField(null=True)
    bucket = models.TextField()
    raw_key = models.TextField()
    raw_sha256 = models.TextField(null=True)
    format = models.TextField(null=True)  # pdf, docx, xml
    uploader_id = models.TextField(db_default="", default="")
    priority = models.TextField(db_default="normal", default="normal")
    ingest_timestamp = models.DateTimeField(null=True)
    canonical = models.JSONField(null=True)  # the canonical JSON
    # Ids of passages that the embedder refuses; the others are kept (spec 004 §5.1, partial failures).
    refused = models.JSONField(db_default=[], default=list)
    reprocessed = models.IntegerField(db_default=0, default=0)  # how often missing passages were requested
    manifest_sha256 = models.TextField(null=True)  # of the uploaded manifest, the last of the artifacts
    error_code = models.TextField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "law_versions"
        verbose_name = "statute version"
        default_permissions = ("view",)
        permissions = [("reprocess_lawversion", "Can reprocess a version of a statute")]
        indexes = [
            models.Index(F("created_at").desc(), "document_id", name="ix_law_versions_created"),
            models.Index("status", F("created_at").desc(), "document_id", name="ix_law_versions_status"),
            # Versions that wait for their download: queries.MORE_URGENT looks them up by priority.
            models.Index(
                "priority",
                name="ix_law_versions_urgent",
                condition=Q(status__in=["processing", "failed"], job_id__isnull=False),
            ),
            models.Index(
                "error_code",
                F("created_at").desc(),
                "document_id",
                name="ix_law_versions_error",
                condition=Q(error_code__isnull=False),
            ),
            models.Index("law_id", "version", name="ix_law_versions_law"),
        ]

    def __str__(self) -> str:
        return f"{self.law_id} {self.version}"


class Consumer(models.Model):
    """A process that consumes the queue, and its status (spec 004 §1)."""

    class State(models.TextChoices):
        BOOT = "boot"
        INIT = "init"
        IDLE = "idle"
        PROCESSING = "processing"
        WAIT = "wait"
        SHUTDOWN = "shutdown"

    name = models.TextField(primary_key=True)  # host:pid
    state = models.TextField(choices=State.choices)
    job_id = models.UUIDField(null=True)
    received = models.IntegerField(db_default=0)
    ended = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    started_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "sqs_consumers"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["boot", "init", "idle", "processing", "wait", "shutdown"]),
                name="consumer_state_known",
            )
        ]

    def __str__(self) -> str:
        return self.name


SILENT = timedelta(seconds=60)  # three long polls, during which a consumer does not write
ALIVE = Q(seen_at__gt=Now() - SILENT) & ~Q(state=Consumer.State.SHUTDOWN)


def laws_with_error_codes() -> QuerySet[Law]:
    """Return the laws annotated with ``error_code``, that of the latest version: None where it has not failed."""
    latest = LawVersion.objects.filter(law_id=OuterRef("law_id")).order_by("-created_at")
    return Law.objects.annotate(error_code=Subquery(latest.values("error_code")[:1]))
