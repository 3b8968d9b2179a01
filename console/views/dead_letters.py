"""Dead letters page, and the retry of a group."""

from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.admin_base import parse_utc_datetime
from accounts.admin_cells import find_names
from accounts.errors import ApiError
from console import dead_letter_groups
from console.views import VIEW, allowed_actions, render_page, require_permissions
from jobs import staff_actions
from jobs.admin import report_bulk_result
from jobs.choices import CANCELLED_CODES
from jobs.error_codes import JOB_LET_GO


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    user = require_permissions(request, VIEW)
    groups = dead_letter_groups.groups()
    samples = [job for group in groups for job in group.samples]
    names = find_names(
        user, tenant=(job["user_id"] for job in samples), document=(job["document_id"] for job in samples)
    )
    return render_page(
        request,
        "console/dead_letters.html",
        "Dead letters",
        is_live=True,
        names=names,
        failed=[group for group in groups if not group.is_cancelled],
        cancelled=[group for group in groups if group.is_cancelled],
        may_retry="retry" in allowed_actions(user),
    )


def retry(request: HttpRequest) -> HttpResponse:
    """Ask for a reason, then retry the newest jobs of a group; the form offers the rest again."""
    user = require_permissions(request, VIEW, staff_actions.PERMISSIONS["retry"])
    params = request.POST if request.method == "POST" else request.GET
    # No stage and no code has a NUL, and PostgreSQL accepts none.
    stage, code = (params.get(name, "").replace("\0", "") for name in ("stage", "code"))
    before = parse_utc_datetime(params.get("before", ""))
    if code in CANCELLED_CODES:
        messages.error(request, f"{JOB_LET_GO}: a job with {code} has not failed; retry it from its own page.")
        return HttpResponseRedirect(reverse("console:dead-letters"))
    if request.method == "POST":
        batch = dead_letter_groups.retry_batch(stage, code, before=before, size=staff_actions.MAX_JOBS)
        job_ids = [job_id for job_id, _ in batch]
        try:
            retried = staff_actions.run_bulk_action("retry", job_ids, by=user, reason=request.POST.get("reason", ""))
        except ApiError as error:
            messages.error(request, f"{error.code}: {error.detail}")
        else:
            report_bulk_result(request, "retry", retried)
            return HttpResponseRedirect(_next_url(stage, code, batch, retried))
    count = dead_letter_groups.count_jobs(stage, code, before=before)
    return render_page(
        request,
        "console/retry_form.html",
        "Retry a group",
        stage=stage,
        code=code,
        before=params.get("before", ""),
        count=min(count, staff_actions.MAX_JOBS),
        is_more=count > staff_actions.MAX_JOBS,
    )


def _next_url(stage: str, code: str, batch: list[tuple[UUID, datetime]], retried: staff_actions.BulkResult) -> str:
    """Return the form for the jobs that were not retried; without any, the dead letters page."""
    attempted = len(batch) - retried.left
    before = batch[min(attempted, len(batch) - 1)][1] if batch else None
    if before is None or (len(batch) < staff_actions.MAX_JOBS and not retried.left):
        return reverse("console:dead-letters")
    query = urlencode({"stage": stage, "code": code, "before": before.isoformat()})
    return f"{reverse('console:retry-group')}?{query}"
