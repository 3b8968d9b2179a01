"""One document: its pages, its passages, and what can be done with it."""

from __future__ import annotations

import logging
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django_htmx.http import HttpResponseClientRefresh

from accounts import rate_limit
from accounts.errors import ApiError, not_found
from documents import page_images, services
from jobs import services as jobs
from portal import document_list, document_page, user_messages
from portal.document_status import Shown
from portal.views.auth import only, page, tenant
from portal.views.home import place_of
from portal.views.home import shown as list_context

log = logging.getLogger("accessa.portal")


@page
def document(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Show a page of a document: its text, beside the picture of it, with what was cited."""
    only(request, "GET", "HEAD")
    found = document_list.one(tenant(request), document_id)
    rate_limit.check_rate(rate_limit.PAGE_VIEWS, tenant(request))
    shown = document_page.page(found.document, _page(request), _passage(request))
    return render(request, "portal/document.html", {"row": found, "page": shown, "was": found.standing})


@page
def status(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Show how far the document is; once something else is to be seen, have the whole page loaded again."""
    only(request, "GET", "HEAD")
    found = document_list.one(tenant(request), document_id)
    if not found.active:
        return HttpResponseClientRefresh()
    return render(request, "portal/document_status.html", {"row": found})


@page
def marks(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Show where on the picture of a page the cited passage stands; nothing when it cannot be told."""
    only(request, "GET", "HEAD")
    found = document_list.one(tenant(request), document_id)
    number, passage_id = _page(request), _passage(request)
    if number is None or passage_id is None:
        raise not_found()
    try:
        rate_limit.check_rate(rate_limit.PAGE_VIEWS, tenant(request))
        text = document_page.cited_text(found.document, number, passage_id)
        located = page_images.locate_passage(found.document, number, text) if text.strip() else None
    except ApiError as refused:
        log.info("The passage is not shown on the picture of its page: %s", refused.code)
        located = None
    return render(request, "portal/highlights.html", {"located": located})


@page
def original(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Lead to the file as it was uploaded."""
    only(request, "GET", "HEAD")
    url = services.sign_original_url(document_list.one(tenant(request), document_id).document)
    # Under whatever name this page was opened, our own files are under the same.
    return HttpResponseRedirect(url.removeprefix(settings.PUBLIC_URL))


@page
def retry(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Try a failed document again, as a scan if that is asked for."""
    only(request, "POST")
    user_id = tenant(request)
    found = document_list.one(user_id, document_id)
    problem = None
    try:
        _retry(found, user_id, as_scan="ocr" in request.POST)
    except ApiError as refused:
        problem = user_messages.error_message(refused)
    if getattr(request, "htmx", False):
        place = place_of(request.POST)
        now = list_context(request, document_list.listed(user_id, place), place)
        return render(request, "portal/document_list.html", now | {"problem": problem})
    if problem:
        messages.error(request, problem)
    return redirect("portal:document", document_id)


def _retry(found: Shown, user_id: UUID, *, as_scan: bool) -> None:
    if found.job is None:
        raise not_found()
    if as_scan:
        own = found.document
        services.declare(
            user_id=user_id,
            filename=own.filename,
            bytes_len=own.bytes_len,
            mime=own.mime,
            sha256=own.file_sha256,
            ocr=True,
        )
    else:
        jobs.retry(found.job, by=str(user_id))


@page
def delete(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Ask first, on a page of its own where no script asks in a dialog; then remove the document for good."""
    only(request, "GET", "HEAD", "POST")
    found = document_list.one(tenant(request), document_id)
    if request.method != "POST":
        return render(request, "portal/delete.html", {"row": found})
    services.delete(found.document)
    messages.success(request, "The document was deleted.")
    return redirect("portal:home")


def _page(request: HttpRequest) -> int | None:
    text = request.GET.get("page", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def _passage(request: HttpRequest) -> UUID | None:
    try:
        return UUID(request.GET.get("passage", ""))
    except ValueError:
        return None
