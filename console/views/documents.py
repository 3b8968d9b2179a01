"""Reading a tenant's document: asked for with a reason, written down, then shown page by page."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.errors import ApiError, unavailable
from accounts.system_tenant import SYSTEM_TENANT_ID
from console import document_access, permissions
from documents import page_images
from documents.markdown import html
from documents.models import Document
from embeddings.models import DocumentChunk

WIDTH = 900  # of a page's picture
MOST_ORD = 999_999


def ask(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """GET asks why; POST writes it down and opens the document. Nothing of it is shown before."""
    user = permissions.require(request, permissions.READ)
    if request.method == "POST":
        try:
            entry = document_access.begin(document_id, by=user, reason=request.POST.get("reason", ""))
        except ApiError as refused:
            if refused.code == "NOT_FOUND":
                raise Http404 from refused
            messages.error(request, f"{refused.code}: {refused.detail}")
        else:
            return HttpResponseRedirect(reverse("console:reading", args=[entry.pk]))
    owner = Document.objects.filter(pk=document_id).values_list("user_id", flat=True).first()
    if owner is None:
        raise Http404
    return permissions.answer(
        request,
        "console/ask_to_read.html",
        "Read a document",
        document_id=document_id,
        is_law=owner == SYSTEM_TENANT_ID,
    )


def _opened(request: HttpRequest, entry_id: UUID) -> Document:
    user = permissions.require(request, permissions.READ)
    try:
        return document_access.opened(entry_id, by=user)
    except ApiError as refused:
        raise Http404 from refused


@require_safe
def page(request: HttpRequest, entry_id: UUID) -> HttpResponse:
    document = _opened(request, entry_id)
    pages = document.pages or 1
    number = _within(request.GET.get("page"), pages) or 1
    trouble, shown, start = None, None, 0
    try:
        found = document_access.page_of(document, number)
    except OSError:
        trouble, found = unavailable("The file store cannot be reached; try again shortly.").detail, None
    passages = list(document_access.passages(document, number))
    if found is not None:
        markdown, start = found
        chosen = next((each for each in passages if str(each.chunk_ord) == request.GET.get("passage")), None)
        shown = html.render_html(markdown, highlight=_on_page(chosen, start))
    return permissions.answer(
        request,
        "console/reading.html",
        f"Document {document.pk}",
        document=document,
        entry_id=entry_id,
        number=number,
        pages=pages,
        shown=shown,
        trouble=trouble,
        passages=passages,
        chosen=request.GET.get("passage"),
    )


def _within(said: str | None, most: int, *, least: int = 1) -> int | None:
    number = int(said) if said and said.isascii() and said.isdigit() and len(said) < 7 else None
    return number if number is not None and least <= number <= most else None


def _on_page(passage: DocumentChunk | None, start: int) -> tuple[int, int] | None:
    if passage is None or not passage.meta:
        return None
    return passage.meta["start"] - start, passage.meta["end"] - start


@require_safe
def marks(request: HttpRequest, entry_id: UUID, number: int) -> HttpResponse:
    """Where on the picture of a page a passage stands: a part of the page; empty where it cannot be told."""
    document = _opened(request, entry_id)
    chosen = _within(request.GET.get("passage"), MOST_ORD, least=0)
    located = None
    with suppress(ApiError, OSError):
        text = document_access.on_page(document, number, chosen) if chosen is not None else ""
        located = page_images.locate_passage(document, number, text) if text.strip() else None
    return permissions.answer(request, "console/marks.html", "Marks", located=located)


@require_safe
def picture(request: HttpRequest, entry_id: UUID, number: int) -> HttpResponse:
    """The page as it looks, for as long as the entry opens the document."""
    document = _opened(request, entry_id)
    try:
        drawn = page_images.render_page(document, number, width=WIDTH)
    except ApiError as refused:
        return HttpResponse(f"{refused.code}: {refused.detail}", content_type="text/plain", status=refused.status)
    return HttpResponse(drawn, content_type=page_images.MIME)  # which nothing may keep: see admin_view
