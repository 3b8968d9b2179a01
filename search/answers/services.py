"""Answers to a tenant's questions: search, selection of sentences, citations, what was searched and its cost."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from accounts.errors import ApiError
from embeddings.search import HYBRID
from embeddings.search.query_parser import QueryEmbedding, parse_query, query_lexemes
from embeddings.search.sentence_ranking import content_words
from embeddings.search.snippets import cut_text, render_table
from search.answers.extractive import Candidate, extract_answer
from search.answers.follow_ups import CompleteQuestion, complete_question
from search.answers.sources import Source, collect_sources
from search.error_codes import NO_WORDS, TOO_MANY_TURNS
from search.services import UPLOADS, SearchResults, search

EXTRACTIVE = "extractive"
NOT_FOUND = _("Not found in your documents.")
PASSAGES = 10  # that are read
MAX_TURNS = 50
MAX_NEAREST = 3  # citations of what came closest, where nothing answers


@dataclass(frozen=True, slots=True)
class AnswerCitation:
    """Where a sentence stands: ``span`` are offsets in the parsed markdown, ``page`` is that of its beginning."""

    chunk_id: UUID
    document_id: UUID | None
    law_id: str | None
    title: str
    dated_at: datetime | None
    headings: list[str]
    page: int | None
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """``grounded`` is the share of its figures, dates and names that stand in what it cites; of a quotation, 1."""

    text: str
    html: str
    grounded: float
    citations: list[AnswerCitation]


@dataclass(frozen=True, slots=True)
class Answer:
    """``sentences`` is empty where the documents do not say; ``nearest`` is then what came closest.

    ``contradiction`` has a sentence of each document where these differ. ``question`` is what was searched: a
    follow-up is completed.
    """

    question: str
    answerer: str
    sentences: list[AnswerSentence]
    contradiction: list[AnswerSentence]
    nearest: list[AnswerCitation]
    passages_read: int
    documents_read: int
    cost_cents: Decimal
    results: SearchResults

    @property
    def answered(self) -> bool:
        return bool(self.sentences)

    @property
    def text(self) -> str:
        return "\n".join(sentence.text for sentence in self.sentences) or str(NOT_FOUND)


def answer(
    *,
    user_id: UUID,
    question: str,
    history: Sequence[str] = (),
    sources: Sequence[str] = (UPLOADS,),
    mode: str = HYBRID,
    document_ids: Sequence[UUID] | None = None,
    law_ids: Sequence[str] | None = None,
    filters: Any = None,
    query_embedding: QueryEmbedding | None = None,
) -> Answer:
    """Answer from the tenant's documents, and from statutes if these are among ``sources``.

    ``history`` has the earlier questions, oldest first; ``query_embedding`` shares the question's vector with other
    searches of the request. Raises ``ApiError``: NO_WORDS, TOO_MANY_TURNS, and as
    ``search.services.search``.
    """
    complete = _read_question(question, history)
    embedding = query_embedding or QueryEmbedding(user_id)
    results = search(
        user_id=user_id,
        query=complete.text,
        sources=sources,
        k=PASSAGES,
        mode=mode,
        document_ids=document_ids,
        law_ids=law_ids,
        filters=filters,
        query_embedding=embedding,
    )
    found = collect_sources(user_id, results)
    extract = extract_answer(found, complete)
    return Answer(
        question=complete.text,
        answerer=EXTRACTIVE,
        sentences=[_sentence(each) for each in extract.sentences],
        contradiction=[_sentence(each) for each in extract.sides],
        nearest=[] if extract.sentences else [_citation(source, 0, len(source.text)) for source in found[:MAX_NEAREST]],
        passages_read=len(found),
        documents_read=len({source.key for source in found}),
        cost_cents=embedding.cents(),
        results=results,
    )


def _read_question(question: str, history: Sequence[str]) -> CompleteQuestion:
    if len(history) > MAX_TURNS:
        raise ApiError(TOO_MANY_TURNS, field="history")
    with _named("history"):
        turns = [parse_query(turn).text for turn in history if turn.strip()]
    with _named("question"):
        parse_query(question)
        complete = complete_question(question, turns)
        words = content_words(parse_query(complete.text).text)
    if not query_lexemes(words):
        raise ApiError(NO_WORDS, field="question")
    return complete


@contextmanager
def _named(field: str) -> Iterator[None]:
    """Let errors of the query name the request's field."""
    try:
        yield
    except ApiError as error:
        error.field = field
        raise


def _sentence(candidate: Candidate) -> AnswerSentence:
    sentence = candidate.ranked.sentence
    html = render_table([sentence]) if sentence.cells else ""
    citation = _citation(candidate.source, sentence.start, sentence.end)
    return AnswerSentence(cut_text(sentence.text), html, 1.0, [citation])


def _citation(source: Source, start: int, end: int) -> AnswerCitation:
    span = source.span(max(start, source.repeated), end)
    return AnswerCitation(
        chunk_id=source.chunk_id,
        document_id=source.document_id,
        law_id=source.law_id,
        title=source.title,
        dated_at=source.dated_at,
        headings=source.headings,
        page=source.page(span[0]),
        span=span,
    )
