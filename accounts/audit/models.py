"""Audit entries: what staff did and read, and why. A trigger rejects changes."""

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Q
from django.db.models.fields.json import KT
from django.db.models.functions import Now

_RETRIES = Q(action__in=["jobs.retry", "jobs.retry_from"])


class AuditEntry(models.Model):
    """One action of a member of staff: ids, codes and counts, no tenant text."""

    entry_id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    at = models.DateTimeField(db_default=Now())
    # Null: the command line. No foreign keys: an entry outlives its actor and its object.
    actor_id = models.UUIDField(null=True)
    actor = models.TextField()  # the name at that time
    action = models.TextField()  # "jobs.retry", "documents.read_text"
    reason = models.TextField()
    object_type = models.TextField()  # "upload_job"
    object_id = models.TextField()
    tenant_id = models.UUIDField(null=True)  # whose row it was
    details = models.JSONField(db_default={}, default=dict)

    class Meta:
        db_table = "audit_entries"
        default_permissions = ("view",)
        permissions = [("export_auditentry", "Can export the audit log, with a reason")]
        verbose_name_plural = "audit entries"
        # Each in the order of its list, the newest first; entries of one transaction are ordered by id.
        indexes = [
            models.Index(F("at").desc(), "entry_id", name="ix_audit_at"),
            models.Index("action", F("at").desc(), "entry_id", name="ix_audit_action"),
            models.Index("object_id", F("at").desc(), "entry_id", name="ix_audit_object"),
            models.Index("actor_id", F("at").desc(), "entry_id", name="ix_audit_actor"),
            models.Index("tenant_id", F("at").desc(), "entry_id", name="ix_audit_tenant"),
            # What helped against an error code: console.remedies.
            models.Index(KT("details__code"), F("at").desc(), name="ix_audit_retries", condition=_RETRIES),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_id}"
