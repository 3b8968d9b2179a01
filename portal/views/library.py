"""Pages that change documents of the list: name and tags of one, bulk actions on many, and the tags themselves."""

from collections.abc import Callable, Sequence
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext, ngettext

from accounts.errors import ApiError
from accounts.rate_limit import DOWNLOADS, check_rate
from accounts.rls import as_tenant
from documents import services, tags
from documents.models import Document, Tag
from documents.zip_download import require_size, stream_zip
from embeddings.document_rename import rename_document
from portal.document_list import PAGE_SIZE, document_tags, get_documents
from portal.document_status import get_document
from portal.list_query import MAX_ADDRESS_CHARS, STATES, ListQuery
from portal.page_access import tenant_id, tenant_page
from portal.user_messages import error_message


@tenant_page("GET", "HEAD", "POST")
def edit(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Rename a document and choose its tags."""
    user_id = tenant_id(request)
    row = get_document(user_id, document_id)
    with as_tenant(user_id):
        tag_ids = {tag.pk for tag in document_tags(user_id, [row.document]).get(document_id, [])}
    name, problem = row.document.filename, ""
    if request.method == "POST":
        tag_ids = _parse_ids(request.POST.getlist("tag"))
        name = request.POST.get("name", "")
        try:
            _change(request, row.document, name, tag_ids)
            messages.success(request, gettext("Saved."))
            return redirect("portal:document", document_id)
        except ApiError as error:
            problem = error_message(error)
    context = {"row": row, "name": name, "problem": problem, "colors": Tag.Color, "given": tag_ids}
    return render(request, "portal/edit.html", context | {"choices": tags.list_tags(user_id)})


def _change(request: HttpRequest, document: Document, name: str, tag_ids: set[UUID]) -> None:
    if name != document.filename:
        rename_document(document, name)
    if request.POST.get("new_tag", "").strip():
        tag_ids = tag_ids | {_create_tag(request).pk}
    tags.set_tags(document, tag_ids)


def _create_tag(request: HttpRequest) -> Tag:
    color = request.POST.get("color", "")
    known = color if color in Tag.Color.values else Tag.Color.GRAY.value
    return tags.create_tag(user_id=tenant_id(request), name=request.POST.get("new_tag", ""), color=known)[0]


@tenant_page("POST")
def bulk(request: HttpRequest) -> HttpResponseBase:
    """Download, tag or delete the chosen documents; deleting asks first. Ids of nobody or of others are passed over."""
    documents = get_documents(tenant_id(request), list(_parse_ids(request.POST.getlist("document"))))
    action = ACTIONS.get(request.POST.get("action", ""))
    response = None
    if not documents or action is None:
        messages.error(request, gettext("Choose documents first."))
    else:
        try:
            response = action(request, documents)
        except ApiError as error:
            messages.error(request, error_message(error))
    return response or redirect(f"{reverse('portal:home')}?{_list_address(request)}")


def _list_address(request: HttpRequest) -> str:
    return ListQuery.parse(QueryDict(request.POST.get("list", "")[:MAX_ADDRESS_CHARS])).address()


def _download(request: HttpRequest, documents: Sequence[Document]) -> HttpResponseBase:
    stored = [document for document in documents if document.stored_at]
    require_size(stored)
    check_rate(DOWNLOADS, tenant_id(request))
    headers = {"Content-Disposition": content_disposition_header(True, "documents.zip") or ""}
    return StreamingHttpResponse(stream_zip(stored), content_type="application/zip", headers=headers)


def _delete(request: HttpRequest, documents: Sequence[Document]) -> HttpResponse | None:
    if "confirmed" not in request.POST:
        return render(request, "portal/bulk_delete.html", {"documents": documents, "address": _list_address(request)})
    for document in documents:
        services.delete(document)
    count = len(documents)
    messages.success(request, ngettext("%s document deleted.", "%s documents deleted.", count) % count)
    return None


def _tag(request: HttpRequest, documents: Sequence[Document]) -> None:
    if request.POST.get("new_tag", "").strip():
        chosen = [_create_tag(request).pk]
    else:
        chosen = list(_parse_ids(request.POST.getlist("bulk_tag")))
    if not chosen:
        messages.error(request, gettext("Choose a tag, or type the name of a new one."))
        return
    count = _change_each(request, documents, lambda document: tags.add_tags(document, chosen))
    if count:
        messages.success(request, ngettext("%s document tagged.", "%s documents tagged.", count) % count)


def _untag(request: HttpRequest, documents: Sequence[Document]) -> None:
    chosen = _parse_ids(request.POST.getlist("bulk_tag"))
    count = _change_each(request, documents, lambda document: tags.remove_tags(document, chosen))
    if count:
        messages.success(request, ngettext("%s document changed.", "%s documents changed.", count) % count)


def _change_each(request: HttpRequest, documents: Sequence[Document], change: Callable[[Document], None]) -> int:
    """Change documents one by one; those that are refused or gone meanwhile do not keep the others from it."""
    changed, problems = 0, []
    for document in documents:
        try:
            change(document)
            changed += 1
        except ApiError as error:
            problems.append(f"{document.filename}: {error_message(error)}")
    for problem in problems[:3]:
        messages.error(request, problem)
    return changed


ACTIONS: dict[str, Callable[[HttpRequest, Sequence[Document]], HttpResponseBase | None]] = {
    "download": _download,
    "delete": _delete,
    "tag": _tag,
    "untag": _untag,
}


@tenant_page("POST")
def find_duplicate(request: HttpRequest) -> JsonResponse:
    """Tell the upload script which document has these bytes already; a failed or missing file is uploaded again."""
    user_id, sha256 = tenant_id(request), request.POST.get("sha256", "")
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id, stored_at__isnull=False)
        document = own.exclude(STATES["failed"][1]).filter(file_sha256=sha256.replace("\0", "")).first()
    if document is None:
        return JsonResponse({})
    return JsonResponse({"url": reverse("portal:document", args=[document.pk]), "name": document.filename})


@tenant_page("GET", "HEAD", "POST")
def tag_list(request: HttpRequest) -> HttpResponse:
    """Show the tags, and create one."""
    context: dict[str, object] = {"colors": Tag.Color}
    if request.method == "POST":
        try:
            _create_tag(request)
            return redirect("portal:tags")
        except ApiError as error:
            context |= {"problem": error_message(error), "new_tag": request.POST.get("new_tag", "")}
    return render(request, "portal/tags.html", context | {"tags": tags.list_tags(tenant_id(request))})


@tenant_page("GET", "HEAD", "POST")
def tag(request: HttpRequest, tag_id: UUID) -> HttpResponse:
    """Rename, recolour or delete a tag."""
    own = tags.get_tag(tenant_id(request), tag_id)
    context: dict[str, object] = {"tag": own, "colors": Tag.Color, "name": own.name}
    if request.method == "POST":
        try:
            if "delete" in request.POST:
                tags.delete_tag(own)
                messages.success(request, gettext("The tag was deleted; its documents are still here."))
            else:
                color = request.POST.get("color", "")
                chosen = color if color in Tag.Color.values else None
                tags.change_tag(own, name=request.POST.get("name", ""), color=chosen)
            return redirect("portal:tags")
        except ApiError as error:
            context |= {"problem": error_message(error), "name": request.POST.get("name", "")}
    return render(request, "portal/tag.html", context)


def _parse_ids(values: Sequence[str]) -> set[UUID]:
    ids = set()
    for value in values[: max(PAGE_SIZE, tags.MAX_TAGS)]:
        try:
            ids.add(UUID(value))
        except ValueError:
            continue
    return ids
