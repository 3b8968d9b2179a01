"""How a job is shown: MVP context §6 and context 002 §8, to the letter."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs import progress as standing
from jobs.models import UploadJob
from jobs.progress import DISPLAY_STATUSES
from jobs.states import STATUSES

COUNTERS = ("chunks_total", "chunks_done", "embeds_total", "embeds_done")


class RetryRequest(serializers.Serializer[object]):
    reason = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=500,
        help_text="why staff retry another's job: kept with what is done",
    )


class JobErrorResponse(serializers.Serializer[object]):
    code = serializers.CharField()
    detail = serializers.CharField()
    stage = serializers.CharField(required=False)
    attempt = serializers.IntegerField(required=False)


class JobProgressResponse(serializers.Serializer[object]):
    stage_pct = serializers.FloatField(min_value=0, max_value=100)
    total_pct = serializers.FloatField(min_value=0, max_value=100, help_text="never falls")


class JobProgressDetailResponse(JobProgressResponse):
    chunks_total = serializers.IntegerField(min_value=0)
    chunks_done = serializers.IntegerField(min_value=0)
    embeds_total = serializers.IntegerField(min_value=0)
    embeds_done = serializers.IntegerField(min_value=0)


class JobResponse(serializers.ModelSerializer[UploadJob]):
    """Exactly the fields of MVP context §6."""

    progress = serializers.SerializerMethodField()
    cost_cents = serializers.FloatField()
    document_id = serializers.UUIDField()
    last_error = JobErrorResponse(allow_null=True)

    class Meta:
        model = UploadJob
        fields: tuple[str, ...] = (
            "job_id",
            "stage",
            "state",
            "retry_count",
            "progress",
            "cost_cents",
            "document_id",
            "last_error",
            "updated_at",
        )
        read_only_fields = fields

    @extend_schema_field(JobProgressResponse)
    def get_progress(self, job: UploadJob) -> dict[str, float]:
        return {"stage_pct": standing.stage_pct(job), "total_pct": standing.total_pct(job)}


class JobDetailResponse(JobResponse):
    """The same with context 002's single status, its four counters, and why the job is not moving.

    Needs ``running`` in its context: how many jobs of the user are being worked on.
    """

    status = serializers.ChoiceField(choices=STATUSES)
    progress = serializers.SerializerMethodField()
    standing = serializers.SerializerMethodField()
    wait_reason = serializers.SerializerMethodField()
    predicted_cents = serializers.SerializerMethodField()

    class Meta(JobResponse.Meta):
        fields = (*JobResponse.Meta.fields, "status", "standing", "wait_reason", "predicted_cents", "created_at")
        read_only_fields = fields

    @extend_schema_field(JobProgressDetailResponse)
    def get_progress(self, job: UploadJob) -> dict[str, Any]:
        counted = {name: int(job.progress.get(name, 0)) for name in COUNTERS}
        return {**super().get_progress(job), **counted}

    def get_wait_reason(self, job: UploadJob) -> str | None:
        return job.wait_reason if job.run_after else None

    def get_predicted_cents(self, job: UploadJob) -> float | None:
        """Known before the first paid call."""
        predicted: float | None = job.payload.get("predicted_cents")
        return predicted

    @extend_schema_field(serializers.ChoiceField(choices=DISPLAY_STATUSES))
    def get_standing(self, job: UploadJob) -> str:
        return standing.tenant_display_status(job, running=self.context["running"])
