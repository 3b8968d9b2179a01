"""The dead letters at a glance, and a group's retry."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.audit.admin_filters import parse_utc_datetime
from accounts.errors import ApiError
from console import dead_letters, permissions
from jobs import staff_actions
from jobs.admin import report_bulk_result
from jobs.states import CANCELLED_CODES


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    user = permissions.require(request, permissions.VIEW)
    found = dead_letters.groups()
    return permissions.answer(
        request,
        "console/dead_letters.html",
        "Dead letters",
        failed=[group for group in found if not group.is_let_go],
        let_go=[group for group in found if group.is_let_go],
        may_retry="retry" in permissions.verbs(user),
    )


def retry(request: HttpRequest) -> HttpResponse:
    """Ask why, then retry the next of a group, the newest first; what is left is offered again."""
    user = permissions.require(request, permissions.VIEW, staff_actions.PERMISSIONS["retry"])
    asked = request.POST if request.method == "POST" else request.GET
    # No stage and no code has a NUL, and PostgreSQL takes none.
    stage, code = (asked.get(name, "").replace("\0", "") for name in ("stage", "code"))
    before = parse_utc_datetime(asked.get("before", ""))
    if code in CANCELLED_CODES:
        messages.error(request, f"JOB_LET_GO: what is {code} has not failed; retry such a job from its own page.")
        return HttpResponseRedirect(reverse("console:dead-letters"))
    if request.method == "POST":
        dead = dead_letters.batch(stage, code, before=before, size=staff_actions.MAX_JOBS)
        try:
            done = staff_actions.run_bulk_action(
                "retry", [job_id for job_id, _ in dead], by=user, reason=request.POST.get("reason", "")
            )
        except ApiError as refused:
            messages.error(request, f"{refused.code}: {refused.detail}")
        else:
            report_bulk_result(request, "retry", done)
            return HttpResponseRedirect(_rest(stage, code, dead, done))
    count = dead_letters.counted(stage, code, before=before)
    return permissions.answer(
        request,
        "console/retry_group.html",
        "Retry a group",
        stage=stage,
        code=code,
        before=asked.get("before", ""),
        count=min(count, staff_actions.MAX_JOBS),
        is_more=count > staff_actions.MAX_JOBS,
    )


def _rest(stage: str, code: str, dead: list[tuple[UUID, datetime]], done: staff_actions.BulkResult) -> str:
    """Return where to go on: at what was not tried, if there is any of it."""
    tried = len(dead) - done.left
    before = dead[min(tried, len(dead) - 1)][1] if dead else None
    if before is None or (len(dead) < staff_actions.MAX_JOBS and not done.left):
        return reverse("console:dead-letters")
    query = urlencode({"stage": stage, "code": code, "before": before.isoformat()})
    return f"{reverse('console:retry-group')}?{query}"
