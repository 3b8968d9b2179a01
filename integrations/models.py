"""Models of connectors: sources, syncs, records, clients, the token vault and archived messages (spec 002)."""

import uuid

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from pgvector.django import VectorField

from embeddings.embedders.registry import DIMENSIONS

_EMBEDDED = ("embedding", "embedding_model", "embedding_text_sha256")


def _filled_together() -> Q:
    return Q(**{f"{name}__isnull": True for name in _EMBEDDED}) | Q(**{f"{name}__isnull": False for name in _EMBEDDED})


def _known(field: str, choices: list[str], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(**{f"{field}__in": choices}), name=name)


class Provider(models.TextChoices):
    HUBSPOT = "hubspot", "HubSpot"
    GOOGLE_DRIVE = "google_drive", "Google Drive"
    QUICKBOOKS = "quickbooks", "QuickBooks"
    GMAIL = "gmail", "Gmail"


class ConnectedSource(models.Model):
    """A tenant's account at a provider. Its tokens are in the vault; the source has only the ids of their rows."""

    class Status(models.TextChoices):
        ACTIVE = "active"
        ERROR = "error"  # nothing is fetched until the tenant reconnects
        DISCONNECTED = "disconnected"  # excluded from search; its rows are being deleted

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    provider = models.TextField(choices=Provider.choices)
    # The provider's own id of the account: HubSpot's hub id, QuickBooks' realm id. Never an address.
    account = models.TextField(db_default="", default="")
    status = models.TextField(choices=Status.choices, db_default=Status.ACTIVE, default=Status.ACTIVE)
    # A code, never a provider's prose: that may hold personal data (spec 002, decision 5).
    status_message = models.TextField(null=True)
    transport = models.TextField(db_default="rest", default="rest")
    capabilities = models.JSONField(db_default={}, default=dict)
    scopes = models.TextField(db_default="", default="")
    access_token_vault_id = models.UUIDField(null=True)
    refresh_token_vault_id = models.UUIDField(null=True)
    token_expires_at = models.DateTimeField(null=True)
    refresh_lease = models.UUIDField(null=True)  # of the worker that refreshes the tokens,
    refresh_lease_until = models.DateTimeField(null=True)  # and until when no other worker does
    # By stream, where the next delta begins. Written in the transaction that ends a sync.
    cursor = models.JSONField(db_default={}, default=dict)
    last_synced_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "connected_sources"
        default_permissions = ("view",)
        verbose_name = "source"
        indexes = [
            models.Index(F("created_at").desc(), "id", name="ix_sources_created"),
            models.Index(fields=["status", "-created_at", "id"], name="ix_sources_status", include=["provider"]),
        ]
        constraints = [
            models.UniqueConstraint("user_id", "provider", "account", name="uq_source_account"),
            _known("provider", Provider.values, "source_provider_known"),
            _known("status", ["active", "error", "disconnected"], "source_status_known"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.id}"


class IngestionJob(models.Model):
    """One sync of a source: a chain of messages, one page each."""

    class Kind(models.TextChoices):
        FULL = "full_sync"
        DELTA = "delta_sync"
        FORGET = "forget"  # purges a disconnected source

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        COMPLETED = "completed"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    source = models.ForeignKey(ConnectedSource, on_delete=models.CASCADE, related_name="jobs", db_index=False)
    kind = models.TextField(choices=Kind.choices)
    status = models.TextField(choices=Status.choices, db_default=Status.QUEUED, default=Status.QUEUED)
    correlation_id = models.UUIDField(default=uuid.uuid4)
    # The current page: a message of an earlier page is obsolete.
    page = models.IntegerField(db_default=0, default=0)
    # By stream, the cursor when the sync began: the next delta's, once the sync has completed.
    cursor = models.JSONField(db_default={}, default=dict)
    items_seen = models.IntegerField(db_default=0, default=0)
    items_written = models.IntegerField(db_default=0, default=0)
    items_unchanged = models.IntegerField(db_default=0, default=0)
    items_embedded = models.IntegerField(db_default=0, default=0)
    items_deleted = models.IntegerField(db_default=0, default=0)
    items_failed = models.IntegerField(db_default=0, default=0)
    error_message = models.TextField(null=True)  # a code
    error_details = models.JSONField(db_default=[], default=list)  # [{"external_id", "code", "at"}], the last 50
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "ingestion_jobs"
        default_permissions = ("view",)
        verbose_name = "sync"
        indexes = [
            models.Index("source", F("created_at").desc(), name="ix_ingestion_jobs_source"),
            models.Index(F("created_at").desc(), "id", name="ix_ingestion_jobs_created"),
            # Read by metrics: each sync that has ended is counted once.
            models.Index("finished_at", name="ix_ingestion_jobs_finished", condition=Q(finished_at__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(
                "source", name="uq_ingestion_job_active", condition=Q(status__in=["queued", "running"])
            ),
            _known("status", ["queued", "running", "completed", "failed"], "ingestion_status_known"),
            _known("kind", ["full_sync", "delta_sync", "forget"], "ingestion_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class SourceDocument(models.Model):
    """A record as its provider returned it, and its searchable text."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    user_id = models.UUIDField()
    source = models.ForeignKey(ConnectedSource, on_delete=models.CASCADE, related_name="documents", db_index=False)
    # "contact:512": a provider's ids are unique within a kind of object only.
    external_id = models.TextField()
    document_type = models.TextField()  # hubspot.contact
    title = models.TextField(db_default="", default="")
    url = models.TextField(null=True)
    text = models.TextField(db_default="", default="")  # normalized; embedded and searched
    raw_payload = models.JSONField()
    # The record whose client this one counts for, by its external_id: a deal's company, an invoice's customer.
    parent_external_id = models.TextField(null=True)
    # The values that roll up to the client.
    facts = models.JSONField(db_default={}, default=dict)
    # A PDF goes through the upload pipeline; this is its document there.
    upload_document_id = models.UUIDField(null=True)
    source_created_at = models.DateTimeField(null=True)
    source_updated_at = models.DateTimeField(null=True)
    # Deleted at the provider: excluded from search, kept so that an older page cannot bring it back.
    deleted_at = models.DateTimeField(null=True)
    # The last sync that saw it: records that a complete one has not seen are gone.
    seen_in = models.UUIDField(null=True)
    embedding = VectorField(dimensions=DIMENSIONS, null=True)
    embedding_model = models.TextField(null=True)  # model@version
    embedding_text_sha256 = models.BinaryField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "source_documents"
        default_permissions = ()
        indexes = [
            models.Index("user_id", "source", name="ix_source_documents_user"),
            models.Index(
                "source",
                "parent_external_id",
                name="ix_source_documents_parent",
                condition=Q(parent_external_id__isnull=False),
            ),
            models.Index(
                "upload_document_id", name="ix_source_documents_upload", condition=Q(upload_document_id__isnull=False)
            ),
            # And source_documents_embedding_text_sha256_idx, whose name of spec 002 is too long for Django.
        ]
        constraints = [
            models.UniqueConstraint("source", "external_id", name="uq_source_document"),
            models.CheckConstraint(condition=_filled_together(), name="source_document_embedded"),
        ]

    def __str__(self) -> str:
        return f"{self.document_type} {self.id}"


class OrphanCandidate(models.Model):
    """An imported document that may be orphaned, until ``records.orphaned_imports`` has checked it."""

    id = models.BigAutoField(primary_key=True)
    document_id = models.UUIDField(db_index=True)
    source_id = models.UUIDField(db_index=True)  # of the record, by external_id: gone, or yet to be written
    external_id = models.TextField()
    job_id = models.UUIDField(null=True)  # as long as this sync goes on, the document is not deleted
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "orphan_candidates"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.document_id)


class ClientIntelligence(models.Model):
    """A tenant's client. Rows without a source are the tenant's own, and no sync changes them."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    user_id = models.UUIDField()
    client_name = models.TextField()
    industry = models.TextField(null=True)
    summary = models.TextField(null=True)
    key_facts = models.JSONField(db_default={}, default=dict)
    source = models.ForeignKey(ConnectedSource, on_delete=models.CASCADE, null=True, related_name="+", db_index=False)
    external_id = models.TextField(null=True)
    text = models.TextField(db_default="", default="")  # embedded and searched
    source_updated_at = models.DateTimeField(null=True)
    embedding = VectorField(dimensions=DIMENSIONS, null=True)
    embedding_model = models.TextField(null=True)
    embedding_text_sha256 = models.BinaryField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "client_intelligence"
        default_permissions = ()
        verbose_name_plural = "client intelligence"
        indexes = [models.Index("user_id", "source", name="ix_client_intelligence_user")]
        constraints = [
            models.UniqueConstraint(
                "source",
                "external_id",
                name="uq_client_intelligence",
                condition=Q(source__isnull=False, external_id__isnull=False),
            ),
            models.CheckConstraint(condition=_filled_together(), name="client_intelligence_embedded"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class VaultToken(models.Model):
    """An encrypted token. ``secret`` contains its own row's id too, so that no two rows can be swapped."""

    class Kind(models.TextChoices):
        ACCESS = "access"
        REFRESH = "refresh"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    source_id = models.UUIDField()
    kind = models.TextField(choices=Kind.choices)
    secret = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now())
    # Replaced by another: kept a while, as a crash may have left it the only one that the provider accepts.
    orphaned_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "vault_tokens"
        default_permissions = ()
        indexes = [
            models.Index("source_id", name="ix_vault_tokens_source"),
            models.Index("orphaned_at", name="ix_vault_tokens_orphaned", condition=Q(orphaned_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class ArchivedMessage(models.Model):
    """An archived message in pgmq's own table, which pgmq creates. ``message`` is a ``sync.pgmq.Body``."""

    msg_id = models.BigIntegerField(primary_key=True)
    read_ct = models.IntegerField()
    enqueued_at = models.DateTimeField()
    archived_at = models.DateTimeField()
    vt = models.DateTimeField()
    message = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = '"pgmq"."a_ingestion_queue"'  # the quotes are the only way to name a schema
        default_permissions = ("view",)
        verbose_name = "given-up page"
        permissions = [("replay_archivedmessage", "Can put a page back into the queue")]

    def __str__(self) -> str:
        return str(self.msg_id)
