"""Job page: status, timeline, cost, invariants, and the buttons that repair a job."""

from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from accounts.admin_cells import find_names
from accounts.errors import ApiError
from accounts.models import User
from accounts.number_formats import format_money
from console.job_invariants import invariant_report
from console.remedies import find_failure, find_wait, tried_remedies
from console.timeline import format_elapsed, job_timeline
from console.views import READ, VIEW, allowed_actions, render_page, reprocessing, require_permissions
from documents.parsers import pdf_parser, registry
from jobs import display_status, pipeline, services, staff_actions
from jobs.admin import ACTION_LABELS, report_bulk_result
from jobs.choices import ACTIVE, Stage, State
from jobs.models import UploadJob
from statutes.intake import PIPELINE
from statutes.models import LawVersion
from vendors import ledger
from vendors.models import Purchase

MAX_CALLS = 100
MAX_OTHER_JOBS = 20


def get_job(job_id: UUID) -> UploadJob:
    jobs = UploadJob.objects.annotate(is_starved=display_status.starved_filter()).select_related("document")
    job = jobs.filter(pk=job_id).first()
    if job is None:
        raise Http404
    return job


@require_safe
def job_page(request: HttpRequest, job_id: UUID) -> HttpResponse:
    user = require_permissions(request, VIEW)
    job = get_job(job_id)
    error = job.last_error or {}
    law = None
    if job.pipeline == PIPELINE and user.has_perm("statutes.view_lawversion"):
        law = LawVersion.objects.only("law_id", "version").filter(pk=job.document_id).first()
    others = UploadJob.objects.filter(document_id=job.document_id).exclude(pk=job.pk).order_by("-created_at")
    calls = Purchase.objects.filter(document_id=job.document_id, job_id=job.pk).order_by("created_at")
    names = find_names(user, tenant=[job.user_id], document=[job.document_id])
    return render_page(
        request,
        "console/job.html",
        f"Job of {names.find('document', job.document_id) or str(job.pk)[:8]}",
        is_live=True,
        names=names,
        links=_links(user, job),
        job=job,
        document=job.document,
        law=law,
        is_law=job.pipeline == PIPELINE,
        standing=display_status.display_status(job, is_starved=getattr(job, "is_starved", False)),
        unsettled_cents=services.sum_unsettled_cents([job]).get(job.pk, 0),
        error=error,
        remedy=find_failure(error.get("code"), job.pipeline) if error else None,
        tried=tried_remedies([error["code"]]).get(error["code"]) if error.get("code") else None,
        wait=find_wait(job.wait_reason) if job.run_after else None,
        timeline=job_timeline(job, whole=request.GET.get("events") == "all"),
        calls=[
            (call, format_elapsed(call.settled_at - call.created_at if call.settled_at else None))
            for call in calls[:MAX_CALLS]
        ],
        others=others[:MAX_OTHER_JOBS],
        buttons=_buttons(user, job),
        stages=_retry_stages(job),
        may_read=user.has_perm(READ),
        may_reprocess=job.state == State.DONE and job.pipeline != PIPELINE and user.has_perm(reprocessing.PERMISSION),
    )


def _links(user: User, job: UploadJob) -> list[tuple[str, str]]:
    """Return the lists that have rows of the job or its document."""
    pages = [("Status of vendors", reverse("console:status"))] if user.has_perm("vendors.view_breaker") else []
    return pages + [
        (label, f"{reverse(f'admin:{page}_changelist')}?q={pk}")
        for label, page, permission, pk in (
            ("Purchases", "vendors_purchase", "vendors.view_purchase", job.document_id),
            ("Callbacks and parses", "documents_parserequest", "documents.view_parserequest", job.document_id),
            ("Events", "jobs_event", "jobs.view_event", job.pk),
            ("Passages", "embeddings_documentchunk", "embeddings.view_documentchunk", job.document_id),
            ("Audit log", "audit_auditentry", "audit.view_auditentry", job.pk),
        )
        if user.has_perm(permission)
    ]


def _buttons(user: User, job: UploadJob) -> list[tuple[str, str]]:
    fitting = {"retry", "retry_from"} if job.state == State.DEADLETTER else set()
    if job.state in ACTIVE:
        fitting = {"cancel", "discard"}
    return [(verb, ACTION_LABELS[verb]) for verb in allowed_actions(user) if verb in fitting]


def _retry_stages(job: UploadJob) -> list[tuple[str, str]]:
    """Return the stages that a retry may start from, none later than the job's own, each with what it may buy."""
    try:
        steps = pipeline.get_pipeline(job.pipeline).steps_through(job.stage)
    except ImproperlyConfigured:  # the pipeline is not deployed here
        return []
    return [(step.stage.value, f"{step.stage.value}{_predict_purchases(job, step.stage)}") for step in steps]


def _predict_purchases(job: UploadJob, stage: Stage) -> str:
    """Say what another plan would buy from ``stage`` on: the same plan buys nothing that is stored."""
    pages, order = job.document.pages, list(Stage)
    if pages is None or job.pipeline == PIPELINE or order.index(stage) > order.index(Stage.EMBEDDING):
        return ""
    is_parsed = order.index(stage) >= order.index(Stage.PARSED)
    is_local = is_parsed or registry.configured_parser(ocr=job.document.ocr).name == pdf_parser.NAME
    cents = ledger.predict_price(pages, is_local=is_local)[1]
    return f": may buy for about {format_money(float(cents))}" if cents else ": buys nothing"


@require_safe
def invariants(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Show the invariant report: a part of the job page that is fetched on its own, because it reads the store."""
    require_permissions(request, VIEW)
    job = get_job(job_id)
    is_part = request.headers.get("HX-Request") == "true"
    template = "console/invariants.html" if is_part else "console/invariants_page.html"
    return render_page(request, template, f"Invariants of job {job.pk}", job=job, report=invariant_report(job))


@require_POST
def repair(request: HttpRequest, job_id: UUID) -> HttpResponse:
    verb, reason = (request.POST.get(name, "") for name in ("verb", "reason"))
    user = require_permissions(request, VIEW, staff_actions.PERMISSIONS.get(verb, "there is no such verb"))
    try:
        staff_actions.run_action(verb, job_id, by=user, reason=reason, stage=request.POST.get("stage"))
    except ApiError as error:
        if error.code == "NOT_FOUND":
            raise Http404 from error
        messages.error(request, f"{error.code}: {error.detail}")
    else:
        report_bulk_result(request, verb, staff_actions.BulkResult(1))
    return HttpResponseRedirect(reverse("console:job", args=[job_id]))
