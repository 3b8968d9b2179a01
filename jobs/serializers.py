"""How a job is shown: MVP context §6 and context 002 §8, to the letter."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from jobs import standing
from jobs.models import UploadJob

COUNTERS = ("chunks_total", "chunks_done", "embeds_total", "embeds_done")


class FailureAnswer(serializers.Serializer[object]):
    code = serializers.CharField()
    detail = serializers.CharField()
    stage = serializers.CharField(required=False)
    attempt = serializers.IntegerField(required=False)


class JobAnswer(serializers.ModelSerializer[UploadJob]):
    """Exactly the fields of MVP context §6."""

    progress = serializers.SerializerMethodField()
    cost_cents = serializers.FloatField()
    document_id = serializers.UUIDField()
    last_error = FailureAnswer(allow_null=True)

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

    def get_progress(self, job: UploadJob) -> dict[str, float]:
        return {"stage_pct": standing.stage_pct(job), "total_pct": standing.total_pct(job)}


class CountedJobAnswer(JobAnswer):
    """The same with context 002's single status, its four counters, and why the job is not moving.

    Needs ``running`` in its context: how many jobs of the user are being worked on.
    """

    status = serializers.CharField()
    progress = serializers.SerializerMethodField()
    standing = serializers.SerializerMethodField()
    wait_reason = serializers.SerializerMethodField()
    predicted_cents = serializers.SerializerMethodField()

    class Meta(JobAnswer.Meta):
        fields = (*JobAnswer.Meta.fields, "status", "standing", "wait_reason", "predicted_cents", "created_at")
        read_only_fields = fields

    def get_progress(self, job: UploadJob) -> dict[str, Any]:
        counted = {name: int(job.progress.get(name, 0)) for name in COUNTERS}
        return {**super().get_progress(job), **counted}

    def get_wait_reason(self, job: UploadJob) -> str | None:
        return job.wait_reason if job.run_after else None

    def get_predicted_cents(self, job: UploadJob) -> float | None:
        """Known before the first paid call."""
        predicted: float | None = job.payload.get("predicted_cents")
        return predicted

    def get_standing(self, job: UploadJob) -> str:
        return standing.standing(job, running=self.context["running"])
