"""Import runs, imported documents by their old id, and the system that each imported tenant uses."""

from uuid import uuid4

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class ImportRun(models.Model):
    """One import. A run that was killed stays ``running``; the next import of the same mode continues it."""

    class Mode(models.TextChoices):
        USERS = "users"
        REINGEST = "reingest"
        ADOPT = "adopt"

    class State(models.TextChoices):
        RUNNING = "running"
        FINISHED = "finished"
        ROLLED_BACK = "rolled_back"

    run_id = models.UUIDField(primary_key=True, default=uuid4)
    mode = models.TextField(choices=Mode.choices)
    state = models.TextField(choices=State.choices, db_default=State.RUNNING)
    backup = models.TextField()  # its name, as the operator gave it
    counts = models.JSONField(db_default={}, default=dict)
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "legacy_runs"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(condition=Q(mode__in=["users", "reingest", "adopt"]), name="legacy_run_mode_known"),
            models.CheckConstraint(
                condition=Q(state__in=["running", "finished", "rolled_back"]), name="legacy_run_state_known"
            ),
        ]

    def __str__(self) -> str:
        return str(self.run_id)


class LegacyTenant(models.Model):
    """A user of the old system. ``created``: the run made the user here."""

    class System(models.TextChoices):
        OLD = "old"
        BOTH = "both"
        NEW = "new"

    user_id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(ImportRun, on_delete=models.PROTECT, related_name="tenants")
    created = models.BooleanField()
    system = models.TextField(choices=System.choices, db_default=System.OLD)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "legacy_tenants"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(condition=Q(system__in=["old", "both", "new"]), name="legacy_tenant_system_known")
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.system}"


class LegacyDocument(models.Model):
    """An old document and its fate. ``fingerprint`` tells whether its row or its file has changed since."""

    class State(models.TextChoices):
        IMPORTED = "imported"
        MERGED = "merged"  # into a document with the same bytes
        REFUSED = "refused"

    old_id = models.TextField(primary_key=True)
    user_id = models.UUIDField(null=True)  # null: the old row names no user
    run = models.ForeignKey(ImportRun, on_delete=models.PROTECT, related_name="documents")
    mode = models.TextField(choices=ImportRun.Mode.choices)
    state = models.TextField(choices=State.choices)
    code = models.TextField(null=True)  # why it was refused, or reingested instead of adopted
    file_sha256 = models.TextField(null=True)
    document_id = models.UUIDField(null=True)
    job_id = models.UUIDField(null=True)  # of the run; null for a merged document
    fingerprint = models.TextField()
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "legacy_documents"
        default_permissions = ("view",)
        indexes = [
            models.Index("user_id", name="ix_legacy_documents_user"),
            models.Index("document_id", name="ix_legacy_documents_document"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(mode__in=["reingest", "adopt"]), name="legacy_document_mode_known"),
            models.CheckConstraint(
                condition=Q(state="refused", code__isnull=False, document_id__isnull=True)
                | Q(state__in=["imported", "merged"], document_id__isnull=False, file_sha256__isnull=False),
                name="legacy_document_state_whole",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.old_id} {self.state}"
