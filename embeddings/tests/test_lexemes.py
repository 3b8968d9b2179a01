"""Lexemes of texts: those of the database, which is asked once for each word."""

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from embeddings.search import lexemes
from embeddings.search.lexemes import query_lexemes, text_lexemes

pytestmark = pytest.mark.django_db
TEXTS = [
    "Pre-authorization is required after the 12th visit (see §4.2).",
    "$1,500.50 / visit, person; -5 % or +7e3, in/out of network",
    "Call 1-800-555-0100, mail help@plan.example or see https://plan.example/a?b=c&d",
    "<b>Copay</b> of the <a href='x y'>plan</a>, &amp; more",
    "~40-line form, ~ 5 rows, half~way",
    "El reembolso de la garantía, obligación",
    "the of and",
    "",
]


def stemmed(text: str, configuration: str) -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tsvector_to_array(to_tsvector(%s::regconfig, %s))", [configuration, text])
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
