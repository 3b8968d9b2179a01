"""Models of the outbox: messages to be sent after a commit, and tenants' webhook endpoints."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

EVENTS = ("document.completed", "document.failed", "sync.failed")


class Message(models.Model):
    """A message of any kind. Its sender is the entry of ``settings.OUTBOX_SENDERS`` for ``kind``.

    ``target_id`` is the receiver: one message at a time is sent to it. No foreign key: a receiver that is deleted at
    this moment must not fail the transaction that decides.
    """

    class State(models.TextChoices):
        QUEUED = "queued"
        DELIVERED = "delivered"
        FAILED = "failed"  # for good, unless it is resent

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    kind = models.TextField()
    target_id = models.UUIDField()
    payload = models.JSONField()
    state = models.TextField(choices=State.choices, db_default=State.QUEUED, default=State.QUEUED)
    # When the next attempt is due; while one is made, when its claim ends.
    due_at = models.DateTimeField(db_default=Now())
    claim_token = models.UUIDField(null=True)
    attempts = models.IntegerField(db_default=0, default=0)
    last_error = models.TextField(null=True)  # a code
    log = models.JSONField(db_default=[], default=list)  # the last 20 attempts: at, status, code, ms
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "outbox"
        verbose_name = "outbox message"
        default_permissions = ("view",)
        permissions = [("resend_message", "Can resend messages")]
        indexes = [
            models.Index("target_id", "due_at", name="ix_outbox_due", condition=Q(state="queued")),
            models.Index("target_id", F("created_at").desc(), "id", name="ix_outbox_target"),
            models.Index(F("created_at").desc(), "id", name="ix_outbox_created"),
            models.Index("state", F("created_at").desc(), "id", name="ix_outbox_state"),
            models.Index("finished_at", name="ix_outbox_finished", condition=~Q(state="queued")),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=["queued", "delivered", "failed"]), name="outbox_state_known"),
            models.CheckConstraint(
                condition=Q(state="queued", finished_at=None) | (~Q(state="queued") & Q(finished_at__isnull=False)),
                name="outbox_finished_with_state",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class WebhookEndpoint(models.Model):
    """An address of a tenant that receives events. Its secrets are encrypted; no tenant role may read them."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    url = models.TextField()
    events = ArrayField(models.TextField())
    enabled = models.BooleanField(db_default=True, default=True)
    disabled_code = models.TextField(null=True)  # why we disabled it; null: its tenant did
    failures = models.IntegerField(db_default=0, default=0)  # since the last success
    failing_since = models.DateTimeField(null=True)
    paused_until = models.DateTimeField(null=True)  # after a failure: nothing is sent before
    secret = models.BinaryField()
    previous_secret = models.BinaryField(null=True)
    previous_secret_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "webhook_endpoints"
        default_permissions = ("view",)
        indexes = [
            models.Index("user_id", F("created_at").desc(), "id", name="ix_webhooks_user"),
            models.Index(F("created_at").desc(), "id", name="ix_webhooks_created"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(events__contained_by=list(EVENTS)) & ~Q(events=[]), name="webhook_events_known"
            ),
            models.CheckConstraint(
                condition=Q(previous_secret=None, previous_secret_until=None)
                | Q(previous_secret__isnull=False, previous_secret_until__isnull=False),
                name="webhook_previous_secret_expires",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)
