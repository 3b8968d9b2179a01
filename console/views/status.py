"""Status page of vendors and connected systems, with history."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console import service_status
from console.views import render_page, require_permissions
from metrics import rollup_queries

PERMISSION = "vendors.view_breaker"


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    require_permissions(request, PERMISSION)
    now = rollup_queries.database_time()
    groups = [
        ("Vendors", service_status.vendors(now), "No vendor has been called in three days. Each would be here."),
        (
            "Connected systems",
            service_status.connected_systems(now),
            "No connector has synced in three days. Each provider would be here.",
        ),
    ]
    return render_page(request, "console/status.html", "Status", groups=groups, is_live=True)
