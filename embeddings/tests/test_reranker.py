"""The second stage of hybrid search: best sentences, and documents that a question names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.rls import as_tenant
from documents.models import Document
from embeddings import active_model, sentence_vectors
from embeddings.models import DocumentChunk, DocumentTerm
from embeddings.search import bm25, document_names, reranker
from embeddings.search.document_names import split_words
from embeddings.search.fusion import RankedChunk, ScoreParts, TextScore
from embeddings.search.hybrid_search import search
from embeddings.search.passage_sentences import passage_sentences
from embeddings.search.postings import read_postings
from embeddings.search.reranker import SentenceMatch
from embeddings.search.results import RetrievedChunk
from embeddings.search.vector_search import Scope
from testing.embedders import WordEmbedder
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person

FILLER = "Members read this booklet with care. "


def candidate(
    number: int, text: str, *, score: float = 0.1, headings: tuple[str, ...] = (), bm25: float = 0.0
) -> RetrievedChunk:
    ranked = RankedChunk(UUID(int=number), score, ScoreParts(None, TextScore(number, bm25) if bm25 else None))
    document, chunker = UUID(int=100 + number), ("markdown-simple", "3")
    return RetrievedChunk(
        ranked, document, "plan.pdf", chunker, number, text, {}, 0, len(text), list(headings), passage_sentences(text)
    )


def order(chunks: list[RetrievedChunk], query: str, named: dict[UUID, float] | None = None) -> list[int]:
    matches = reranker.match_sentences(chunks, query, dict.fromkeys(query.split(), 1.0))
    return [chunk.ranked.chunk_id.int for chunk in reranker.rerank(chunks, matches, named or {})]


# Sentences


def test_words_in_one_sentence_come_before_the_same_words_scattered() -> None:
    scattered = f"A wig is a thing. {FILLER}Repair of teeth is slow. {FILLER}Money is yearly."
    together = f"{FILLER}The repair of a wig is paid yearly. {FILLER}"

    assert order([candidate(1, scattered), candidate(2, together)], "yearly wig repair") == [2, 1]


def test_a_sentence_matches_words_of_like_meaning() -> None:
    chunks = [candidate(1, "Parking is behind the clinic."), candidate(2, "The physician sees children on Mondays.")]

    assert order(chunks, "doctor kids") == [2, 1]


def test_a_row_of_a_table_is_a_sentence_with_its_column_heads() -> None:
    table = "| Service | Copay |\n|---|---|\n| Dentist | $5 |\n| Chiropractor | $60 |"
    chunks = [candidate(1, "The copay is explained below."), candidate(2, table)]

    assert order(chunks, "chiropractor copay") == [2, 1]


def test_the_heading_path_counts_for_each_sentence() -> None:
    text = "It is paid once in a year."
    chunks = [candidate(1, text, headings=("Dental", "Crowns")), candidate(2, text, headings=("Vision", "Frames"))]

    assert order(chunks, "frames paid") == [2, 1]


def test_a_named_document_comes_first() -> None:
    chunks = [candidate(1, "The deductible is $100."), candidate(2, "The deductible is $100.")]

    assert order(chunks, "deductible") == [1, 2]
    assert order(chunks, "deductible", {UUID(int=102): 3.0}) == [2, 1]


def test_a_passage_far_ahead_in_words_comes_first() -> None:
    chunks = [candidate(1, "The same.", bm25=1.0), candidate(2, "The same.", bm25=9.0), candidate(3, "The same.")]

    assert order(chunks, "same") == [2, 1, 3]


def test_texts_without_tokens_and_queries_without_words_are_ranked() -> None:
    chunks = [candidate(1, "", score=0.1), candidate(2, "—", score=0.2), candidate(3, "\x02", score=0.3)]

    assert sorted(order(chunks, "")) == [1, 2, 3]
    ranked = reranker.rerank(chunks, reranker.match_sentences(chunks, "?!", {}), {})
    assert all(0 < each.ranked.score <= 1 for each in ranked)
    assert order([], "wig") == []


# Sentence vectors

WIG, MONDAYS = "A wig is paid once.", "The clinic opens on Mondays."


@pytest.fixture
def word_model(settings: Any) -> Callable[[RetrievedChunk], RetrievedChunk]:
    """Return a function that gives a candidate the vectors of its sentences."""
    settings.SENTENCE_MODEL = "testing.embedders.WordEmbedder"

    def embedded(chunk: RetrievedChunk) -> RetrievedChunk:
        return replace(chunk, sentence_vectors=sentence_vectors.embed_sentences(WordEmbedder(), chunk.text))

    return embedded


def test_the_best_sentence_by_the_sentence_model_counts(
    word_model: Callable[[RetrievedChunk], RetrievedChunk],
) -> None:
    chunks = [candidate(1, f"{FILLER}{WIG}"), candidate(2, f"{MONDAYS} {FILLER}")]
    asked = "the clinic opens on mondays"

    first, second = reranker.match_sentences([word_model(each) for each in chunks], asked, {})

    assert first.model_similarity == pytest.approx(0, abs=0.3)
    assert second.model_similarity == pytest.approx(1, abs=0.01)
    assert all(each.model_similarity is None for each in reranker.match_sentences(chunks, asked, {}))


@pytest.mark.parametrize(
    ("similarities", "expected"),
    [([None, None, None], [1, 2, 3]), ([0.1, 0.9, 0.5], [2, 3, 1]), ([0.1, 0.9, None], [2, 3, 1])],
)
def test_candidates_with_and_without_sentence_vectors_are_compared(
    similarities: list[float | None], expected: list[int]
) -> None:
    chunks = [candidate(number, WIG) for number in (1, 2, 3)]
    matches = [SentenceMatch(0.5, 0.3, () if known is None else (known,)) for known in similarities]

    assert [each.ranked.chunk_id.int for each in reranker.rerank(chunks, matches, {})] == expected


@pytest.mark.parametrize(
    ("match", "coverage", "relevant"),
    [
        (SentenceMatch(0, 0.9, (0.2,)), 0.0, False),  # like another sentence by the static vectors alone
        (SentenceMatch(0, 0.0, (0.6,)), 0.0, True),
        (SentenceMatch(0, 0.6), 0.0, True),
        (SentenceMatch(0, 0.1), 0.0, False),
        (SentenceMatch(0, 0.0, (0.0,)), 1.0, True),  # one passage has all the words
    ],
)
def test_the_floor_is_the_sentence_models_where_it_is_known(
    match: SentenceMatch, coverage: float, *, relevant: bool
) -> None:
    assert reranker.is_relevant([match], coverage, 3) is relevant


@pytest.mark.parametrize(
    ("chunk_count", "lacks_term", "relevant"), [(1, False, True), (1, True, False), (150, False, False)]
)
def test_the_floor_is_higher_among_many_passages_and_where_none_has_a_known_term(
    chunk_count: int, *, lacks_term: bool, relevant: bool
) -> None:
    match = SentenceMatch(0, 0.0, (0.4,))

    assert reranker.is_relevant([match], 0.1, 3, chunk_count=chunk_count, lacks_term=lacks_term) is relevant


# Names of documents


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Gold_2025-plan", "Gold 2025 plan"),
        ("GPLv3", "GPLv3 GPLv 3"),
        ("PerksPlus 10K", "PerksPlus Perks Plus 10K 10"),
        ("3M FY24", "3M 3 FY24 FY 24 2024"),
        ("LGPL-2.1", "LGPL 2.1 2 1"),
        ("", ""),
    ],
)
def test_glued_words_of_a_name_are_also_found_apart(name: str, words: str) -> None:
    assert split_words(name) == words


@pytest.fixture
def plans(ana: Person) -> list[UUID]:
    """Three years of one plan with the same words, and the same vectors."""
    texts = ["# Harbor Choice\n\nWelcome to the plan.", "The deductible is paid once in a plan year."]
    return [create_searchable_document(ana.id, texts, filename=f"choice_{year}.pdf") for year in (2024, 2025, 2026)]


@pytest.mark.django_db
@pytest.mark.parametrize("mode", ["hybrid", "text"])
def test_a_question_that_names_a_year_finds_that_years_document_first(
    mode: str, ana: Person, plans: list[UUID]
) -> None:
    for year, document_id in zip((2024, 2025, 2026), plans, strict=True):
        first = search(user_id=ana.id, query=f"deductible in the plan of {year}", mode=mode)[0]

        assert first.document_id == document_id
        assert "deductible" in first.text


@pytest.mark.django_db
def test_a_rename_changes_the_name_in_the_index_and_no_vector(ana: Person, plans: list[UUID]) -> None:
    vectors = list(DocumentChunk.objects.order_by("pk").values_list("vector_sha", "embed_updated_at"))
    Document.objects.filter(pk=plans[0]).update(filename="choice_1999.pdf")

    bm25.index_document(plans[0])

    assert search(user_id=ana.id, query="deductible 1999")[0].document_id == plans[0]
    assert not DocumentTerm.objects.filter(document=plans[0], term__endswith="2024").exists()
    assert list(DocumentChunk.objects.order_by("pk").values_list("vector_sha", "embed_updated_at")) == vectors


def named(scope: Scope, query: str) -> dict[UUID, float]:
    postings = read_postings(scope, [], split_words(query))
    return document_names.named_documents(postings, document_names.score_names(postings), [])


@pytest.mark.django_db
def test_names_are_of_the_tenant_and_the_scope_alone(ana: Person, ben: Person, plans: list[UUID]) -> None:
    theirs = create_searchable_document(ben.id, ["wig"], filename="choice_2025.pdf")
    model = active_model.active_model(ana.id)

    with as_tenant(ana.id):
        own = named(Scope(ana.id, model), "choice 2025")
        narrowed = named(Scope(ana.id, model, tuple(plans[:2])), "choice 2025")
        foreign = named(Scope(ben.id, model), "choice 2025")
    assert set(own) == set(narrowed) == {plans[1]}
    assert foreign == {}
    assert theirs not in own


@pytest.mark.django_db
def test_a_word_of_most_names_names_none(ana: Person, plans: list[UUID]) -> None:
    scope = Scope(ana.id, active_model.active_model(ana.id))

    with as_tenant(ana.id):
        assert named(scope, "choice harbor pdf the") == {}


@pytest.mark.django_db
def test_deleting_a_documents_terms_deletes_its_name(ana: Person, plans: list[UUID]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_chunks WHERE document_id = %s", [plans[0]])

    bm25.index_document(plans[0])

    assert not DocumentTerm.objects.filter(document=plans[0]).exists()


# Relevance


@pytest.mark.django_db
def test_a_question_that_no_passage_answers_gets_the_nearest_apart(ana: Person) -> None:
    create_searchable_document(ana.id, ["The deductible is paid once in a plan year.", "Wigs are covered."])

    def ask(query: str, **more: str) -> tuple[int, int]:
        body = ana.post("/search", {"query": query, **more}).json()
        return len(body["passages"]), len(body["nearest"])

    assert ask("asdkjh qwe") == ask("Who painted the Night Watch?") == (0, 2)
    assert ask("wigs") == ask("When is the deductible paid?") == (2, 0)
    assert ask("asdkjh qwe", mode="vector") == (2, 0)


@pytest.mark.django_db
def test_no_sentence_of_what_is_only_nearest_is_marked(ana: Person) -> None:
    create_searchable_document(ana.id, ["Wigs are covered.", "| Item | Copay |\n|---|---|\n| Wig | $5 |"])

    nearest = ana.post("/search", {"query": "Who painted the Night Watch?"}).json()["nearest"]
    passages = ana.post("/search", {"query": "wigs"}).json()["passages"]

    assert [(each["answer_span"], "<mark>" in each["snippet_html"]) for each in nearest] == [(None, False)] * 2
    assert {each["snippet_text"] for each in nearest} == {"Wigs are covered.", "Wig — Copay: $5"}
    assert all(each["answer_span"] and "<mark>" in each["snippet_html"] for each in passages)


@pytest.mark.django_db
def test_the_search_page_says_that_an_answer_was_not_found(ana: Person) -> None:
    create_searchable_document(ana.id, ["Wigs are covered."])
    ana.client.force_login(ana.user)

    page = ana.client.post("/find", {"query": "Who painted the Night Watch?"}).content.decode()

    assert "Not found in your documents" in page
    assert "Wigs are covered." in page


def test_a_passage_with_all_words_is_relevant_however_unlike() -> None:
    unlike = [reranker.SentenceMatch(0.0, 0.0)]

    assert reranker.is_relevant(unlike, 1.0, 1)
    assert not reranker.is_relevant(unlike, 0.5, 6)
    assert not reranker.is_relevant([], 0.0, 0)
