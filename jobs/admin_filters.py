"""Admin filters of jobs and events, each served by an index."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

from django.conf import settings
from django.db.models import QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest
from django.utils.module_loading import import_string

from accounts.audit.admin_base import ChoiceFilter, ExactFilter, choice_filter, exact_filter
from jobs import display_status, pipeline
from jobs.choices import STATUSES, Stage, State
from jobs.models import Event, UploadJob

Rows = QuerySet[Any]
# No index has the pipeline, because nearly all jobs have the same one: only the newest jobs are searched.
NEWEST = 20_000
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


def _choices(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, name.replace("_", " ")) for name in names]


class DisplayStatusFilter(ChoiceFilter):
    title, parameter_name = "standing", "standing"
    filter_choices = _choices(["queued", "starved", "waiting", "working", "retrying", "dead", "done"])
    plain: ClassVar = {"working": State.WORKING, "retrying": State.RETRYABLE, "dead": State.DEADLETTER}

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        match choice:
            case "queued":
                return rows.filter(display_status.DUE & ~display_status.starved_filter())
            case "starved":
                return rows.filter(display_status.DUE & display_status.starved_filter())
            case "waiting":
                return rows.filter(state=State.QUEUED, run_after__isnull=False)
        return rows.filter(state=self.plain.get(choice, State.DONE))


StateFilter = choice_filter("state", "state", _choices(State.values))
StatusFilter = choice_filter("status", "status", _choices(STATUSES))


class StageFilter(ChoiceFilter):
    title, parameter_name = "stage", "stage"
    filter_choices = _choices(Stage.values)

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        rows = rows.filter(stage=choice)
        if choice == Stage.EMBEDDED:
            return rows
        # Most jobs are done and stand at the last stage; the index on the state finds the others.
        return rows.filter(state__in=[state for state in State.values if state != State.DONE])


class PipelineFilter(ChoiceFilter):
    title, parameter_name = "pipeline", "pipeline"

    @staticmethod
    def filter_choices() -> list[tuple[str, str]]:
        return _choices(sorted(import_string(settings.JOBS_PIPELINES)))

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        rows = rows.filter(pipeline=choice)
        if pipeline.get_pipeline(choice).campaigns_only:
            return rows.filter(campaign_id__isnull=False)
        oldest = UploadJob.objects.order_by("-created_at", "job_id").values("created_at")[NEWEST : NEWEST + 1]
        return rows.filter(created_at__gte=Coalesce(Subquery(oldest), BEGINNING))


class OriginFilter(ChoiceFilter):
    title, parameter_name = "asked by", "asked_by"
    filter_choices = (("tenant", "a tenant"), ("campaign", "a campaign"))

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        return rows.filter(campaign_id__isnull=choice == "tenant")


class AgeFilter(ChoiceFilter):
    title, parameter_name = "older than", "older_than"
    filter_choices = (("600", "10 minutes"), ("3600", "an hour"), ("86400", "a day"), ("604800", "a week"))

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        return rows.filter(created_at__lt=Now() - timedelta(seconds=int(choice)))


class ErrorCodeFilter(ExactFilter):
    title, parameter_name = "code of a dead letter", "error_code"

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        # As ix_jobs_dead spells it.
        return cast(Rows, rows.alias(error=KT("last_error__code")).filter(error=choice, state=State.DEADLETTER))


WaitReasonFilter = exact_filter("wait_reason", "wait reason", state=State.QUEUED, run_after__isnull=False)
EventCode = exact_filter("code", "code")
EventType = choice_filter("type", "type", _choices(Event.Type.values))
EventSeverity = choice_filter("severity", "severity", _choices(Event.Severity.values))


class RecentFilter(ChoiceFilter):
    """There are millions of events: without a job or a document to search for, only the last hour's are listed."""

    title, parameter_name = "within", "within"
    filter_choices = (("900", "15 minutes"), ("86400", "a day"), ("604800", "a week"))
    all_option = ("", "an hour")
    default = 3600

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        if request.GET.get("q"):
            return queryset  # of one job or document, by its index
        choice = self.value()
        seconds = int(choice) if choice in dict(self.filter_choices) else self.default
        return queryset.filter(ts__gte=Now() - timedelta(seconds=seconds))
