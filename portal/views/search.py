"""Search page: the tenant's documents and connected systems, and statutes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.rate_limit import SEARCHES, check_rate
from documents.tags import list_tags
from embeddings.search.query_parser import HYBRID, TEXT, VECTOR, QueryEmbedding
from integrations.models import Provider
from integrations.search import RECORDS, RecordResult
from portal.page_access import tenant_id, tenant_page
from portal.search_scope import TAG, SearchScope, document_choices, last_scope, sources_of
from portal.user_messages import error_message
from portal.views.documents import parse_span
from search.answers.feedback import record_feedback
from search.answers.services import MAX_TURNS, Retrieval, may_generate, quote_answer, retrieve
from search.error_codes import NO_WORDS
from search.saved_questions import delete_question, get_question, save_question
from search.services import UPLOADS, search
from statutes.search import search_available_statutes

MAX_RESULTS = 10
SYSTEMS = dict(Provider.choices)
OWN_SOURCES = [UPLOADS, *RECORDS]
MODES = ((HYBRID, _("By meaning and by words")), (VECTOR, _("By meaning")), (TEXT, _("By words")))


@dataclass(frozen=True, slots=True)
class SearchForm:
    """``history`` are the questions that a follow-up follows, oldest first."""

    query: str
    mode: str
    scope: SearchScope
    history: tuple[str, ...] = ()

    @classmethod
    def create(cls, query: str, mode: str, scope: SearchScope, history: Sequence[str] = ()) -> "SearchForm":
        return cls(query, mode if mode in dict(MODES) else HYBRID, scope, tuple(history))


@tenant_page("GET", "HEAD", "POST")
def search_page(request: HttpRequest) -> HttpResponse:
    """Show the form and the results. The query is never part of a URL: URLs are logged."""
    user_id = tenant_id(request)
    form = _parse_form(request, user_id)
    context: dict[str, object] = {"form": form, "is_search": request.method == "POST"}
    if request.method == "POST":
        context |= _results(user_id, form)
        if "problem" not in context:
            context["saved"] = save_question(
                user_id=user_id, question=form.query, history=form.history, mode=form.mode, scope=str(form.scope)
            )
    return _render(request, user_id, form, context)


@tenant_page("GET", "HEAD")
def saved_question(request: HttpRequest, question_id: UUID) -> HttpResponse:
    """Show the results of a saved question, as they are today. Nothing is bought from a model."""
    user_id = tenant_id(request)
    saved = get_question(user_id, question_id)
    form = SearchForm.create(saved.question, saved.mode, SearchScope.parse([saved.scope]), saved.history)
    return _render(request, user_id, form, {"is_search": True, "saved": saved, **_results(user_id, form)})


@tenant_page("POST")
def forget_question(request: HttpRequest, question_id: UUID) -> HttpResponse:
    delete_question(tenant_id(request), question_id)
    messages.success(request, gettext("The question is forgotten."))
    return redirect("portal:search")


def _render(request: HttpRequest, user_id: UUID, form: SearchForm, context: dict[str, object]) -> HttpResponse:
    context |= {"form": form}
    if getattr(request, "htmx", False):
        return render(request, "portal/search_results.html", context)
    context |= {"choices": document_choices(user_id, form.scope), "tags": list_tags(user_id), "modes": MODES}
    return render(request, "portal/search.html", context)


def _parse_form(request: HttpRequest, user_id: UUID) -> SearchForm:
    fields = request.POST if request.method == "POST" else request.GET
    scope = SearchScope.parse([*fields.getlist("document"), *(f"{TAG}{tag}" for tag in fields.getlist("tag"))])
    if request.method != "POST" and not fields:
        scope = last_scope(user_id)
    form = SearchForm.create(request.POST.get("query", ""), request.POST.get("mode", HYBRID), scope)
    try:
        previous = get_question(user_id, UUID(request.POST.get("after", "")))
    except (ValueError, ApiError):  # none, or forgotten meanwhile: a question of its own
        return form
    return replace(form, history=(*previous.history, previous.question)[-MAX_TURNS:])


def _results(user_id: UUID, form: SearchForm) -> dict[str, object]:
    query: dict[str, Any] = {"user_id": user_id, "query": form.query, "k": MAX_RESULTS, "mode": form.mode}
    embedding = QueryEmbedding(user_id)
    scope: dict[str, Any] = {"query_embedding": embedding, "sources": sources_of(form.scope, OWN_SOURCES)}
    try:
        restrictions = form.scope.restrictions(user_id)
        scope |= restrictions
        check_rate(SEARCHES, user_id)
        retrieval = _retrieve(query, scope, form.history)
        quoted_answer = quote_answer(retrieval) if retrieval else None
        may_ask = (
            retrieval is not None and quoted_answer is not None and may_generate(retrieval, quoted_answer.sentences)
        )
        if retrieval and form.history:
            query["query"] = retrieval.question.text
        results = retrieval.results if retrieval else search(**query, **scope)
        statutes = [] if form.scope.is_narrow else search_available_statutes(**query, query_embedding=embedding)
        by_law = None  # statutes answer what no document answers
        if statutes and retrieval and not (quoted_answer and quoted_answer.answered):
            by_law = quote_answer(retrieval.of_statutes(statutes))
    except ApiError as error:
        return {"problem": error_message(error)}
    return {
        "quoted_answer": quoted_answer,
        "by_law": by_law,
        "model_request": _model_request(form, restrictions) if may_ask else None,
        "passages": results.passages,
        "nearest": results.nearest,
        "records": [_record(record) for record in results.records],
        "laws": statutes,
    }


def _retrieve(query: dict[str, Any], scope: dict[str, Any], history: Sequence[str]) -> Retrieval | None:
    """Search the tenant's documents for an answer; None where the query has only words that stand everywhere."""
    try:
        return retrieve(user_id=query["user_id"], question=query["query"], history=history, mode=query["mode"], **scope)
    except ApiError as error:
        if error.code != NO_WORDS:
            raise
        return None


def _model_request(form: SearchForm, restrictions: dict[str, Any]) -> str:
    """Return the body of ``POST /answer`` by which the page lets a model answer. htmx would drop it in a script tag."""
    body: dict[str, Any] = {"question": form.query, "mode": form.mode, "stream": True}
    history = [{"question": question} for question in form.history]
    return json.dumps(body | {"history": history} | restrictions, default=str)


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
    messages.success(request, gettext("Thank you: your opinion is stored."))
    return redirect("portal:search")


def _record(record: RecordResult) -> dict[str, str]:
    """Return what the page shows of a record. Only an https link is shown: a record's text could contain another."""
    return {
        "name": record.title or record.external_id or "",
        "where": SYSTEMS.get(record.source) or gettext("Client"),
        "snippet": record.snippet,  # safe HTML
        "url": record.url if record.url and record.url.startswith("https://") else "",
    }
