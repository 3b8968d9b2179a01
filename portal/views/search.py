"""Search page: the tenant's documents and connected systems, and statutes."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from accounts.error_codes import not_found
from accounts.errors import ApiError
from accounts.rate_limit import SEARCHES, check_rate
from accounts.rls import as_tenant
from documents.models import Document
from embeddings.error_codes import MODEL_UNAVAILABLE, SEARCH_UNAVAILABLE
from embeddings.search import HYBRID, TEXT, VECTOR
from embeddings.search.query_parser import QueryEmbedding
from integrations.models import Provider
from integrations.search import RECORDS, RecordResult
from portal.tenant_page import tenant_id, tenant_page
from portal.user_messages import error_message
from portal.views.documents import parse_span
from search.answers.feedback import record_feedback
from search.answers.services import Answer, answer
from search.error_codes import NO_WORDS
from search.services import UPLOADS, search
from statutes.article_citations import StatutePassage, strip_heading_marks
from statutes.search import search_statutes

MAX_RESULTS = 10
MAX_CHOICES = 100  # documents to choose from, the newest
SYSTEMS = dict(Provider.choices)
OWN_SOURCES = [UPLOADS, *RECORDS]
STATUTES_ONLY = "laws"  # chosen instead of a document
MODES = ((HYBRID, "By meaning and by words"), (VECTOR, "By meaning"), (TEXT, "By words"))


@dataclass(frozen=True, slots=True)
class SearchForm:
    query: str
    mode: str
    document: UUID | None
    only_laws: bool


@tenant_page("GET", "HEAD", "POST")
def search_page(request: HttpRequest) -> HttpResponse:
    """Show the form and the results. The query is never part of a URL: URLs are logged."""
    user_id, form = tenant_id(request), _parse_form(request)
    context: dict[str, object] = {"form": form, "is_search": request.method == "POST"}
    if request.method == "POST":
        context |= _results(user_id, form)
    if getattr(request, "htmx", False):
        return render(request, "portal/search_results.html", context)
    context |= {"choices": _document_choices(user_id, form.document), "modes": MODES, "statutes_only": STATUTES_ONLY}
    return render(request, "portal/search.html", context)


def _parse_form(request: HttpRequest) -> SearchForm:
    scope = (request.POST if request.method == "POST" else request.GET).get("document", "")
    try:
        document = UUID(scope)
    except ValueError:
        document = None
    mode = request.POST.get("mode", HYBRID)
    return SearchForm(
        request.POST.get("query", ""), mode if mode in dict(MODES) else HYBRID, document, scope == STATUTES_ONLY
    )


def _results(user_id: UUID, form: SearchForm) -> dict[str, object]:
    query: dict[str, Any] = {"user_id": user_id, "query": form.query, "k": MAX_RESULTS, "mode": form.mode}
    embedding = QueryEmbedding(user_id)
    scope: dict[str, Any] = {"query_embedding": embedding, "sources": [] if form.only_laws else OWN_SOURCES}
    if form.document:
        scope |= {"sources": [UPLOADS], "document_ids": [form.document]}
    try:
        check_rate(SEARCHES, user_id)
        given = _answer(query, scope)
        results = given.results if given else search(**query, **scope)
        statutes = [] if form.document else _search_statutes(query, embedding)
    except ApiError as error:
        return {"problem": error_message(error)}
    return {
        "given": given,
        "passages": results.passages,
        "nearest": results.nearest,
        "records": [_record(record) for record in results.records],
        "laws": [(passage, strip_heading_marks(passage.text)) for passage in statutes],
    }


def _answer(query: dict[str, Any], scope: dict[str, Any]) -> Answer | None:
    """Answer from the tenant's documents; None where the query has only words that stand everywhere."""
    try:
        return answer(user_id=query["user_id"], question=query["query"], mode=query["mode"], **scope)
    except ApiError as error:
        if error.code != NO_WORDS:
            raise
        return None


@tenant_page("POST")
def answer_feedback(request: HttpRequest) -> HttpResponse:
    """Store whether an answer was right."""
    user_id, span = tenant_id(request), parse_span(request.POST.get("span", ""))
    try:
        chunk_id = UUID(request.POST.get("passage", ""))
    except ValueError:
        raise not_found() from None
    if span is None:
        raise not_found()
    check_rate(SEARCHES, user_id)
    is_right = request.POST.get("right") == "yes"
    question = request.POST.get("question", "")
    record_feedback(user_id=user_id, question=question, chunk_id=chunk_id, span=span, is_right=is_right)
    if getattr(request, "htmx", False):
        return render(request, "portal/answer_feedback.html", {})
    messages.success(request, "Thank you: your opinion is stored.")
    return redirect("portal:search")


def _search_statutes(query: dict[str, Any], embedding: QueryEmbedding) -> list[StatutePassage]:
    """Search statutes, by words only while their model is unavailable: it may not be the tenant's."""
    try:
        return search_statutes(**query, query_embedding=embedding)
    except ApiError as error:
        if error.code not in (MODEL_UNAVAILABLE, SEARCH_UNAVAILABLE):
            raise
        return search_statutes(**query | {"mode": TEXT})


def _record(record: RecordResult) -> dict[str, str]:
    """Return what the page shows of a record. Only an https link is shown: a record's text could contain another."""
    return {
        "name": record.title or record.external_id or "",
        "where": SYSTEMS.get(record.source, "Client"),
        "snippet": record.snippet,  # safe HTML
        "url": record.url if record.url and record.url.startswith("https://") else "",
    }


def _document_choices(user_id: UUID, chosen: UUID | None) -> list[Document]:
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id, chunks_version__isnull=False)
        documents = list(own.order_by("-created_at", "document_id")[:MAX_CHOICES])
        if chosen and all(document.pk != chosen for document in documents):
            documents += own.filter(pk=chosen)
    return documents
