"""What support asks of the lists of jobs and events: each filter is a question that an index answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.db.models import QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest

from accounts.audit.admin_filters import ChoiceFilter, ExactFilter, choice_filter, exact_filter
from jobs import pipeline, progress
from jobs.models import Event, UploadJob
from jobs.states import STATUSES, Stage, State

Rows = QuerySet[Any]
# No index names the way that tenants' jobs take, for nearly all take the same: looked for among the newest only.
NEWEST = 20_000
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


def _named(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(value, value.replace("_", " ")) for value in values]


class DisplayStatusFilter(ChoiceFilter):
    title, parameter_name = "standing", "standing"
    filter_choices = _named(["queued", "starved", "waiting", "working", "retrying", "dead", "done"])
    plain: ClassVar = {"working": State.WORKING, "retrying": State.RETRYABLE, "dead": State.DEADLETTER}

    def filter_rows(self, rows: Rows, value: str) -> Rows:
        match value:
            case "queued":
                return rows.filter(progress.DUE & ~progress.starved_filter())
            case "starved":
                return rows.filter(progress.DUE & progress.starved_filter())
            case "waiting":
                return rows.filter(state=State.QUEUED, run_after__isnull=False)
        return rows.filter(state=self.plain.get(value, State.DONE))


StateFilter = choice_filter("state", "state", _named(State.values))
StatusFilter = choice_filter("status", "status", _named(STATUSES))


class StageFilter(ChoiceFilter):
    title, parameter_name = "stage", "stage"
    filter_choices = _named(Stage.values)

    def filter_rows(self, rows: Rows, value: str) -> Rows:
        rows = rows.filter(stage=value)
        if value == Stage.EMBEDDED:
            return rows
        # Most jobs are done, and those stand at the last stage: what stands elsewhere is found by its state.
        return rows.filter(state__in=[state for state in State.values if state != State.DONE])


class PipelineFilter(ChoiceFilter):
    title, parameter_name = "pipeline", "pipeline"

    @staticmethod
    def filter_choices() -> list[tuple[str, str]]:
        return _named(pipeline.pipeline_names())

    def filter_rows(self, rows: Rows, value: str) -> Rows:
        rows = rows.filter(pipeline=value)
        if pipeline.get_pipeline(value).campaigns_only:
            return rows.filter(campaign_id__isnull=False)
        oldest = UploadJob.objects.order_by("-created_at", "job_id").values("created_at")[NEWEST : NEWEST + 1]
        return rows.filter(created_at__gte=Coalesce(Subquery(oldest), BEGINNING))


class OriginFilter(ChoiceFilter):
    title, parameter_name = "asked by", "asked_by"
    filter_choices = (("tenant", "a tenant"), ("campaign", "a campaign"))

    def filter_rows(self, rows: Rows, value: str) -> Rows:
        return rows.filter(campaign_id__isnull=value == "tenant")


class AgeFilter(ChoiceFilter):
    title, parameter_name = "older than", "older_than"
    filter_choices = (("600", "10 minutes"), ("3600", "an hour"), ("86400", "a day"), ("604800", "a week"))

    def filter_rows(self, rows: Rows, value: str) -> Rows:
        return rows.filter(created_at__lt=Now() - timedelta(seconds=int(value)))


class ErrorCodeFilter(ExactFilter):
    title, parameter_name = "code of a dead letter", "error_code"

    def filter_rows(self, rows: Rows, value: str) -> Rows:
        # As ix_jobs_dead spells it.
        found: Rows = rows.alias(error=KT("last_error__code")).filter(error=value, state=State.DEADLETTER)
        return found


WaitReasonFilter = exact_filter("wait_reason", "wait reason", state=State.QUEUED, run_after__isnull=False)
EventCode = exact_filter("code", "code")
EventType = choice_filter("type", "type", _named(Event.Type.values))
EventSeverity = choice_filter("severity", "severity", _named(Event.Severity.values))


class RecentFilter(ChoiceFilter):
    """Events are by the million: without a job or a document to look for, only the last ones are looked through."""

    title, parameter_name = "within", "within"
    filter_choices = (("900", "15 minutes"), ("86400", "a day"), ("604800", "a week"))
    all_option = ("", "an hour")
    default = 3600

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        if request.GET.get("q"):
            return queryset  # of one job or document: its own index serves
        value = self.value()
        seconds = int(value) if value in dict(self.filter_choices) else self.default
        return queryset.filter(ts__gte=Now() - timedelta(seconds=seconds))
