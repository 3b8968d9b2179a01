"""Document pages for staff: access with a reason that the audit log keeps, then text and image page by page."""

from contextlib import suppress
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.error_codes import ApiError, unavailable
from accounts.system_tenant import SYSTEM_TENANT_ID
from console import document_access
from console.views import READ, render_page, require_permissions
from documents.markdown import html_renderer
from documents.models import Document
from documents.page_images import renderer
from documents.storage import file_cache

IMAGE_WIDTH = 900
MAX_CHUNK_ORD = 999_999


def request_access(request: HttpRequest, document_id: UUID) -> HttpResponse:
    user = require_permissions(request, READ)
    if request.method == "POST":
        try:
            entry = document_access.grant_access(document_id, by=user, reason=request.POST.get("reason", ""))
        except ApiError as error:
            if error.code == "NOT_FOUND":
                raise Http404 from error
            messages.error(request, f"{error.code}: {error.detail}")
        else:
            return HttpResponseRedirect(reverse("console:reading", args=[entry.pk]))
    owner = Document.objects.filter(pk=document_id).values_list("user_id", flat=True).first()
    if owner is None:
        raise Http404
    context = {"document_id": document_id, "is_law": owner == SYSTEM_TENANT_ID}
    return render_page(request, "console/read_document_form.html", "Read a document", **context)


def _accessible_document(request: HttpRequest, entry_id: UUID) -> Document:
    user = require_permissions(request, READ)
    try:
        return document_access.accessible_document(entry_id, by=user)
    except ApiError as error:
        raise Http404 from error


@require_safe
def document_page(request: HttpRequest, entry_id: UUID) -> HttpResponse:
    document = _accessible_document(request, entry_id)
    pages = document.pages or 1
    number = _parse_number(request.GET.get("page"), 1, pages) or 1
    passages = list(document_access.page_passages(document, number))
    store_error, shown = None, None
    try:
        parsed_page = file_cache.read_page(document, number)
    except OSError:
        store_error, parsed_page = unavailable("The file store cannot be reached; try again shortly.").detail, None
    if parsed_page is not None:
        markdown, start = parsed_page
        chosen = next((chunk for chunk in passages if str(chunk.chunk_ord) == request.GET.get("passage")), None)
        span = (chosen.meta["start"] - start, chosen.meta["end"] - start) if chosen and chosen.meta else None
        shown = html_renderer.render_html(markdown, highlight=span)
    return render_page(
        request,
        "console/document_page.html",
        f"Document {document.pk}",
        document=document,
        entry_id=entry_id,
        number=number,
        pages=pages,
        shown=shown,
        store_error=store_error,
        passages=passages,
        chosen=request.GET.get("passage"),
    )


def _parse_number(text: str | None, least: int, most: int) -> int | None:
    number = int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else None
    return number if number is not None and least <= number <= most else None


@require_safe
def highlights(request: HttpRequest, entry_id: UUID, number: int) -> HttpResponse:
    """Show where a passage is on the page's image: a part of the page, empty where the place is not known."""
    document = _accessible_document(request, entry_id)
    chunk_ord = _parse_number(request.GET.get("passage"), 0, MAX_CHUNK_ORD)
    location = None
    with suppress(ApiError, OSError):
        text = "" if chunk_ord is None else document_access.passage_on_page(document, number, chunk_ord)
        location = renderer.locate_passage(document, number, text) if text.strip() else None
    return render_page(request, "portal/highlights.html", "Highlights", located=location)


@require_safe
def page_image(request: HttpRequest, entry_id: UUID, number: int) -> HttpResponse:
    document = _accessible_document(request, entry_id)
    try:
        image = renderer.render_page(document, number, width=IMAGE_WIDTH)
    except ApiError as error:
        return HttpResponse(f"{error.code}: {error.detail}", content_type="text/plain", status=error.status)
    return HttpResponse(image, content_type=renderer.MIME)  # admin_view forbids caching
