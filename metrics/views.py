"""View of ``/metrics``, for a Prometheus that has the token or runs on this host."""

from http import HTTPStatus
from ipaddress import ip_address

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from accounts.sign_in import is_proxied
from metrics.prometheus_collector import Collector

TIMEOUT_SECONDS = 5


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics in Prometheus' text format; 403 without permission, 503 without a database."""
    if not _may_read(request):
        return HttpResponse("Forbidden.\n", status=HTTPStatus.FORBIDDEN, content_type="text/plain")
    registry = CollectorRegistry()
    registry.register(Collector())
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{TIMEOUT_SECONDS}s"])
        content = generate_latest(registry)
    return HttpResponse(content, content_type=CONTENT_TYPE_PLAIN_0_0_4, headers={"Cache-Control": "no-store"})


def _may_read(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        header = request.headers.get("Authorization", "")
        return constant_time_compare(header.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    try:
        is_local = ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
    return is_local and not is_proxied(request)
