"""Requests and responses of the job API (MVP context §6, context 002 §8)."""

from typing import Any, cast

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.choices import STATUSES, Stage, State
from jobs.display_status import DISPLAY_STATUSES, stage_pct, tenant_display_status
from jobs.models import UploadJob

COUNTERS = ("pages_total", "pages_done", "chunks_total", "chunks_done", "embeds_total", "embeds_done")


class RetryRequest(serializers.Serializer[object]):
    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=500, help_text="reason of staff, kept in the audit log"
    )


class JobErrorResponse(serializers.Serializer[object]):
    code = serializers.CharField()
    detail = serializers.CharField()
    stage = serializers.CharField(required=False)
    attempt = serializers.IntegerField(required=False)


class JobProgressResponse(serializers.Serializer[object]):
    stage_pct = serializers.FloatField(
        min_value=0, max_value=100, help_text="of the pages while parsing, of the vectors while embedding"
    )
    total_pct = serializers.FloatField(min_value=0, max_value=100, help_text="never falls")


class JobProgressDetailResponse(JobProgressResponse):
    pages_total = serializers.IntegerField(min_value=0)
    pages_done = serializers.IntegerField(min_value=0)
    chunks_total = serializers.IntegerField(min_value=0)
    chunks_done = serializers.IntegerField(min_value=0)
    embeds_total = serializers.IntegerField(min_value=0)
    embeds_done = serializers.IntegerField(min_value=0)


class ParseWarningsResponse(serializers.Serializer[object]):
    """Irregularities of a parse that fail no document, counted when the job left the stage ``parsed``."""

    heading_jumps = serializers.IntegerField(min_value=0, help_text="headings that skip a level")
    ragged_tables = serializers.IntegerField(min_value=0, help_text="tables whose rows have other numbers of cells")


class JobResponse(serializers.Serializer[Any]):
    """A job with exactly the fields of MVP context §6."""

    job_id = serializers.UUIDField(read_only=True)
    stage = serializers.ChoiceField(Stage.choices, read_only=True)
    state = serializers.ChoiceField(State.choices, read_only=True)
    retry_count = serializers.IntegerField(read_only=True)
    progress = serializers.SerializerMethodField()
    cost_cents = serializers.FloatField()
    document_id = serializers.UUIDField()
    last_error = JobErrorResponse(allow_null=True)
    updated_at = serializers.DateTimeField(read_only=True)

    @extend_schema_field(JobProgressResponse)
    def get_progress(self, job: UploadJob) -> dict[str, float]:
        return {"stage_pct": stage_pct(job), "total_pct": round(job.total_pct, 1)}


class JobDetailResponse(JobResponse):
    """A job with context 002's status, counters and standing.

    Context: ``running``, the user's working jobs; ``unsettled_cents`` by job.
    """

    status = serializers.ChoiceField(choices=STATUSES)
    progress = serializers.SerializerMethodField()
    standing = serializers.SerializerMethodField()
    wait_reason = serializers.SerializerMethodField()
    unsettled_cents = serializers.SerializerMethodField(
        help_text="of calls in flight, and of calls that an interruption left without an answer and that were bought"
        " again: spent, and not part of cost_cents"
    )
    predicted_cents = serializers.SerializerMethodField()
    parse_warnings = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(read_only=True)

    @extend_schema_field(JobProgressDetailResponse)
    def get_progress(self, job: UploadJob) -> dict[str, Any]:
        return {**super().get_progress(job), **{name: int(job.progress.get(name, 0)) for name in COUNTERS}}

    def get_wait_reason(self, job: UploadJob) -> str | None:
        return job.wait_reason if job.run_after else None

    def get_unsettled_cents(self, job: UploadJob) -> float:
        return float(self.context["unsettled_cents"].get(job.pk, 0))

    def get_predicted_cents(self, job: UploadJob) -> float | None:
        # Estimated before the first paid call.
        return cast("float | None", job.payload.get("predicted_cents"))

    @extend_schema_field(ParseWarningsResponse(allow_null=True))
    def get_parse_warnings(self, job: UploadJob) -> dict[str, int] | None:
        return cast("dict[str, int] | None", job.payload.get("parse_warnings"))

    @extend_schema_field(serializers.ChoiceField(choices=DISPLAY_STATUSES))
    def get_standing(self, job: UploadJob) -> str:
        return tenant_display_status(job, running=self.context["running"])
