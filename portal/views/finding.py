"""Questions over a tenant's own documents and connected systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from documents.models import Document
from embeddings.search import HYBRID, TEXT, VECTOR, pace
from integrations import search
from integrations.models import Provider
from integrations.search import FoundRecord
from portal import sentences
from portal.views.access import only, page, tenant
from tenancy.refusals import Refused
from tenancy.rls import as_tenant

SHOWN = 10
CHOICES = 100  # documents to choose from, the newest
SYSTEMS = dict(Provider.choices)
MODES = ((HYBRID, "By meaning and by words"), (VECTOR, "By meaning"), (TEXT, "By words"))


@dataclass(frozen=True, slots=True)
class Asked:
    query: str
    mode: str
    document: UUID | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A record of a connected system as the page has it. ``snippet`` is safe HTML."""

    name: str
    where: str
    snippet: str
    url: str | None


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


def _answer(user_id: UUID, asked: Asked) -> dict[str, object]:
    """Connected systems are searched too, unless it is one document that is asked."""
    where: dict[str, Any] = {"sources": search.SOURCES}
    if asked.document:
        where = {"sources": [search.UPLOADS], "document_ids": [asked.document]}
    try:
        pace.spend(user_id)
        found = search.search(user_id=user_id, query=asked.query, k=SHOWN, mode=asked.mode, **where)
    except Refused as refused:
        return {"problem": sentences.refusal(refused.code, refused.detail, refused.retry_after)}
    return {"passages": found.passages, "records": [_shown(record) for record in found.records]}


def _shown(record: FoundRecord) -> Shown:
    """A link leads to the provider's page, and nowhere that a record's text could lead instead."""
    url = record.url or ""
    return Shown(
        name=record.title or record.external_id or "",
        where=SYSTEMS.get(record.source, "Client"),
        snippet=record.snippet,
        url=url if url.startswith("https://") else None,
    )


def _choices(user_id: UUID, chosen: UUID | None) -> list[Document]:
    """Return the documents that a question can be narrowed to: the newest, and the one that is chosen already."""
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id, chunks_version__isnull=False)
        newest = list(own.order_by("-created_at", "document_id")[:CHOICES])
        if chosen and all(document.pk != chosen for document in newest):
            newest += own.filter(pk=chosen)
    return newest
