"""What support asks of the lists of jobs and events: each filter is a question that an index answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.admin import SimpleListFilter
from django.db.models import Count, Q, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Now
from django.http import HttpRequest
from unfold.contrib.filters.admin import TextFilter

from jobs import plan
from jobs.models import Event, UploadJob
from jobs.states import STATUSES, Stage, State

Rows = QuerySet[Any]


class Choice(SimpleListFilter):
    """One of a closed set; what is not in it narrows to nothing."""

    options: ClassVar[Sequence[tuple[str, str]]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.options

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        value = self.value()
        if value is None:
            return queryset
        return self.narrowed(queryset, value) if value in dict(self.lookup_choices) else queryset.none()

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(**{str(self.parameter_name): value})


def _named(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(value, value.replace("_", " ")) for value in values]


def starved() -> Q:
    """Due, and its tenant has as many jobs at work as it may."""
    working = UploadJob.objects.filter(state=State.WORKING, campaign_id=None).values("user_id")
    full = working.annotate(running=Count("pk")).filter(running__gte=settings.JOBS_ACTIVE_PER_USER)
    return Q(user_id__in=full.values("user_id"))


class Standing(Choice):
    title, parameter_name = "standing", "standing"
    options = _named(["queued", "starved", "waiting", "working", "retrying", "dead", "done"])
    plain: ClassVar = {"working": State.WORKING, "retrying": State.RETRYABLE, "dead": State.DEADLETTER}

    def narrowed(self, rows: Rows, value: str) -> Rows:
        due = Q(state=State.QUEUED, run_after=None)
        match value:
            case "queued":
                return rows.filter(due & ~starved())
            case "starved":
                return rows.filter(due & starved())
            case "waiting":
                return rows.filter(state=State.QUEUED, run_after__isnull=False)
        return rows.filter(state=self.plain.get(value, State.DONE))


class InState(Choice):
    title, parameter_name = "state", "state"
    options = _named(State.values)


class InStatus(Choice):
    title, parameter_name = "status", "status"
    options = _named(STATUSES)


class AtStage(Choice):
    title, parameter_name = "stage", "stage"
    options = _named(Stage.values)

    def narrowed(self, rows: Rows, value: str) -> Rows:
        rows = rows.filter(stage=value)
        # Most jobs are done, and those stand at the last stage: what stands elsewhere is found by its state.
        return rows if value == Stage.EMBEDDED else rows.exclude(state=State.DONE)


class OfPipeline(Choice):
    title, parameter_name = "pipeline", "pipeline"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return _named(plan.names())


class AskedBy(Choice):
    title, parameter_name = "asked by", "asked_by"
    options = (("tenant", "a tenant"), ("campaign", "a campaign"))

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(campaign_id__isnull=value == "tenant")


class OlderThan(Choice):
    title, parameter_name = "older than", "older_than"
    options = (("600", "10 minutes"), ("3600", "an hour"), ("86400", "a day"), ("604800", "a week"))

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(created_at__lt=Now() - timedelta(seconds=int(value)))


class Exactly(TextFilter):  # type: ignore[misc]
    """A code that is typed: there are too many rows to read which ones there are."""

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        value = str(self.value() or "").strip()
        return self.narrowed(queryset, value) if value else queryset

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(**{str(self.parameter_name): value})


class ErrorCode(Exactly):
    title, parameter_name = "code of a dead letter", "error_code"

    def narrowed(self, rows: Rows, value: str) -> Rows:
        # As ix_jobs_dead spells it.
        found: Rows = rows.alias(error=KT("last_error__code")).filter(error=value, state=State.DEADLETTER)
        return found


class WaitReason(Exactly):
    title, parameter_name = "wait reason", "wait_reason"

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return rows.filter(wait_reason=value, state=State.QUEUED, run_after__isnull=False)


class EventCode(Exactly):
    title, parameter_name = "code", "code"


class EventType(Choice):
    title, parameter_name = "type", "type"
    options = _named(Event.Type.values)


class EventSeverity(Choice):
    title, parameter_name = "severity", "severity"
    options = _named(Event.Severity.values)


class Lately(Choice):
    """Events are by the million: without a job or a document to look for, only the last ones are looked through."""

    title, parameter_name = "within", "within"
    options = (("900", "15 minutes"), ("86400", "a day"), ("604800", "a week"))
    default = 3600

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        if request.GET.get("q"):
            return queryset  # of one job or document: its own index serves
        value = self.value()
        seconds = int(value) if value in dict(self.options) else self.default
        return queryset.filter(ts__gte=Now() - timedelta(seconds=seconds))

    def choices(self, changelist: Any) -> Iterator[Any]:
        first, *others = super().choices(changelist)
        yield {**first, "display": "an hour"}
        yield from others
