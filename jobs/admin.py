"""Jobs and events as support looks at them, and the buttons that repair jobs. Nobody edits a row by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, cast
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.timesince import timesince

from accounts.audit.admin_base import ReadOnlyAdmin
from accounts.errors import ApiError
from accounts.models import User
from jobs import admin_filters, staff_actions
from jobs import progress as standing
from jobs.models import Event, UploadJob
from jobs.states import Stage

# No index has them: looked for among the newest jobs only, for which support usually asks.
CORRELATED_AMONG = 20_000
ACTION_LABELS = {
    "retry": "Retry",
    "retry_from": "Retry from a stage",
    "cancel": "Cancel",
    "discard": "Move to the dead letters",
}


def nowrap(value: object) -> str:
    """Show what people copy in one piece, in one line."""
    return format_html('<span class="whitespace-nowrap">{}</span>', value)


def job_link(job_id: UUID) -> str:
    """Show a job's id as the way to its page."""
    page = reverse("console:job", args=[job_id])
    return format_html('<a class="whitespace-nowrap underline" href="{}">{}</a>', page, job_id)


@admin.register(UploadJob)
class UploadJobAdmin(ReadOnlyAdmin):
    # None is called like a foreign key: for such a column Django joins its whole table before it sorts.
    list_display = (
        "job", "standing", "at_stage", "in_state", "code", "wait_reason", "attempts", "age", "cost_cents", "pipeline",
        "of_document", "tenant",
    )  # fmt: skip
    list_display_links = None
    list_filter = (
        admin_filters.DisplayStatusFilter, admin_filters.StateFilter, admin_filters.StatusFilter,
        admin_filters.StageFilter, admin_filters.ErrorCodeFilter, admin_filters.WaitReasonFilter,
        admin_filters.PipelineFilter, admin_filters.OriginFilter, admin_filters.AgeFilter,
    )  # fmt: skip
    list_disable_select_all = True  # a group of any size is retried from the dead letters
    id_fields = ("job_id", "document_id", "user_id")
    search_help_text = "A whole id: of a job, a document, a tenant, a law, or of a recent upload's correlation"
    # Which documents are meant by an id that only another app knows: it adds a function of its own.
    document_lookups: ClassVar[list[Callable[[str], Collection[UUID]]]] = []
    ordering = ("-created_at", "job_id")
    actions = ("retry", "retry_from", "cancel", "discard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[UploadJob]:
        return UploadJob.objects.defer("payload", "progress", "traceback").annotate(
            is_starved=standing.starved_filter()
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UploadJob], search_term: str
    ) -> tuple[QuerySet[UploadJob], bool]:
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip().replace("\0", "")
        if not term or found.exists():
            return found, may_repeat
        for documents_of in self.document_lookups:
            if document_ids := documents_of(term):
                return queryset.filter(document_id__in=document_ids), may_repeat
        try:
            wanted = UUID(term)
        except ValueError:
            return found, may_repeat
        newest = UploadJob.objects.order_by("-created_at", "job_id").values_list("pk", "correlation_id")
        correlated = [pk for pk, correlation_id in newest[:CORRELATED_AMONG] if correlation_id == wanted]
        return queryset.filter(pk__in=correlated), may_repeat

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """A job has a page of its own."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            return HttpResponseRedirect(reverse("console:job", args=[UUID(object_id)]))
        except ValueError:
            return HttpResponseRedirect(reverse("admin:jobs_uploadjob_changelist"))

    def response_action(self, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        try:
            for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME):
                UUID(chosen)
        except ValueError:
            messages.error(request, "What was chosen is no job; choose again.")
            return HttpResponseRedirect(request.get_full_path())
        return cast("HttpResponse | None", super().response_action(request, queryset))

    @admin.display(description="job")
    def job(self, job: UploadJob) -> str:
        return job_link(job.pk)

    @admin.display(description="document")
    def of_document(self, job: UploadJob) -> str:
        return nowrap(job.document_id)

    @admin.display(description="tenant")
    def tenant(self, job: UploadJob) -> str:
        return nowrap(job.user_id)

    @admin.display(description="stage")
    def at_stage(self, job: UploadJob) -> str:
        return job.stage

    @admin.display(description="state")
    def in_state(self, job: UploadJob) -> str:
        return job.state

    @admin.display(description="standing")
    def standing(self, job: UploadJob) -> str:
        return standing.display_status(job, is_starved=getattr(job, "is_starved", False))

    @admin.display(description="error")
    def code(self, job: UploadJob) -> str | None:
        return (job.last_error or {}).get("code")

    @admin.display(description="age")
    def age(self, job: UploadJob) -> str:
        return timesince(job.created_at, timezone.now(), depth=1)

    # What may be done, each with its permission.

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(staff_actions.PERMISSIONS["retry"])

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(staff_actions.PERMISSIONS["cancel"])

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(staff_actions.PERMISSIONS["discard"])

    @admin.action(description=ACTION_LABELS["retry"], permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        return self._repair("retry", request)

    @admin.action(description=ACTION_LABELS["retry_from"], permissions=["retry"])
    def retry_from(self, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        return self._repair("retry_from", request)

    @admin.action(description=ACTION_LABELS["cancel"], permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        return self._repair("cancel", request)

    @admin.action(description=ACTION_LABELS["discard"], permissions=["discard"])
    def discard(self, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        return self._repair("discard", request)

    def _repair(self, verb: str, request: HttpRequest) -> HttpResponse | None:
        """Ask why and say how many; done once that has been confirmed."""
        job_ids = [UUID(chosen) for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME)]
        if "confirmed" in request.POST:
            by, posted = cast(User, request.user), request.POST
            try:
                done = staff_actions.run_bulk_action(
                    verb, job_ids, by=by, reason=posted.get("reason", ""), stage=posted.get("stage")
                )
            except ApiError as refused:
                messages.error(request, f"{refused.code}: {refused.detail}")
            else:
                report_bulk_result(request, verb, done)
                return None
        context = {
            **self.admin_site.each_context(request), "title": ACTION_LABELS[verb], "opts": self.opts, "verb": verb,
            "count": len(job_ids), "job_ids": job_ids, "stages": Stage.values if verb == "retry_from" else None,
        }  # fmt: skip
        return TemplateResponse(request, "admin/jobs/uploadjob/repair.html", context)


DONE = {"retry": "retried", "retry_from": "retried", "cancel": "cancelled", "discard": "moved to the dead letters"}


def report_bulk_result(request: HttpRequest, verb: str, done: staff_actions.BulkResult) -> None:
    """Say how many were done, and why others were not."""
    if done.count:
        messages.success(request, f"{done.count} {'job' if done.count == 1 else 'jobs'} {DONE[verb]}.")
    for code, count in sorted(done.refused.items()):
        messages.warning(request, f"{count} not {DONE[verb]}: {code}.")
    if done.left:
        messages.warning(request, f"{done.left} were left for another time: too many for one request.")


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("at", "code", "of_type", "how_severe", "stage", "attempt", "of_job", "of_document", "tenant")
    list_display_links = None
    list_filter = (
        admin_filters.RecentFilter,
        admin_filters.EventSeverity,
        admin_filters.EventType,
        admin_filters.EventCode,
    )
    id_fields = ("job_id", "document_id")
    ordering = ("-ts", "event_id")

    @admin.display(description="when, UTC")
    def at(self, event: Event) -> str:
        return nowrap(f"{event.ts:%Y-%m-%d %H:%M:%S}")

    @admin.display(description="type")
    def of_type(self, event: Event) -> str:
        return event.type

    @admin.display(description="severity")
    def how_severe(self, event: Event) -> str:
        return event.severity

    @admin.display(description="job")
    def of_job(self, event: Event) -> str:
        return job_link(event.job_id)

    @admin.display(description="document")
    def of_document(self, event: Event) -> str:
        return nowrap(event.document_id)

    @admin.display(description="tenant")
    def tenant(self, event: Event) -> str:
        return nowrap(event.user_id)

    @admin.display(description="stage")
    def stage(self, event: Event) -> str | None:
        return cast("str | None", event.payload.get("stage"))

    @admin.display(description="attempt")
    def attempt(self, event: Event) -> int | None:
        return cast("int | None", event.payload.get("attempt"))
