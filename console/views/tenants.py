"""Tenant page: who it is, the newest documents, what was spent, and links to everything else of the tenant."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.admin_cells import find_names
from accounts.models import User
from console import tenant_overview
from console.views import VIEW, render_page, require_permissions
from jobs.models import Pause

# Lists of the admin that are searched or filtered by a tenant's id, and their permission.
LISTS = (
    ("Jobs", "jobs_uploadjob", "q", VIEW),
    ("Documents", "documents_document", "user_id", "documents.view_document"),
    ("Purchases", "vendors_purchase", "user_id", "vendors.view_purchase"),
    ("Connectors", "integrations_connectedsource", "q", "integrations.view_connectedsource"),
    ("Webhook endpoints", "outbox_webhookendpoint", "q", "outbox.view_webhookendpoint"),
    ("Budget", "vendors_budget", "q", "vendors.view_budget"),
    ("API tokens", "accounts_apitoken", "q", "accounts.view_apitoken"),
    ("Audit log", "audit_auditentry", "tenant_id", "audit.view_auditentry"),
)


def pauses_of(tenant: User) -> list[Pause]:
    return list(Pause.objects.filter(kind=Pause.Kind.TENANT, subject=str(tenant.pk)))


@require_safe
def page(request: HttpRequest, user_id: UUID) -> HttpResponse:
    user = require_permissions(request, "accounts.view_user", VIEW)
    tenant = get_object_or_404(User, pk=user_id)
    rows = tenant_overview.newest_documents(tenant)
    spending = tenant_overview.recent_spending(tenant) if user.has_perm("vendors.view_purchase") else None
    shown: list[UUID | None] = [row.document.pk for row in rows]
    shown += [cost.document_id for cost in spending.costs] if spending else []
    links = [
        (label, f"{reverse(f'admin:{page}_changelist')}?{parameter}={tenant.pk}")
        for label, page, parameter, permission in LISTS
        if user.has_perm(permission)
    ]
    return render_page(
        request,
        "console/tenant.html",
        f"Tenant {tenant.email}",
        is_live=True,
        tenant=tenant,
        rows=rows,
        spending=spending,
        spend_days=tenant_overview.SPEND_DAYS,
        names=find_names(user, document=shown),
        links=links,
        pauses=pauses_of(tenant),
        most=tenant_overview.MAX_DOCUMENTS,
    )
