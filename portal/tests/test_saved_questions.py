"""Saved questions of the search page: their address, follow-ups, bounds, and whose they are."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from accounts.rls import as_tenant
from portal.tests.conftest import signed_in
from search import saved_questions
from search.models import SavedQuestion
from search.tests.test_answers import BOOKLET
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person

pytestmark = pytest.mark.django_db
QUESTION = "What do I pay for physical therapy?"


@pytest.fixture
def client(ana: Person) -> Client:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")
    return signed_in(ana)


def save(person: Person, question: str = QUESTION) -> SavedQuestion:
    return saved_questions.save_question(user_id=person.id, question=question, history=[], mode="hybrid", scope="")


def test_a_question_has_an_address_without_its_words(client: Client, ana: Person) -> None:
    first = client.post("/find", {"query": QUESTION, "mode": "text"})

    saved = SavedQuestion.objects.get()
    address = f"/find/{saved.pk}"
    again = client.get(address)

    assert f'data-address="{address}"' in first.content.decode()
    assert (saved.user_id, saved.question, saved.mode) == (ana.id, QUESTION, "text")
    assert again.context["form"].query == QUESTION
    assert [each.text for each in again.context["quoted_answer"].sentences] == [
        each.text for each in first.context["quoted_answer"].sentences
    ]
    assert SavedQuestion.objects.count() == 1


def test_a_follow_up_is_completed_from_the_page_before(client: Client) -> None:
    client.post("/find", {"query": QUESTION})
    (subject,) = SavedQuestion.objects.all()

    page = client.post("/find", {"query": "and out of network?", "after": subject.pk})

    assert "Asked after “What do I pay for physical therapy?”" in page.content.decode()
    assert "40% after deductible" in page.context["quoted_answer"].text
    follow_up = SavedQuestion.objects.exclude(pk=subject.pk).get()
    assert follow_up.history == [QUESTION]
    assert "40% after deductible" in client.get(f"/find/{follow_up.pk}").context["quoted_answer"].text


def test_a_question_is_its_tenants_alone(ana: Person, ben: Person) -> None:
    saved = save(ana)
    stranger = signed_in(ben)

    assert stranger.get(f"/find/{saved.pk}").status_code == 404
    stranger.post(f"/find/{saved.pk}/forget")
    after = stranger.post("/find", {"query": "and outside?", "after": saved.pk})

    assert QUESTION not in after.content.decode()
    assert SavedQuestion.objects.filter(pk=saved.pk).exists()
    with as_tenant(ben.id):
        assert not SavedQuestion.objects.filter(pk=saved.pk).exists()
    with as_tenant(ana.id):
        assert SavedQuestion.objects.get().pk == saved.pk


def test_a_question_is_forgotten(client: Client, ana: Person) -> None:
    saved = save(ana)

    page = client.post(f"/find/{saved.pk}/forget", follow=True)

    assert "The question is forgotten." in page.content.decode()
    assert client.get(f"/find/{saved.pk}").status_code == 404
    assert client.get(f"/find/{uuid4()}").status_code == 404


def test_questions_are_bounded_by_number_and_age(ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_questions, "MAX_QUESTIONS", 2)
    bens = save(ben)
    for question in ("one", "two", "three"):
        last = save(ana, question)
        SavedQuestion.objects.filter(user_id=ana.id).update(created_at=Now() - timedelta(days=1))
        SavedQuestion.objects.filter(pk=last.pk).update(created_at=Now())

    assert SavedQuestion.objects.filter(user_id=ana.id, question="three").exists()
    assert SavedQuestion.objects.filter(user_id=ana.id).count() == 2

    SavedQuestion.objects.filter(pk=bens.pk).update(created_at=Now() - timedelta(days=saved_questions.MAX_DAYS + 1))
    saved_questions.delete_expired_questions()
    assert {row.user_id for row in SavedQuestion.objects.all()} == {ana.id}


def test_what_is_refused_is_not_saved(client: Client) -> None:
    assert "data-address" not in client.post("/find", {"query": " "}).content.decode()
    assert client.post("/find", {"query": "therapy", "after": "x"}).status_code == 200
    assert SavedQuestion.objects.count() == 1


def test_a_page_buys_no_answer_of_a_model_but_lets_the_browser_ask(client: Client, settings: Any) -> None:
    settings.ANSWERER, settings.OPENAI_API_KEY = "openai", "sk-none"
    settings.OPENAI_BASE_URL = "http://127.0.0.1:9"

    page = client.post("/find", {"query": QUESTION})
    nothing = client.post("/find", {"query": "asdkjh qwe"})

    assert json.loads(page.context["model_request"])["question"] == QUESTION
    assert page.context["quoted_answer"].answerer == "extractive"
    assert 'id="model-answer"' in page.content.decode()
    assert 'id="model-answer"' not in nothing.content.decode()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM purchases")
        assert cursor.fetchone() == (0,)
