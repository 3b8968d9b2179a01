"""Staff's own pages, below the admin's address."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.urls import URLPattern, path

from console.views import dead_letters, documents, jobs

app_name = "console"


def _at(route: str, view: Callable[..., Any], name: str) -> URLPattern:
    return path(route, admin.site.admin_view(view), name=name)


urlpatterns: list[URLPattern] = [
    _at("dead-letters/", dead_letters.overview, "dead-letters"),
    _at("dead-letters/retry/", dead_letters.retry, "retry-group"),
    _at("jobs/<uuid:job_id>/", jobs.page, "job"),
    _at("jobs/<uuid:job_id>/proofs/", jobs.proofs, "proofs"),
    _at("jobs/<uuid:job_id>/repair/", jobs.repair, "repair"),
    _at("documents/<uuid:document_id>/read/", documents.ask, "read"),
    _at("reading/<uuid:entry_id>/", documents.page, "reading"),
    _at("reading/<uuid:entry_id>/pages/<int:number>/", documents.picture, "picture"),
    _at("reading/<uuid:entry_id>/pages/<int:number>/marks/", documents.marks, "marks"),
]
