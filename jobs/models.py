"""Models of jobs: the queue (a row is a job with all that is needed to run it), its events, and live clusters."""

import uuid

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import F, Q
from django.db.models.fields.json import KT
from django.db.models.functions import Now

from jobs.choices import ACTIVE, Stage, State, status_expression

UPLOAD_ACCEPTED = "UPLOAD_ACCEPTED"  # the event of a new job

_ACTIVE = Q(state__in=[state.value for state in ACTIVE])
_HELD = Q(claim_token__isnull=False, claimed_at__isnull=False, lease_until__isnull=False, slot__isnull=False)
_FREE = Q(claim_token__isnull=True, lease_until__isnull=True, slot__isnull=True)
_WORKING, _DEAD, _ENDED = Q(state="working"), Q(state="deadletter"), Q(state__in=["done", "deadletter"])
_IN_SLOT = Q(slot__isnull=False)  # as is told by a comparison with a slot
_OF_CAMPAIGNS = Q(campaign_id__isnull=False)
# Queued, and not for later. Not told by the state: whoever asks so can be answered by the claim's indexes only. With
# statistics of an empty queue, the planner took ix_jobs_state, and each claim read all that had come since.
_DUE = {"claim_token__isnull": True, "finished_at__isnull": True, "run_after__isnull": True}
_NEWEST = F("created_at").desc()
_CLAIM = ("user_id", "created_at", "job_id")
_CHECKS = {
    "job_stage_known": Q(stage__in=Stage.values),
    "job_state_known": Q(state__in=State.values),
    "job_held_while_working": (_WORKING & _HELD) | (~_WORKING & _FREE),
    "job_parked_only_idle": Q(run_after__isnull=True) | Q(state__in=["queued", "retryable"]),
    "job_retryable_has_a_time": ~Q(state="retryable") | Q(run_after__isnull=False),
    "job_finished_when_ended": (_ENDED & Q(finished_at__isnull=False)) | (~_ENDED & Q(finished_at__isnull=True)),
    "job_done_is_embedded": ~Q(state="done") | Q(stage="embedded"),
    "job_counts_not_negative": Q(attempts__gte=0, retry_count__gte=0, overloads__gte=0),
    "job_of_a_campaign_has_low_priority": Q(campaign_id__isnull=True) | Q(low_priority=True),
    "job_slot_not_negative": Q(slot__isnull=True) | Q(slot__gte=0),
    "job_in_batch_while_working": Q(in_batch=False) | _WORKING,
}


class UploadJob(models.Model):
    job_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="jobs", db_index=False)
    pipeline = models.TextField(db_default="insurance")
    # Set for the job of a campaign: its tenant does not see it.
    campaign_id = models.UUIDField(null=True)
    # Yields to all other jobs: a campaign's job, or one of a document imported from another system.
    low_priority = models.BooleanField(db_default=False)
    stage = models.TextField(choices=Stage.choices, db_default=Stage.QUEUED)
    state = models.TextField(choices=State.choices, db_default=State.QUEUED)
    status = models.GeneratedField(expression=status_expression(), output_field=models.TextField(), db_persist=True)
    # Attempts at this stage, counted by the claim: before the work that may kill the worker.
    attempts = models.IntegerField(db_default=0)
    retry_count = models.IntegerField(db_default=0)
    # Whether the claim's processes waited for a core most of the time before the last heartbeat, and how many claims
    # that were lost so, or in a batch, have cost no attempt.
    overloaded = models.BooleanField(db_default=False)
    overloads = models.IntegerField(db_default=0)
    run_after = models.DateTimeField(null=True)
    wait_reason = models.TextField(null=True)
    slot = models.SmallIntegerField(null=True)
    # Claimed together with others: nobody knows whose code ran when the worker dies, so that costs no attempt.
    in_batch = models.BooleanField(db_default=False)
    claimed_by = models.TextField(null=True)
    claimed_at = models.DateTimeField(null=True)
    claim_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    idempotency_key = models.TextField(null=True)
    correlation_id = models.UUIDField(default=uuid.uuid4)
    raw_path = models.TextField()
    parsed_path = models.TextField(null=True)
    parsed_sha256 = models.TextField(null=True)
    chunks_version = models.TextField()
    embed_model = models.TextField(null=True)
    embed_version = models.TextField(null=True)
    payload = models.JSONField(db_default={}, default=dict)
    progress = models.JSONField(db_default={}, default=dict)
    total_pct = models.FloatField(db_default=0.0)
    cost_cents = models.DecimalField(max_digits=16, decimal_places=6, db_default=0)
    last_error = models.JSONField(null=True)
    # Frames without values; for staff only.
    traceback = models.TextField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "upload_jobs"
        verbose_name = "job"
        default_permissions = ("view",)
        permissions = [
            ("retry_uploadjob", "Can retry upload jobs"),
            ("cancel_uploadjob", "Can cancel upload jobs"),
            ("discard_uploadjob", "Can move upload jobs to the dead letters"),
        ]
        indexes = [
            models.Index("state", "created_at", name="ix_jobs_state"),
            models.Index("status", "created_at", name="idx_upload_jobs_status"),
            models.Index("document", name="idx_upload_jobs_document"),
            models.Index("user_id", _NEWEST, "job_id", name="ix_jobs_user"),
            # Staff's list, the newest first; then that of campaigns' jobs, which may all be old.
            models.Index(_NEWEST, "job_id", name="ix_jobs_created"),
            models.Index(_NEWEST, "job_id", name="ix_jobs_created_low", condition=_OF_CAMPAIGNS),
            # Staff's dead letters by stage and error code.
            models.Index(
                F("stage"), KT("last_error__code"), F("finished_at").desc(), name="ix_jobs_dead", condition=_DEAD
            ),
            # The claim's skip scan: due jobs by user, oldest first; then those of low priority.
            models.Index(*_CLAIM, name="ix_jobs_due", condition=Q(**_DUE, low_priority=False)),
            models.Index(*_CLAIM, name="ix_jobs_due_low", condition=Q(**_DUE, low_priority=True)),
            models.Index("campaign_id", "state", name="ix_jobs_campaign", condition=_OF_CAMPAIGNS),
            models.Index("run_after", name="ix_jobs_parked", condition=Q(run_after__isnull=False)),
            models.Index("lease_until", name="ix_jobs_lease", condition=_WORKING),
        ]
        constraints = [
            models.UniqueConstraint("document", "stage", name="uq_job_doc_stage_active", condition=_ACTIVE),
            models.UniqueConstraint("document", name="uq_job_document_active", condition=_ACTIVE),
            # Guarantees the limit of a user's running jobs, whatever the claim computes.
            models.UniqueConstraint("user_id", "slot", name="uq_job_user_slot", condition=_IN_SLOT),
            *(models.CheckConstraint(condition=condition, name=name) for name, condition in _CHECKS.items()),
        ]

    def __str__(self) -> str:
        return str(self.job_id)


class Event(models.Model):
    class Type(models.TextChoices):
        STAGE_STARTED = "stage_started"
        STAGE_DONE = "stage_done"
        RETRY = "retry"
        ERROR = "error"
        FINALIZED = "finalized"

    class Severity(models.TextChoices):
        INFO = "info"
        WARN = "warn"
        ERROR = "error"

    event_id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    job = models.ForeignKey(UploadJob, on_delete=models.CASCADE, related_name="events", db_index=False)
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="events", db_index=False)
    user_id = models.UUIDField()
    ts = models.DateTimeField(db_default=Now())
    type = models.TextField(choices=Type.choices)
    severity = models.TextField(choices=Severity.choices)
    code = models.TextField()
    payload = models.JSONField(db_default={}, default=dict)
    correlation_id = models.UUIDField(null=True)

    class Meta:
        db_table = "events"
        default_permissions = ("view",)
        indexes = [
            # Recent events of all jobs. Not BRIN: pages of deleted events are refilled with new ones.
            models.Index("ts", name="ix_events_ts"),
            models.Index("job", F("ts").desc(), name="idx_events_job_ts"),
            models.Index("document", F("ts").desc(), name="idx_events_doc_ts"),
            # The jobs of a request: one entry a job. An index on the jobs would be written at every move.
            models.Index("correlation_id", name="ix_events_correlation", condition=Q(code=UPLOAD_ACCEPTED)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(type__in=["stage_started", "stage_done", "retry", "error", "finalized"]),
                name="event_type_known",
            ),
            models.CheckConstraint(condition=Q(severity__in=["info", "warn", "error"]), name="event_severity_known"),
        ]

    def __str__(self) -> str:
        return f"{self.code} {self.job_id}"


class Pause(models.Model):
    """A pipeline, a tenant or a vendor that a member of staff holds back: see ``jobs.pauses``."""

    class Kind(models.TextChoices):
        PIPELINE = "pipeline"
        TENANT = "tenant"
        VENDOR = "vendor"

    pause_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.TextField(choices=Kind.choices)
    subject = models.TextField()  # the name of the pipeline or the vendor, the id of the tenant
    reason = models.TextField()
    paused_by = models.UUIDField()
    paused_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "pauses"
        default_permissions = ("view", "change")
        constraints = [
            models.UniqueConstraint("kind", "subject", name="uq_pause_subject"),
            models.CheckConstraint(condition=Q(kind__in=["pipeline", "tenant", "vendor"]), name="pause_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


class Cluster(models.Model):
    """A live cluster of workers, upserted by its maintenance loop every few seconds."""

    name = models.TextField(primary_key=True)  # host:pid, as the claims of its workers begin
    workers = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    clock_ahead = models.FloatField(db_default=0.0)  # seconds by which its host's clock is ahead of the database's
    # Keyed digests of the processes' settings by name: `manage.py doctor` compares them and cannot read the settings.
    fingerprint = models.JSONField(db_default={}, default=dict)

    class Meta:
        db_table = "clusters"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name
