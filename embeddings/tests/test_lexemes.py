"""Lexemes of texts: those of the database, which is asked once for each word."""

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from embeddings.search import lexemes
from embeddings.search.hybrid_search import search
from embeddings.search.lexemes import PARTED, query_lexemes, text_lexemes
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person

pytestmark = pytest.mark.django_db
TEXTS = [
    "Pre-authorization is required after the 12th visit (see §4.2).",
    "$1,500.50 / visit, person; -5 % or +7e3, in/out of network",
    "Call 1-800-555-0100, mail help@plan.example or see https://plan.example/a?b=c&d",
    "<b>Copay</b> of the <a href='x y'>plan</a>, &amp; more",
    "Preventive care/screening/immunization 1/2 on 4/1/2027",
    "~40-line form, ~ 5 rows, half~way",
    "El reembolso de la garantía, obligación",
    "the of and",
    "",
]


def stemmed(text: str, configuration: str) -> frozenset[str]:
    with connection.cursor() as cursor:
        parted = PARTED.format("%s::text")
        cursor.execute(f"SELECT tsvector_to_array(to_tsvector(%s::regconfig, {parted}))", [configuration, text])
        return frozenset(cursor.fetchone()[0])


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexemes, "_known", type(lexemes._known)(dict))


def test_texts_have_the_lexemes_of_the_database(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    texts = [(text, configuration) for text in TEXTS for configuration in ("english", "spanish")]

    assert text_lexemes(texts) == {text: stemmed(*text) for text in texts}
    with django_assert_num_queries(0):
        assert query_lexemes("required visit, after the network or person;") == ["network", "person", "requir", "visit"]


def test_words_beyond_the_limit_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexemes, "MAX_PIECES", 3)
    for text in ("covered visits", "the plan pays", "covered plans", "w" * 60, "covered visits " + "w" * 60):
        assert text_lexemes([(text, "english")]) == {(text, "english"): stemmed(text, "english")}


@pytest.mark.parametrize("query", ["immunization", '"care screening"', '"care/screening"', "screening/immunization"])
def test_words_that_a_slash_joins_are_found_one_by_one(query: str, ana: Person) -> None:
    row = "| Service | You pay |\n|---|---|\n| Preventive care/screening/immunization | No charge |"
    create_searchable_markdown(ana.id, f"# Costs\n\n{row}\n")

    (passage,) = search(user_id=ana.id, query=query, mode="text")

    assert "immunization" in passage.text
