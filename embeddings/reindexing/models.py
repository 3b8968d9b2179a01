"""Reindexing campaigns, which change the model, the chunker or the parser of searchable documents, tenant by tenant."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from embeddings.embedders.registry import EmbeddingModel

TARGETS = ("embed_model", "embed_version", "chunker", "parser")


def _has_target(kind: str, *columns: str) -> Q:
    return Q(kind=kind, **{f"{name}__isnull": name not in columns for name in TARGETS})


class Campaign(models.Model):
    class Kind(models.TextChoices):
        REEMBED = "reembed"
        RECHUNK = "rechunk"
        REPARSE = "reparse"

    class State(models.TextChoices):
        RUNNING = "running"
        PAUSED = "paused"
        FINISHED = "finished"
        CANCELLED = "cancelled"
        ROLLED_BACK = "rolled_back"

    campaign_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.TextField(choices=Kind.choices)
    # What to move to: a model, or a chunker or a parser as name@version.
    embed_model = models.TextField(null=True)
    embed_version = models.TextField(null=True)
    chunker = models.TextField(null=True)
    parser = models.TextField(null=True)
    # Of a reparse: only these documents.
    document_ids = ArrayField(models.UUIDField(), null=True)
    state = models.TextField(choices=State.choices, db_default=State.RUNNING)
    # Why it stands still: BY_STAFF, BUDGET_SPENT, ...
    reason = models.TextField(null=True)
    budget_cents = models.DecimalField(max_digits=16, decimal_places=6, null=True)
    # The operator's own questions, [{user_id, query, document_id, page}]; without any they are drawn from the passages.
    canaries = models.JSONField(null=True)
    # How much of the recall on the canaries a cut-over may cost.
    tolerance = models.FloatField(db_default=0.02)
    # How long after its cut-over a tenant can be rolled back before the old vectors are removed.
    keep_seconds = models.FloatField(db_default=86_400.0)
    created_by = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "campaigns"
        default_permissions = ("view", "add", "change")
        constraints = [
            models.CheckConstraint(
                condition=_has_target("reembed", "embed_model", "embed_version")
                | _has_target("rechunk", "chunker")
                | _has_target("reparse", "parser"),
                name="campaign_has_its_target",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["running", "paused", "finished", "cancelled", "rolled_back"]),
                name="campaign_state_known",
            ),
        ]

    def __str__(self) -> str:
        return str(self.campaign_id)

    @property
    def model(self) -> EmbeddingModel:
        """The model of a re-embedding; without a name for other campaigns."""
        return EmbeddingModel(self.embed_model or "", self.embed_version or "")

    @property
    def target(self) -> str:
        """The chunker, the parser or the model, as name@version."""
        return self.chunker or self.parser or self.model.label


class CampaignTenant(models.Model):
    """Progress of one tenant. After a kill the periodic task continues from this row."""

    class State(models.TextChoices):
        WORKING = "working"  # its documents are being enqueued
        HELD = "held"  # waits for a person, or for a model that is gone; the reason says which
        LIVE = "live"  # cut over; the old vectors are still there
        SETTLED = "settled"  # the old vectors go; once ended_at is set, they are gone
        REVERTING = "reverting"  # the old model embeds what was uploaded since, then it is the active model again
        ROLLED_BACK = "rolled_back"
        SKIPPED = "skipped"  # pinned, cancelled, or there was nothing to do

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="tenants")
    user_id = models.UUIDField()
    state = models.TextField(choices=State.choices, db_default=State.WORKING)
    reason = models.TextField(null=True)
    # The scheduler's cursor in this pass, from the newest document to the oldest.
    after_created = models.DateTimeField(null=True)
    after_document = models.UUIDField(null=True)
    # When the pass met the last document; once its jobs have ended, the periodic task looks at what is left.
    passed_at = models.DateTimeField(null=True)
    # The tenant whose last document was enqueued longest ago is next.
    fed_at = models.DateTimeField(db_default=Now())
    documents = models.IntegerField(db_default=0)
    passages = models.IntegerField(db_default=0)
    tokens = models.BigIntegerField(db_default=0)
    from_model = models.TextField(null=True)
    from_version = models.TextField(null=True)
    # {"queries": n, "before": recall@10, "after": recall@10}, each figure from when it is known.
    recall = models.JSONField(null=True)
    # Its documents whose jobs are dead letters.
    failed = models.IntegerField(db_default=0)
    # Who let it be cut over although its canaries found less.
    accepted_by = models.TextField(null=True)
    cut_over_at = models.DateTimeField(null=True)
    # Null while there is anything left to do or to clear away; until then no other campaign takes the tenant.
    ended_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "campaign_tenants"
        default_permissions = ()
        indexes = [models.Index("campaign", "state", "fed_at", name="ix_campaign_tenants_state")]
        constraints = [
            models.UniqueConstraint("campaign", "user_id", name="uq_campaign_tenant"),
            # Two campaigns at once would each move what the other has measured.
            models.UniqueConstraint("user_id", name="uq_campaign_tenant_open", condition=Q(ended_at__isnull=True)),
            models.CheckConstraint(
                condition=Q(state__in=["working", "held", "live", "settled", "reverting", "rolled_back", "skipped"]),
                name="campaign_tenant_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.campaign_id} {self.user_id}"

    @property
    def former_model(self) -> EmbeddingModel:
        """The active model before the cut-over."""
        return EmbeddingModel(self.from_model or "", self.from_version or "")
