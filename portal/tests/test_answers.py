"""Answers on the search page: above the passages, with links to their places, and whether they were right."""

import re
from typing import Any

import pytest
from django.test import Client

from portal.tests.conftest import signed_in
from search.models import AnswerFeedback
from search.tests.test_answers import AMENDMENT, BOOKLET
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person

pytestmark = pytest.mark.django_db
QUESTION = "How many acupuncture visits are covered?"


@pytest.fixture
def client(ana: Person) -> Client:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")
    create_searchable_markdown(ana.id, AMENDMENT, filename="amendment.pdf")
    return signed_in(ana)


def search(client: Client, query: str, **more: Any) -> str:
    return client.post("/find", {"query": query, **more}).content.decode()


def test_the_answer_stands_above_the_passages_and_opens_its_place(client: Client) -> None:
    page = search(client, QUESTION)

    assert page.index('<h3 id="answer-title">Answer') < page.index('<ol class="found">')
    assert page.count("<td>15 visits a plan year</td>") == 1  # as a side alone, though it answers
    assert "Your documents differ" in page
    assert len(re.findall(r", uploaded \d+ \w{3} 20\d\d<", page)) == 2
    link = page.partition('<h3 id="answer-title">')[2].partition('href="')[2].partition('#cited"')[0]
    start, end = map(int, link.rpartition("span=")[2].split("-"))
    assert BOOKLET[start:end] == "| Visit limit | 15 visits a plan year |"
    assert client.get(link.replace("&amp;", "&")).status_code == 200


@pytest.mark.parametrize("query", ["asdkjh qwe", "the of and"])
def test_without_an_answer_only_passages_are_shown(query: str, client: Client) -> None:
    page = search(client, query)

    assert "answer-title" not in page


@pytest.mark.parametrize(("right", "stored"), [("yes", True), ("no", False)])
def test_an_opinion_is_stored_once_it_is_given(right: str, stored: bool, client: Client, ana: Person) -> None:
    given = client.post("/find", {"query": QUESTION}).context["quoted_answer"].sentences[0].citations[0]
    form = {"question": QUESTION, "passage": given.chunk_id, "span": "-".join(map(str, given.span)), "right": right}

    plain = client.post("/find/feedback", form, follow=True)
    fragment = client.post("/find/feedback", form, headers={"HX-Request": "true"})

    assert "your opinion is stored" in plain.content.decode()
    assert "your opinion is stored" in fragment.content.decode()
    assert list(AnswerFeedback.objects.values_list("user_id", "is_right")) == [(ana.id, stored)] * 2


@pytest.mark.parametrize(
    "form", [{}, {"passage": "x", "span": "1-2"}, {"passage": "00000000-0000-4000-8000-000000000000"}]
)
def test_an_opinion_about_nothing_is_not_stored(form: dict[str, str], client: Client) -> None:
    assert client.post("/find/feedback", {"question": "q", **form}).status_code == 404
    assert not AnswerFeedback.objects.exists()
