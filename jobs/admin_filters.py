"""What support asks of the lists of jobs and events: each filter is a question that an index answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.db.models import QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest

from accounts.audit.admin_filters import Exact, OneOf, exact, one_of
from jobs import pipeline, progress
from jobs.models import Event, UploadJob
from jobs.states import STATUSES, Stage, State

Rows = QuerySet[Any]
# No index names the way that tenants' jobs take, for nearly all take the same: looked for among the newest only.
NEWEST = 20_000
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


def _named(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(value, value.replace("_", " ")) for value in values]


class Standing(OneOf):
    title, parameter_name = "standing", "standing"
    offered = _named(["queued", "starved", "waiting", "working", "retrying", "dead", "done"])
    plain: ClassVar = {"working": State.WORKING, "retrying": State.RETRYABLE, "dead": State.DEADLETTER}

    def narrowed(self, rows: Rows, value: str) -> Rows:
        match value:
            case "queued":
                return rows.filter(progress.DUE & ~progress.starved())
            case "starved":
                return rows.filter(progress.DUE & progress.starved())
            case "waiting":
                return rows.filter(state=State.QUEUED, run_after__isnull=False)
        return rows.filter(state=self.plain.get(value, State.DONE))


InState = one_of("state", "state", _named(State.values))
InStatus = one_of("status", "status", _named(STATUSES))


class AtStage(OneOf):
    title, parameter_name = "stage", "stage"
    offered = _named(Stage.values)

    def narrowed(self, rows: Rows, value: str) -> Rows:
        rows = rows.filter(stage=value)
        if value == Stage.EMBEDDED:
            return rows
        # Most jobs are done, and those stand at the last stage: what stands elsewhere is found by its state.
        return rows.filter(state__in=[state for state in State.values if state != State.DONE])


class OfPipeline(OneOf):
    title, parameter_name = "pipeline", "pipeline"

    @staticmethod
    def offered() -> list[tuple[str, str]]:
        return _named(pipeline.names())

    def narrowed(self, rows: Rows, value: str) -> Rows:
        rows = rows.filter(pipeline=value)
        if pipeline.pipeline(value).of_campaigns:
            return rows.filter(campaign_id__isnull=False)
        oldest = UploadJob.objects.order_by("-created_at", "job_id").values("created_at")[NEWEST : NEWEST + 1]
        return rows.filter(created_at__gte=Coalesce(Subquery(oldest), BEGINNING))


class AskedBy(OneOf):
    title, parameter_name = "asked by", "asked_by"
    offered = (("tenant", "a tenant"), ("campaign", "a campaign"))

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(campaign_id__isnull=value == "tenant")


class OlderThan(OneOf):
    title, parameter_name = "older than", "older_than"
    offered = (("600", "10 minutes"), ("3600", "an hour"), ("86400", "a day"), ("604800", "a week"))

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(created_at__lt=Now() - timedelta(seconds=int(value)))


class ErrorCode(Exact):
    title, parameter_name = "code of a dead letter", "error_code"

    def narrowed(self, rows: Rows, value: str) -> Rows:
        # As ix_jobs_dead spells it.
        found: Rows = rows.alias(error=KT("last_error__code")).filter(error=value, state=State.DEADLETTER)
        return found


WaitReason = exact("wait_reason", "wait reason", state=State.QUEUED, run_after__isnull=False)
EventCode = exact("code", "code")
EventType = one_of("type", "type", _named(Event.Type.values))
EventSeverity = one_of("severity", "severity", _named(Event.Severity.values))


class Lately(OneOf):
    """Events are by the million: without a job or a document to look for, only the last ones are looked through."""

    title, parameter_name = "within", "within"
    offered = (("900", "15 minutes"), ("86400", "a day"), ("604800", "a week"))
    all_option = ("", "an hour")
    default = 3600

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        if request.GET.get("q"):
            return queryset  # of one job or document: its own index serves
        value = self.value()
        seconds = int(value) if value in dict(self.offered) else self.default
        return queryset.filter(ts__gte=Now() - timedelta(seconds=seconds))
