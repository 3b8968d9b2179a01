"""Questions over a tenant's own documents and connected systems, and the laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts import rate_limit
from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents.models import Document
from embeddings.search import HYBRID, TEXT, VECTOR
from embeddings.search.query import QueryEmbedding
from integrations.models import Provider
from integrations.search import RECORDS, RecordResult
from portal import user_messages
from portal.views.auth import only, page, tenant
from search.services import UPLOADS, search
from statutes.search import StatutePassage, search_statutes
from statutes.search.results import strip_heading_marks

SHOWN = 10
CHOICES = 100  # documents to choose from, the newest
SYSTEMS = dict(Provider.choices)
OWN = [UPLOADS, *RECORDS]
LAWS = "laws"  # chosen instead of a document
AWAY = ("MODEL_UNAVAILABLE", "SEARCH_UNAVAILABLE")
MODES = ((HYBRID, "By meaning and by words"), (VECTOR, "By meaning"), (TEXT, "By words"))


@dataclass(frozen=True, slots=True)
class Asked:
    query: str
    mode: str
    document: UUID | None
    only_laws: bool


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
        return render(request, "portal/search_results.html", answer)
    choices = _choices(user_id, asked.document)
    return render(request, "portal/search.html", answer | {"choices": choices, "modes": MODES, "laws_alone": LAWS})


def _asked(request: HttpRequest) -> Asked:
    said = request.POST if request.method == "POST" else request.GET
    try:
        document = UUID(said.get("document", ""))
    except ValueError:
        document = None
    mode = request.POST.get("mode", HYBRID)
    query, only_laws = request.POST.get("query", ""), said.get("document") == LAWS
    return Asked(query, mode if mode in dict(MODES) else HYBRID, document, only_laws)


def _answer(user_id: UUID, asked: Asked) -> dict[str, object]:
    """Connected systems and laws are searched too, unless it is one document that is asked, or the laws alone."""
    question: dict[str, Any] = {"user_id": user_id, "query": asked.query, "k": SHOWN, "mode": asked.mode}
    bought = QueryEmbedding(user_id)
    where: dict[str, Any] = {"sources": [] if asked.only_laws else OWN}
    if asked.document:
        where = {"sources": [UPLOADS], "document_ids": [asked.document]}
    try:
        rate_limit.check_rate(rate_limit.SEARCHES, user_id)
        found = search(**question, query_embedding=bought, **where)
        laws = [] if asked.document else _laws(question, bought)
    except ApiError as refused:
        return {"problem": user_messages.error_message(refused)}
    return {"passages": found.passages, "records": [_shown(record) for record in found.records], "laws": _read(laws)}


def _laws(question: dict[str, Any], bought: QueryEmbedding) -> list[StatutePassage]:
    """Find laws; while their model is away by their words alone: it is not the one of the tenant's own documents."""
    try:
        return search_statutes(**question, query_embedding=bought)
    except ApiError as refused:
        if refused.code not in AWAY:
            raise
        return search_statutes(**question | {"mode": TEXT})


def _read(laws: list[StatutePassage]) -> list[tuple[StatutePassage, str]]:
    """Return each law with the whole text of its passage, as people read it."""
    return [(law, strip_heading_marks(law.text)) for law in laws]


def _shown(record: RecordResult) -> Shown:
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
