"""A job's page: where it stands, what happened to it, what it cost, what is proven, and the buttons that repair it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from accounts.errors import ApiError
from accounts.models import User
from console import invariant_report, permissions, runbook, timeline
from jobs import pipeline, progress, staff_actions
from jobs.admin import ACTION_LABELS, report_bulk_result
from jobs.models import UploadJob
from jobs.states import ACTIVE, State
from statutes.intake import PIPELINE
from statutes.models import LawVersion
from vendors.models import Purchase

MOST_CALLS = 100
MOST_JOBS = 20


def found(job_id: UUID) -> UploadJob:
    jobs = UploadJob.objects.annotate(is_starved=progress.starved_filter()).select_related("document")
    job = jobs.filter(pk=job_id).first()
    if job is None:
        raise Http404
    return job


@require_safe
def page(request: HttpRequest, job_id: UUID) -> HttpResponse:
    user = permissions.require(request, permissions.VIEW)
    job = found(job_id)
    error = job.last_error or {}
    others = UploadJob.objects.filter(document_id=job.document_id).exclude(pk=job.pk).order_by("-created_at")
    calls = Purchase.objects.filter(document_id=job.document_id, job_id=job.pk).order_by("created_at")
    return permissions.answer(
        request,
        "console/job.html",
        f"Job {job.pk}",
        job=job,
        document=job.document,
        law=_law(user, job),
        is_law=job.pipeline == PIPELINE,
        standing=progress.display_status(job, is_starved=getattr(job, "is_starved", False)),
        error=error,
        remedy=runbook.find_failure(error.get("code"), job.pipeline) if error else None,
        wait=runbook.find_wait(job.wait_reason) if job.run_after else None,
        timeline=timeline.of(job, whole=request.GET.get("events") == "all"),
        calls=[(call, timeline.span(_took(call))) for call in calls[:MOST_CALLS]],
        others=others[:MOST_JOBS],
        buttons=list(_buttons(user, job)),
        stages=_stages(job),
        may_read=user.has_perm(permissions.READ),
    )


def _law(user: User, job: UploadJob) -> LawVersion | None:
    """Return the version of a law that the job is about, for who may look at it."""
    if job.pipeline != PIPELINE or not user.has_perm("statutes.view_lawversion"):
        return None
    return LawVersion.objects.only("law_id", "version").filter(pk=job.document_id).first()


def _took(call: Purchase) -> timedelta | None:
    return call.settled_at - call.created_at if call.settled_at else None


def _buttons(user: User, job: UploadJob) -> Iterator[tuple[str, str]]:
    """Yield what this member of staff may do to the job as it is."""
    suited = {"retry", "retry_from"} if job.state == State.DEADLETTER else set()
    if job.state in ACTIVE:
        suited = {"cancel", "discard"}
    for verb in permissions.verbs(user):
        if verb in suited:
            yield verb, ACTION_LABELS[verb]


def _stages(job: UploadJob) -> list[str]:
    """Return the stages that a retry may be asked from: no later one than where the job stands."""
    try:
        return [step.stage.value for step in pipeline.get_pipeline(job.pipeline).steps_through(job.stage)]
    except ImproperlyConfigured:  # no such pipeline here
        return []


@require_safe
def proofs(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """What holds of each stage: a part of the page, fetched by itself, because it reads the store."""
    permissions.require(request, permissions.VIEW)
    job = found(job_id)
    is_part = request.headers.get("HX-Request") == "true"
    template = "console/proofs.html" if is_part else "console/proofs_page.html"
    return permissions.answer(request, template, f"Proofs of job {job.pk}", job=job, proofs=invariant_report.of(job))


@require_POST
def repair(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """A button was pressed."""
    verb = request.POST.get("verb", "")
    user = permissions.require(request, permissions.VIEW, staff_actions.PERMISSIONS.get(verb, "there is no such verb"))
    try:
        staff_actions.run_action(
            verb, job_id, by=user, reason=request.POST.get("reason", ""), stage=request.POST.get("stage")
        )
    except ApiError as refused:
        if refused.code == "NOT_FOUND":
            raise Http404 from refused
        messages.error(request, f"{refused.code}: {refused.detail}")
    else:
        report_bulk_result(request, verb, staff_actions.BulkResult(1))
    return HttpResponseRedirect(reverse("console:job", args=[job_id]))
