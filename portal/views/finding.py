"""Questions over a tenant's own documents."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from documents.models import Document
from embeddings import search
from embeddings.search import HYBRID, TEXT, VECTOR, Passage, pace
from portal import sentences
from portal.views.access import only, page, tenant
from tenancy.refusals import Refused
from tenancy.rls import as_tenant

SHOWN = 10
CHOICES = 100  # documents to choose from, the newest
MODES = ((HYBRID, "By meaning and by words"), (VECTOR, "By meaning"), (TEXT, "By words"))


@dataclass(frozen=True, slots=True)
class Asked:
    query: str
    mode: str
    document: UUID | None


@page
def find(request: HttpRequest) -> HttpResponse:
    """Take a question, and answer it with passages. A question is never part of an address: addresses are logged."""
    only(request, "GET", "HEAD", "POST")
    user_id = tenant(request)
    asked = _asked(request)
    answer: dict[str, object] = {"asked": asked, "is_asked": request.method == "POST"}
    if request.method == "POST":
        answer |= _answer(user_id, asked)
    if getattr(request, "htmx", False):
        return render(request, "portal/results.html", answer)
    choices = _choices(user_id, asked.document)
    return render(request, "portal/find.html", answer | {"choices": choices, "modes": MODES})


def _asked(request: HttpRequest) -> Asked:
    said = request.POST if request.method == "POST" else request.GET
    try:
        document = UUID(said.get("document", ""))
    except ValueError:
        document = None
    mode = request.POST.get("mode", HYBRID)
    return Asked(request.POST.get("query", ""), mode if mode in dict(MODES) else HYBRID, document)


def _answer(user_id: UUID, asked: Asked) -> dict[str, list[Passage] | str]:
    documents = [asked.document] if asked.document else None
    try:
        pace.spend(user_id)
        return {
            "passages": search.search(
                user_id=user_id, query=asked.query, k=SHOWN, mode=asked.mode, document_ids=documents, merge=False
            )
        }
    except Refused as refused:
        return {"problem": sentences.refusal(refused.code, refused.detail, refused.retry_after)}


def _choices(user_id: UUID, chosen: UUID | None) -> list[Document]:
    """Return the documents that a question can be narrowed to: the newest, and the one that is chosen already."""
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id, chunks_version__isnull=False)
        newest = list(own.order_by("-created_at", "document_id")[:CHOICES])
        if chosen and all(document.pk != chosen for document in newest):
            newest += own.filter(pk=chosen)
    return newest
