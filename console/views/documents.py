"""Document pages for staff: access with a reason that the audit log keeps, then text and image page by page."""

from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from django.contrib import messages
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.admin_cells import find_names
from accounts.audit import log
from accounts.audit.models import AuditEntry
from accounts.common_error_codes import unavailable
from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from console.views import READ, render_page, require_permissions
from documents.markdown import html_renderer
from documents.models import Document
from documents.page_images import renderer
from documents.storage import file_cache
from embeddings import chunk_store

ACTION = "documents.read_text"
VALID_FOR = timedelta(minutes=15)
MAX_PASSAGES = 50  # of a page
IMAGE_WIDTH = 900
MAX_CHUNK_ORD = 999_999


def request_access(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Record who reads which document and why: without this entry nothing of it is shown."""
    user, document = require_permissions(request, READ), get_object_or_404(Document, pk=document_id)
    if request.method == "POST":
        try:
            entry = log.record_action(
                by=user, action=ACTION, reason=request.POST.get("reason", ""), object_type="document",
                object_id=document.pk, tenant_id=document.user_id,
            )  # fmt: skip
        except ApiError as error:
            messages.error(request, f"{error.code}: {error.detail}")
        else:
            return HttpResponseRedirect(reverse("console:reading", args=[entry.pk]))
    names = find_names(user, document=[document_id])
    context = {"document_id": document_id, "is_law": document.user_id == SYSTEM_TENANT_ID, "names": names}
    return render_page(request, "console/read_document_form.html", "Read a document", **context)


def _accessible_document(request: HttpRequest, entry_id: UUID) -> Document:
    """Return the document of an audit entry. 404 for another's entry, an old one, a deleted document."""
    user = require_permissions(request, READ)
    # The database's clock wrote the entry, and tells how old it is.
    entries = AuditEntry.objects.filter(pk=entry_id, actor_id=user.pk, action=ACTION, at__gt=Now() - VALID_FOR)
    document_id = entries.values_list("object_id", flat=True).first()
    if not document_id:
        raise Http404
    return get_object_or_404(Document, pk=document_id)


@require_safe
def document_page(request: HttpRequest, entry_id: UUID) -> HttpResponse:
    document = _accessible_document(request, entry_id)
    pages = document.pages or 1
    number = _parse_number(request.GET.get("page"), 1, pages) or 1
    passages = list(chunk_store.page_chunks(document, number)[:MAX_PASSAGES])
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


def _passage_on_page(document: Document, number: int, chunk_ord: int) -> str:
    passage = chunk_store.document_chunks(document).filter(chunk_ord=chunk_ord).first()
    page = file_cache.read_page(document, number)
    if passage is None or not passage.meta or page is None:
        return ""
    text, start = page
    return text[max(passage.meta["start"] - start, 0) : max(passage.meta["end"] - start, 0)]


@require_safe
def highlights(request: HttpRequest, entry_id: UUID, number: int) -> HttpResponse:
    """Show where a passage is on the page's image: a part of the page, empty where the place is not known."""
    document = _accessible_document(request, entry_id)
    chunk_ord = _parse_number(request.GET.get("passage"), 0, MAX_CHUNK_ORD)
    location = None
    with suppress(ApiError, OSError):
        text = "" if chunk_ord is None else _passage_on_page(document, number, chunk_ord)
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
