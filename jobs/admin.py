"""Admin of jobs and events: read-only lists, search by ids, and the staff actions retry, cancel and discard."""

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

from accounts.audit.admin_base import ReadOnlyAdmin, column, nowrap
from accounts.error_codes import ApiError
from accounts.models import User
from jobs import admin_filters, display_status, staff_actions
from jobs.choices import Stage
from jobs.models import Event, UploadJob

CORRELATION_SEARCH_JOBS = 20_000  # no index has correlation ids: only the newest jobs are searched
ACTION_LABELS = {
    "retry": "Retry",
    "retry_from": "Retry from a stage",
    "cancel": "Cancel",
    "discard": "Move to the dead letters",
}


def job_link(job_id: UUID) -> str:
    """Return a link to the job's page."""
    page = reverse("console:job", args=[job_id])
    return format_html('<a class="whitespace-nowrap underline" href="{}">{}</a>', page, job_id)


def _selected_ids(request: HttpRequest) -> list[UUID]:
    return [UUID(job_id) for job_id in request.POST.getlist(ACTION_CHECKBOX_NAME)]


def _action(verb: str, permission: str) -> Any:
    """Return the admin action of a staff action."""

    @admin.action(description=ACTION_LABELS[verb], permissions=[permission])
    def run(self: UploadJobAdmin, request: HttpRequest, queryset: QuerySet[UploadJob]) -> HttpResponse | None:
        return self.confirm_and_run(verb, request)

    run.__name__ = verb
    return run


@admin.register(UploadJob)
class UploadJobAdmin(ReadOnlyAdmin):
    # No column is named like a foreign key: Django would join the whole table before it sorts.
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
    list_disable_select_all = True  # the dead-letter page retries groups of any size
    id_fields = ("job_id", "document_id", "user_id")
    search_help_text = "A whole id: of a job, a document, a tenant, a statute, or of a recent upload's correlation"
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
            term_id = UUID(term)
        except ValueError:
            return rows, may_repeat
        newest = UploadJob.objects.order_by("-created_at", "job_id").values_list("pk", "correlation_id")
        correlated = [pk for pk, correlation_id in newest[:CORRELATION_SEARCH_JOBS] if correlation_id == term_id]
        return queryset.filter(pk__in=correlated), may_repeat

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Redirect to the job's page in the console."""
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

    job = column("job", lambda job: job_link(job.pk))
    of_document = column("document", lambda job: nowrap(job.document_id))
    tenant = column("tenant", lambda job: nowrap(job.user_id))
    at_stage = column("stage", lambda job: job.stage)
    in_state = column("state", lambda job: job.state)
    standing = column("standing", lambda job: display_status.display_status(job, is_starved=job.is_starved))
    code = column("error", lambda job: (job.last_error or {}).get("code"))
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
            "count": len(job_ids), "job_ids": job_ids, "stages": Stage.values if verb == "retry_from" else None,
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
    list_display = ("at", "code", "of_type", "how_severe", "stage", "attempt", "of_job", "of_document", "tenant")
    list_display_links = None
    list_filter = (
        admin_filters.RecentFilter, admin_filters.EventSeverity, admin_filters.EventType, admin_filters.EventCode,
    )  # fmt: skip
    id_fields = ("job_id", "document_id")
    ordering = ("-ts", "event_id")

    at = column("when, UTC", lambda event: nowrap(f"{event.ts:%Y-%m-%d %H:%M:%S}"))
    of_type = column("type", lambda event: event.type)
    how_severe = column("severity", lambda event: event.severity)
    of_job = column("job", lambda event: job_link(event.job_id))
    of_document = column("document", lambda event: nowrap(event.document_id))
    tenant = column("tenant", lambda event: nowrap(event.user_id))
    stage = column("stage", lambda event: event.payload.get("stage"))
    attempt = column("attempt", lambda event: event.payload.get("attempt"))
