"""Answers to a tenant's questions: search, sentences of the documents or of a model, citations and cost."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from accounts.errors import ApiError
from embeddings.search.answer_types import content_words
from embeddings.search.lexemes import query_lexemes
from embeddings.search.query_parser import HYBRID, QueryEmbedding, parse_query
from embeddings.search.snippets import cut_text, render_table
from search.answers import generative
from search.answers.booklet_words import reword
from search.answers.concurrency_limit import AnswerSlot
from search.answers.extractive import Candidate, Extract, extract_answer
from search.answers.follow_ups import CompleteQuestion, complete_question
from search.answers.generative import Generation
from search.answers.groundedness import GroundedSentence
from search.answers.sources import Source, collect_sources
from search.error_codes import NO_WORDS, TOO_MANY_TURNS
from search.services import UPLOADS, SearchResults, search
from statutes.article_citations import StatutePassage

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
class Searched:
    """What was read for an answer. ``question`` is what was searched: a follow-up is completed."""

    question: str
    passages: int
    documents: int


@dataclass(frozen=True, slots=True)
class Answer:
    """``sentences`` is empty where the documents do not say; ``nearest`` is then what came closest.

    ``contradiction`` has a sentence of each document where these differ. ``fallback`` is the code of what kept a model
    from answering; ``dropped_sentences`` are the model's.
    """

    searched: Searched
    answerer: str
    fallback: str | None
    sentences: list[AnswerSentence]
    dropped_sentences: int
    contradiction: list[AnswerSentence]
    nearest: list[AnswerCitation]
    cost_cents: Decimal
    results: SearchResults

    @property
    def answered(self) -> bool:
        return bool(self.sentences)

    @property
    def is_disputed(self) -> bool:
        """Tell whether documents differ about the first sentence, which is then one of the sides."""
        return any(sentence in self.contradiction for sentence in self.sentences[:1])

    @property
    def text(self) -> str:
        return "\n".join(sentence.text for sentence in self.sentences) or str(NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A question with the sources that were found for it."""

    user_id: UUID
    question: CompleteQuestion
    results: SearchResults
    sources: list[Source]
    embedding: QueryEmbedding

    @property
    def searched(self) -> Searched:
        return Searched(self.question.text, len(self.sources), len({source.key for source in self.sources}))

    @property
    def is_relevant(self) -> bool:
        return bool(self.results.passages or self.results.laws)

    def of_statutes(self, laws: Sequence[StatutePassage]) -> "Retrieval":
        """Return the question with these passages of statutes as its only sources."""
        results = SearchResults([], [], list(laws), [])
        return replace(self, results=results, sources=collect_sources(self.user_id, results))


def answer(
    *,
    user_id: UUID,
    question: str,
    history: Sequence[str] = (),
    is_connected: Callable[[], bool] = lambda: True,
    **scope: Any,
) -> Answer:
    """Answer from the tenant's documents, and from statutes if these are among ``sources``.

    ``scope`` are further arguments of ``retrieve``. Where too many answers are being written by a model, this one is
    extractive. Raises as ``retrieve``, and ``ClientGone``.
    """
    retrieval = retrieve(user_id=user_id, question=question, history=history, **scope)
    try:
        slot: AbstractContextManager[object] = AnswerSlot(user_id) if generative.is_enabled() else nullcontext()
    except ApiError as busy:
        return replace(quote_answer(retrieval), fallback=busy.code)
    with slot:
        *_, whole = write_answer(retrieval, is_connected=is_connected)
    return cast(Answer, whole)


def quote_answer(retrieval: Retrieval) -> Answer:
    """Answer by quotations, whoever writes answers: no model is asked, and nothing more is bought."""
    extract = extract_answer(retrieval.sources, retrieval.question)
    return _whole_answer(retrieval, extract, [_quotation(each) for each in extract.sentences], None)


def retrieve(
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
) -> Retrieval:
    """Search for the passages that an answer is made of.

    ``history`` has the earlier questions, oldest first; ``query_embedding`` shares the question's vector with other
    searches of the request. Raises ``ApiError``: NO_WORDS, TOO_MANY_TURNS, and as
    ``search.services.search``.
    """
    complete = _read_question(question, history)
    embedding = query_embedding or QueryEmbedding(user_id)
    options = {"sources": sources, "mode": mode, "document_ids": document_ids, "law_ids": law_ids, "filters": filters}
    found = _find(user_id, complete, embedding, options)
    reworded = reword(complete.text)
    if reworded is None:
        return found
    other = _find(user_id, replace(complete, text=reworded), embedding, options)
    return other if _best_score(other) > _best_score(found) else found


def _find(user_id: UUID, question: CompleteQuestion, embedding: QueryEmbedding, options: dict[str, Any]) -> Retrieval:
    results = search(user_id=user_id, query=question.text, k=PASSAGES, query_embedding=embedding, **options)
    return Retrieval(user_id, question, results, collect_sources(user_id, results), embedding)


def _best_score(retrieval: Retrieval) -> float:
    sentences = extract_answer(retrieval.sources, retrieval.question).sentences
    return sentences[0].score if sentences else 0.0


def write_answer(
    retrieval: Retrieval, *, is_connected: Callable[[], bool] = lambda: True
) -> Iterator[AnswerSentence | Answer]:
    """Yield the sentences of an answer, each once it is checked, and at last the whole answer.

    Only the whole answer counts: sentences of a model that fails are followed by those of the documents. Raises
    ``ClientGone`` where ``is_connected`` tells so before a purchase.
    """
    extract = extract_answer(retrieval.sources, retrieval.question)
    generation = None
    if may_generate(retrieval, extract.sentences):
        generation = yield from _generate(retrieval, is_connected)
    if generation and not generation.failure:
        sentences = [_model_sentence(each) for each in generation.sentences]
    else:
        sentences = [_quotation(each) for each in extract.sentences]
        yield from sentences
    yield _whole_answer(retrieval, extract, sentences, generation)


def may_generate(retrieval: Retrieval, quotations: Sequence[object]) -> bool:
    """Tell whether a model is asked beside these sentences of the documents.

    Nothing is bought where neither the floor of the search nor that of the sentences lets anything pass.
    """
    return generative.is_enabled() and bool(retrieval.is_relevant or quotations)


def _generate(retrieval: Retrieval, is_connected: Callable[[], bool]) -> Generator[AnswerSentence, None, Generation]:
    generation = generative.generate_sentences(
        retrieval.user_id, retrieval.question.text, retrieval.sources, is_connected=is_connected
    )
    with closing(generation):
        while True:
            try:
                sentence = next(generation)
            except StopIteration as end:
                whole: Generation = end.value
                return whole
            yield _model_sentence(sentence)


def _whole_answer(
    retrieval: Retrieval, extract: Extract, sentences: list[AnswerSentence], generation: Generation | None
) -> Answer:
    fallback = generation.failure if generation else None
    nearest = [] if sentences else retrieval.sources[:MAX_NEAREST]
    return Answer(
        searched=retrieval.searched,
        answerer=generative.OPENAI if generation and not fallback else EXTRACTIVE,
        fallback=fallback,
        sentences=sentences,
        dropped_sentences=generation.dropped if generation else 0,
        contradiction=[_quotation(each) for each in extract.sides],
        nearest=[_citation(source, 0, len(source.text)) for source in nearest],
        cost_cents=retrieval.embedding.cents() + (generation.cents if generation else 0),
        results=retrieval.results,
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


def _model_sentence(sentence: GroundedSentence) -> AnswerSentence:
    return AnswerSentence(sentence.text, "", 1.0, [_citation(*place) for place in sentence.places])


def _quotation(candidate: Candidate) -> AnswerSentence:
    sentence = candidate.ranked.sentence
    html = render_table([sentence]) if sentence.cells else ""
    citation = _citation(candidate.source, sentence.start, sentence.end)
    return AnswerSentence(cut_text(candidate.text), html, 1.0, [citation])


def _citation(source: Source, start: int, end: int) -> AnswerCitation:
    span = source.span(max(start, source.repeated), end)
    return AnswerCitation(
        chunk_id=source.chunk_id,
        document_id=source.document_id,
        law_id=source.law_id,
        title=source.title_of(span),
        dated_at=source.dated_at,
        headings=source.headings,
        page=source.page(span[0]),
        span=span,
    )
