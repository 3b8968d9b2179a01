"""Pauses page: what staff has paused, by whom and why, with forms to pause and to resume."""

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.module_loading import import_string
from django.views.decorators.http import require_POST

from accounts.admin_cells import find_names
from accounts.errors import ApiError
from accounts.models import User
from console.views import render_page, require_permissions
from jobs import pauses
from jobs.models import Pause
from vendors.models import RateLimit

VIEW_PAUSES, CHANGE_PAUSES = "jobs.view_pause", "jobs.change_pause"


def page(request: HttpRequest) -> HttpResponse:
    """List the pauses; a POST makes one."""
    user = require_permissions(request, VIEW_PAUSES)
    if request.method == "POST":
        require_permissions(request, CHANGE_PAUSES)
        kind, subject, reason = (request.POST.get(name, "") for name in ("kind", "subject", "reason"))
        try:
            new_pause = pauses.pause(
                kind=kind, subject=_subject_id(kind, subject), known=_subjects(kind, subject), by=user, reason=reason
            )
        except ApiError as error:
            messages.error(request, f"{error.code}: {error.detail}")
        else:
            messages.success(request, f"The {new_pause.kind} is paused. Stages that run are completed.")
            return HttpResponseRedirect(reverse("console:pauses"))
    rows = list(Pause.objects.order_by("-paused_at", "pause_id"))
    tenants = [UUID(row.subject) for row in rows if row.kind == Pause.Kind.TENANT]
    return render_page(
        request,
        "console/pauses.html",
        "Pauses",
        rows=[(row, UUID(row.subject) if row.kind == Pause.Kind.TENANT else None) for row in rows],
        names=find_names(user, tenant=[*tenants, *(row.paused_by for row in rows)]),
        may_change=user.has_perm(CHANGE_PAUSES),
        kinds=Pause.Kind.values,
        known=[*_subjects(Pause.Kind.PIPELINE, ""), *_subjects(Pause.Kind.VENDOR, "")],
        chosen={name: request.GET.get(name, "") for name in ("kind", "subject")},
    )


@require_POST
def resume(request: HttpRequest, pause_id: UUID) -> HttpResponse:
    user = require_permissions(request, VIEW_PAUSES, CHANGE_PAUSES)
    try:
        row = pauses.resume(pause_id, by=user, reason=request.POST.get("reason", ""))
    except ApiError as error:
        messages.error(request, f"{error.code}: {error.detail}")
    else:
        messages.success(request, f"The {row.kind} goes on.")
    return HttpResponseRedirect(reverse("console:pauses"))


def _subject_id(kind: str, subject: str) -> str:
    """Return a tenant's id for its e-mail address; all else as it is."""
    subject = subject.replace("\0", "").strip()
    if kind != Pause.Kind.TENANT or "@" not in subject:
        return subject.lower()
    user_id = User.objects.filter(email=subject.lower()).values_list("pk", flat=True).first()
    return str(user_id or "")


def _subjects(kind: str, subject: str) -> list[str]:
    """Return the subjects of a kind that there are; of tenants the one that is named."""
    if kind == Pause.Kind.PIPELINE:
        return sorted(import_string(settings.JOBS_PIPELINES))
    if kind == Pause.Kind.VENDOR:
        return sorted({key.partition(":")[0] for key in RateLimit.objects.values_list("key", flat=True)})
    try:
        tenant_id = UUID(_subject_id(kind, subject))
    except ValueError:
        return []
    return [str(tenant_id)] if User.objects.filter(pk=tenant_id).exists() else []
