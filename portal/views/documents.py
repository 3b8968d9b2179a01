"""Document pages of a tenant: list with uploads, and one document with its pages, retry and deletion."""

import logging
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, gettext
from django_htmx.http import HttpResponseClientRefresh

from accounts.common_error_codes import not_found
from accounts.errors import ApiError, Context, error_codes
from accounts.rate_limit import PAGE_VIEWS, check_rate
from accounts.rls import as_tenant
from documents import services
from documents.page_images import renderer
from documents.tags import list_tags
from jobs import services as job_services
from portal.document_list import document_tags, list_documents
from portal.document_page import Citation, cited_text, get_page
from portal.document_status import get_document
from portal.list_query import MAX_ADDRESS_CHARS, ORDERS, STATES, TYPES, ListQuery
from portal.page_access import tenant_id, tenant_page
from portal.user_messages import DETAILED, error_message

log = logging.getLogger("accessa.portal")

# Seconds between two requests for the list, by how many in a row have shown no change.
POLL_SECONDS = (1, 1, 2, 3, 5, 8, 10)
VIEWS, VIEW_KEY = ("table", "grid"), "document_view"


@tenant_page("GET", "HEAD")
def documents(request: HttpRequest) -> HttpResponse:
    """Show the list with its filters. The chosen view, table or grid, is kept in the session."""
    user_id, query = tenant_id(request), ListQuery.parse(request.GET)
    view = request.GET.get("view")
    if view in VIEWS and view != request.session.get(VIEW_KEY, VIEWS[0]):
        request.session[VIEW_KEY] = view
    context = list_context(request, query) | upload_context() | {"states": STATES, "types": TYPES, "orders": ORDERS}
    return render(request, "portal/documents.html", context | {"choices": list_tags(user_id)})


@tenant_page("GET", "HEAD")
def document_list(request: HttpRequest) -> HttpResponse:
    context = list_context(request, ListQuery.parse(request.GET))
    if context["quiet"] == len(POLL_SECONDS):
        return HttpResponse(status=HTTPStatus.NO_CONTENT)  # the page keeps the list, and polls at the same pace
    return render(request, "portal/document_list.html", context)


def list_context(request: HttpRequest, query: ListQuery) -> dict[str, Any]:
    listed = list_documents(tenant_id(request), query)
    unchanged = request.GET.get("seen") == listed.fingerprint
    polls = _parse_number(request.GET.get("quiet"), digits=3) or 0
    quiet = min(polls + 1, len(POLL_SECONDS)) if unchanged else 0
    every = POLL_SECONDS[min(quiet, len(POLL_SECONDS) - 1)] if listed.active else None
    older = query.address(cursor=listed.older) if listed.older else ""
    view = request.session.get(VIEW_KEY, VIEWS[0])
    return {"listed": listed, "asked": query, "older": older, "quiet": quiet, "every": every, "view": view}


def upload_context() -> dict[str, Any]:
    codes, most_mb = error_codes(Context.REQUEST).items(), settings.MAX_FILE_BYTES // 1_048_576
    upload = {
        "sentences": {name: str(code.tenant_message) for name, code in codes if code.tenant_message},
        "detailed": DETAILED if get_language() == "en" else (),  # the API answers in English
        "limits": {
            "FILE_TOO_LARGE": gettext("The file has {} MB; the limit is %s MB. Split it, or save it smaller.")
            % most_mb,
            "FILENAME_TOO_LONG": gettext("The name has {} characters; the limit is %s. Give it a shorter one.")
            % settings.MAX_FILENAME_CHARS,
        },
        "duplicate_url": reverse("portal:duplicate"),
        "sign_in_url": reverse("portal:sign-in"),
        "max_bytes": settings.MAX_FILE_BYTES,
        "max_filename_chars": settings.MAX_FILENAME_CHARS,
        "public_url": settings.PUBLIC_URL,
        "encryption": settings.S3_ENCRYPTION,
        "kms_key": settings.S3_KMS_KEY_ID,
    }
    return {"upload": upload, "most_mb": most_mb, "most_pages": settings.MAX_PAGES}


@tenant_page("GET", "HEAD")
def document(request: HttpRequest, document_id: UUID) -> HttpResponse:
    row = get_document(tenant_id(request), document_id)
    check_rate(PAGE_VIEWS, tenant_id(request))
    page = get_page(row.document, _page_number(request), _citation(request))
    with as_tenant(row.document.user_id):
        tags = document_tags(row.document.user_id, [row.document]).get(document_id, [])
    context = {"row": row, "page": page, "span": request.GET.get("span", ""), "tags": tags}
    return render(request, "portal/document.html", context)


@tenant_page("GET", "HEAD")
def status(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Show the progress of a document; once its job has ended, reload the whole page."""
    row = get_document(tenant_id(request), document_id)
    if not row.active:
        return HttpResponseClientRefresh()
    return render(request, "portal/document_status.html", {"row": row})


@tenant_page("GET", "HEAD")
def highlights(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Show where the cited passage is on the page's image; nothing where the place is not known."""
    row = get_document(tenant_id(request), document_id)
    number, citation = _page_number(request), _citation(request)
    if number is None or citation is None:
        raise not_found()
    location = None
    try:
        check_rate(PAGE_VIEWS, tenant_id(request))
        text = cited_text(row.document, number, citation)
        location = renderer.locate_passage(row.document, number, text) if text.strip() else None
    except ApiError as error:
        log.info("The passage is not highlighted on the image of its page: %s", error.code)
    return render(request, "portal/highlights.html", {"located": location})


@tenant_page("GET", "HEAD")
def original(request: HttpRequest, document_id: UUID) -> HttpResponse:
    url = services.sign_original_url(get_document(tenant_id(request), document_id).document)
    # The page may be open under another host name than PUBLIC_URL: our own files are available under it, too.
    return HttpResponseRedirect(url.removeprefix(settings.PUBLIC_URL))


@tenant_page("POST")
def retry(request: HttpRequest, document_id: UUID) -> HttpResponse:
    user_id = tenant_id(request)
    row = get_document(user_id, document_id)
    own, problem = row.document, None
    try:
        if row.job is None:
            raise not_found()
        if "ocr" in request.POST:
            services.declare(
                user_id=user_id,
                filename=own.filename,
                bytes_len=own.bytes_len,
                mime=own.mime,
                sha256=own.file_sha256,
                ocr=True,
            )
        else:
            job_services.retry(row.job, by=str(user_id))
    except ApiError as error:
        problem = error_message(error)
    if getattr(request, "htmx", False):
        context = list_context(request, ListQuery.parse(QueryDict(request.POST.get("list", "")[:MAX_ADDRESS_CHARS])))
        return render(request, "portal/document_list.html", context | {"problem": problem})
    if problem:
        messages.error(request, problem)
    return redirect("portal:document", document_id)


@tenant_page("GET", "HEAD", "POST")
def delete(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Ask for confirmation on a page of its own, for browsers without the dialog; then delete the document."""
    row = get_document(tenant_id(request), document_id)
    if request.method != "POST":
        return render(request, "portal/delete.html", {"row": row})
    services.delete(row.document)
    messages.success(request, gettext("The document was deleted."))
    return redirect("portal:home")


def _page_number(request: HttpRequest) -> int | None:
    return _parse_number(request.GET.get("page"), digits=6)


def _parse_number(text: str | None, *, digits: int) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= digits else None


def _citation(request: HttpRequest) -> Citation | None:
    try:
        passage_id = UUID(request.GET.get("passage", ""))
    except ValueError:
        return None
    return Citation(passage_id, parse_span(request.GET.get("span", "")))


def parse_span(text: str) -> tuple[int, int] | None:
    """Parse ``12-34``."""
    start, _, end = (_parse_number(part, digits=9) for part in text.partition("-"))
    return None if start is None or end is None else (start, end)
