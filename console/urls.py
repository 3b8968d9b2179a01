"""URLs of staff pages, below the admin's address."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.urls import URLPattern, path

from console.views import dead_letters, documents, find, jobs, pauses, reprocessing, status, tenants

app_name = "console"


def _admin_path(route: str, view: Callable[..., Any], name: str) -> URLPattern:
    return path(route, admin.site.admin_view(view), name=name)


urlpatterns: list[URLPattern] = [
    _admin_path("find/", find.find, "find"),
    _admin_path("find/beginnings/", find.find_by_prefix, "find-prefix"),
    _admin_path("pauses/", pauses.page, "pauses"),
    _admin_path("pauses/<uuid:pause_id>/resume/", pauses.resume, "resume"),
    _admin_path("status/", status.page, "status"),
    _admin_path("tenants/<uuid:user_id>/", tenants.page, "tenant"),
    _admin_path("dead-letters/", dead_letters.overview, "dead-letters"),
    _admin_path("dead-letters/retry/", dead_letters.retry, "retry-group"),
    _admin_path("jobs/<uuid:job_id>/", jobs.job_page, "job"),
    _admin_path("jobs/<uuid:job_id>/invariants/", jobs.invariants, "invariants"),
    _admin_path("jobs/<uuid:job_id>/repair/", jobs.repair, "repair"),
    _admin_path("documents/<uuid:document_id>/read/", documents.request_access, "read"),
    _admin_path("documents/<uuid:document_id>/again/", reprocessing.page, "reprocess"),
    _admin_path("reading/<uuid:entry_id>/", documents.document_page, "reading"),
    _admin_path("reading/<uuid:entry_id>/pages/<int:number>/", documents.page_image, "page-image"),
    _admin_path("reading/<uuid:entry_id>/pages/<int:number>/marks/", documents.highlights, "highlights"),
]
