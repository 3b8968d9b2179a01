"""The dead letters at a glance, and a group's retry."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from auditing.filters import moment
from console import access, dead_letters
from jobs import repairs
from jobs.admin import tell
from jobs.states import LET_GO
from tenancy.refusals import Refused


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    user = access.require(request, access.VIEW)
    found = dead_letters.groups()
    return access.answer(
        request,
        "console/dead_letters.html",
        "Dead letters",
        failed=[group for group in found if not group.is_let_go],
        let_go=[group for group in found if group.is_let_go],
        may_retry="retry" in access.verbs(user),
    )


def retry(request: HttpRequest) -> HttpResponse:
    """Ask why, then retry the next of a group, the newest first; what is left is offered again."""
    user = access.require(request, access.VIEW, repairs.PERMISSIONS["retry"])
    asked = request.POST if request.method == "POST" else request.GET
    # No stage and no code has a NUL, and PostgreSQL takes none.
    stage, code = (asked.get(name, "").replace("\0", "") for name in ("stage", "code"))
    before = moment(asked.get("before", ""))
    if code in LET_GO:
        messages.error(request, f"JOB_LET_GO: what is {code} has not failed; retry such a job from its own page.")
        return HttpResponseRedirect(reverse("console:dead-letters"))
    if request.method == "POST":
        dead = dead_letters.batch(stage, code, before=before, size=repairs.MOST)
        try:
            done = repairs.many("retry", [job_id for job_id, _ in dead], by=user, reason=request.POST.get("reason", ""))
        except Refused as refused:
            messages.error(request, f"{refused.code}: {refused.detail}")
        else:
            tell(request, "retry", done)
            return HttpResponseRedirect(_rest(stage, code, dead, done))
    count = dead_letters.counted(stage, code, before=before)
    return access.answer(
        request,
        "console/retry_group.html",
        "Retry a group",
        stage=stage,
        code=code,
        before=asked.get("before", ""),
        count=min(count, repairs.MOST),
        is_more=count > repairs.MOST,
    )


def _rest(stage: str, code: str, dead: list[tuple[UUID, datetime]], done: repairs.Done) -> str:
    """Return where to go on: at what was not tried, if there is any of it."""
    tried = len(dead) - done.left
    before = dead[min(tried, len(dead) - 1)][1] if dead else None
    if before is None or (len(dead) < repairs.MOST and not done.left):
        return reverse("console:dead-letters")
    query = urlencode({"stage": stage, "code": code, "before": before.isoformat()})
    return f"{reverse('console:retry-group')}?{query}"
