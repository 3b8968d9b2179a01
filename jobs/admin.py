"""Admin of jobs and events: read-only lists, filters that an index serves, search by ids, and the staff actions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast
from uuid import UUID

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.module_loading import import_string
from django.utils.timesince import timesince

from accounts import admin_base
from accounts.admin_base import ChoiceFilter, ReadOnlyAdmin, choice_filter, column
from accounts.admin_cells import job_cell, row_names
from accounts.errors import ApiError
from accounts.models import User
from jobs import display_status, pipeline, staff_actions
from jobs.choices import ACTIVE, STATUSES, Stage, State
from jobs.models import UPLOAD_ACCEPTED, Event, UploadJob

ACTION_LABELS = {
    "retry": "Retry",
    "retry_from": "Retry from a stage",
    "cancel": "Cancel",
    "discard": "Move to the dead letters",
}


Rows = QuerySet[Any]
# No index has pipelines: only the newest jobs are searched for them.
NEWEST_JOBS = 20_000
MAX_CORRELATED = 50
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
        if choice == Stage.EMBEDDED:
            return rows.filter(stage=choice)
        # Most jobs are done and stand at the last stage. Of the others ix_jobs_state has the active ones, ix_jobs_dead
        # the dead letters of a stage.
        return rows.filter(Q(state__in=ACTIVE, stage=choice) | Q(state=State.DEADLETTER, stage=choice))


class PipelineFilter(ChoiceFilter):
    title, parameter_name = "pipeline", "pipeline"

    @staticmethod
    def filter_choices() -> list[tuple[str, str]]:
        return _choices(sorted(import_string(settings.JOBS_PIPELINES)))

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        rows = rows.filter(pipeline=choice)
        if pipeline.get_pipeline(choice).campaigns_only:
            return rows.filter(campaign_id__isnull=False)
        oldest = UploadJob.objects.order_by("-created_at", "job_id").values("created_at")[NEWEST_JOBS : NEWEST_JOBS + 1]
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


class ErrorCodeFilter(admin_base.ExactFilter):
    title, parameter_name = "code of a dead letter", "error_code"

    def filter_rows(self, rows: Rows, choice: str) -> Rows:
        # As ix_jobs_dead spells it.
        return cast(Rows, rows.alias(error=KT("last_error__code")).filter(error=choice, state=State.DEADLETTER))


WaitReasonFilter = admin_base.exact_filter("wait_reason", "wait reason", state=State.QUEUED, run_after__isnull=False)
EventCode = admin_base.exact_filter("code", "code")
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


def find_correlated_jobs(correlation_id: UUID) -> list[UUID]:
    """Return the jobs of the request that had this ``X-Correlation-ID``, by the events that accepted their uploads."""
    accepted = Event.objects.filter(correlation_id=correlation_id, code=UPLOAD_ACCEPTED)
    return list(accepted.values_list("job_id", flat=True)[:MAX_CORRELATED])


def _selected_ids(request: HttpRequest) -> list[UUID]:
    return [UUID(job_id) for job_id in request.POST.getlist(ACTION_CHECKBOX_NAME)]


def _action(verb: str, permission: str) -> Any:
    @admin.action(description=ACTION_LABELS[verb], permissions=[permission])
    def run(self: UploadJobAdmin, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        return self.confirm_and_run(verb, request)

    run.__name__ = verb
    return run


@admin.register(UploadJob)
class UploadJobAdmin(ReadOnlyAdmin):
    # No column is named like a foreign key: Django would join the whole table before it sorts.
    list_display = (
        "job", "user_id", "standing", "at_stage", "code", "age", "cost_cents",
    )  # fmt: skip
    list_display_links = None
    list_filter = (
        DisplayStatusFilter, StateFilter, StatusFilter,
        StageFilter, ErrorCodeFilter, WaitReasonFilter,
        PipelineFilter, OriginFilter, AgeFilter,
    )  # fmt: skip
    list_disable_select_all = True  # the dead-letter page retries groups of any size
    id_fields = ("job_id", "document_id", "user_id")
    search_help_text = "A whole id: of a job, a document, a tenant, a statute, or an upload's X-Correlation-ID"
    # Other apps add functions that return the documents of an id that only they know.
    document_lookups: ClassVar[list[Callable[[str], Collection[UUID]]]] = []
    ordering = ("-created_at", "job_id")
    actions = ("retry", "retry_from", "cancel", "discard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[UploadJob]:
        return UploadJob.objects.defer("payload", "progress", "traceback").annotate(
            is_starved=display_status.starved_filter()
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UploadJob], search_term: str
    ) -> tuple[QuerySet[UploadJob], bool]:
        rows, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip().replace("\0", "")
        if not term or rows.exists():
            return rows, may_repeat
        for lookup in self.document_lookups:
            if document_ids := lookup(term):
                return queryset.filter(document_id__in=document_ids), may_repeat
        try:
            return queryset.filter(pk__in=find_correlated_jobs(UUID(term))), may_repeat
        except ValueError:
            return rows, may_repeat

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            return HttpResponseRedirect(reverse("console:job", args=[UUID(object_id)]))
        except ValueError:
            return HttpResponseRedirect(reverse("admin:jobs_uploadjob_changelist"))

    def response_action(self, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        try:
            _selected_ids(request)
        except ValueError:
            messages.error(request, "A selected row is not a job; select again.")
            return HttpResponseRedirect(request.get_full_path())
        return cast("HttpResponse | None", super().response_action(request, queryset))

    job = column("job", lambda job: job_cell(job.pk, row_names(job).find("document", job.document_id) or ""))
    at_stage = column("stage", lambda job: job.stage)
    standing = column("standing", lambda job: display_status.display_status(job, is_starved=job.is_starved))
    code = column(
        "error or wait", lambda job: (job.last_error or {}).get("code") or (job.run_after and job.wait_reason)
    )
    age = column("age", lambda job: timesince(job.created_at, timezone.now(), depth=1))

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(staff_actions.PERMISSIONS["retry"])

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(staff_actions.PERMISSIONS["cancel"])

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(staff_actions.PERMISSIONS["discard"])

    retry, retry_from = _action("retry", "retry"), _action("retry_from", "retry")
    cancel, discard = _action("cancel", "cancel"), _action("discard", "discard")

    def confirm_and_run(self, verb: str, request: HttpRequest) -> HttpResponse | None:
        """Ask for a reason and show the count of jobs; once confirmed, run the action."""
        job_ids = _selected_ids(request)
        if "confirmed" in request.POST:
            by, reason = cast(User, request.user), request.POST.get("reason", "")
            try:
                bulk = staff_actions.run_bulk_action(
                    verb, job_ids, by=by, reason=reason, stage=request.POST.get("stage")
                )
            except ApiError as error:
                messages.error(request, f"{error.code}: {error.detail}")
            else:
                report_bulk_result(request, verb, bulk)
                return None
        context = {
            **self.admin_site.each_context(request), "title": ACTION_LABELS[verb], "opts": self.opts, "verb": verb,
            "count": len(job_ids), "job_ids": job_ids,
            "stages": _choices(Stage.values) if verb == "retry_from" else None,
        }  # fmt: skip
        return TemplateResponse(request, "admin/jobs/uploadjob/repair.html", context)


DONE = {"retry": "retried", "retry_from": "retried", "cancel": "cancelled", "discard": "moved to the dead letters"}


def report_bulk_result(request: HttpRequest, verb: str, bulk: staff_actions.BulkResult) -> None:
    """Add messages: how many jobs were changed, and the error codes of the others."""
    if bulk.count:
        messages.success(request, f"{bulk.count} {'job' if bulk.count == 1 else 'jobs'} {DONE[verb]}.")
    for code, count in sorted(bulk.refused.items()):
        messages.warning(request, f"{count} not {DONE[verb]}: {code}.")
    if bulk.left:
        messages.warning(request, f"{bulk.left} were not tried: too many for one request.")


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("ts", "code", "how_severe", "stage", "of_job", "user_id")
    list_display_links = None
    list_filter = (
        RecentFilter, EventSeverity, EventType, EventCode,
    )  # fmt: skip
    id_fields = ("job_id", "document_id")
    ordering = ("-ts", "event_id")

    how_severe = column("severity", lambda event: event.severity)
    of_job = column(
        "job", lambda event: job_cell(event.job_id, row_names(event).find("document", event.document_id) or "")
    )
    stage = column("stage", lambda event: event.payload.get("stage"))
