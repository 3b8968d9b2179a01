"""Feedback on answers: whose it is, what it may name, its export, and that it goes with its document."""

import json
from uuid import UUID, uuid4

import pytest

from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents import services
from documents.models import Document
from embeddings.models import DocumentChunk
from search.answers.feedback import record_feedback
from search.models import AnswerFeedback
from search.tests.test_answers import BOOKLET, ask, command_output
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person

pytestmark = pytest.mark.django_db
QUESTION = "How many therapy visits are covered?"


def judge(person: Person, is_right: bool = True) -> UUID:
    """Let a person judge the first sentence of an answer; return the document."""
    (citation,) = ask(person, QUESTION)["sentences"][0]["citations"]
    span = citation["span"][0], citation["span"][1]
    chunk_id = UUID(citation["chunk_id"])
    record_feedback(user_id=person.id, question=QUESTION, chunk_id=chunk_id, span=span, is_right=is_right)
    return UUID(citation["document_id"])


def test_what_was_judged_is_exported_as_a_test_set(ana: Person, ben: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")
    judge(ana)
    judge(ana, is_right=False)

    rows = [json.loads(line) for line in command_output("export_answer_feedback", user=str(ana.id)).splitlines()]

    assert rows[0] == {
        "question": QUESTION,
        "document": "booklet.pdf",
        "pages": [1],
        "answer": "Visit limit — 40 visits a plan year",
        "right": True,
    }
    assert [row["right"] for row in rows] == [True, False]
    assert command_output("export_answer_feedback", user=str(ben.id)) == ""


def test_feedback_outlives_its_passage_but_not_its_document(ana: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")
    document_id = judge(ana)
    DocumentChunk.objects.filter(document_id=document_id).delete()

    row = json.loads(command_output("export_answer_feedback", user=str(ana.id)))
    services.delete(Document.objects.get(pk=document_id))

    assert (row["answer"], row["question"]) == ("", QUESTION)
    assert not AnswerFeedback.objects.exists()


@pytest.mark.parametrize("span", [(0, 10_000), (-1, 3), (5, 5), (7, 3)])
def test_only_what_stands_in_ones_own_passages_is_judged(span: tuple[int, int], ana: Person, ben: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET)
    chunk_id = DocumentChunk.objects.get(user_id=ana.id).pk

    for user_id, passage, place in ((ana.id, chunk_id, span), (ben.id, chunk_id, (0, 5)), (ana.id, uuid4(), (0, 5))):
        with pytest.raises(ApiError, match="NOT_FOUND"):
            record_feedback(user_id=user_id, question="q", chunk_id=passage, span=place, is_right=True)
    assert not AnswerFeedback.objects.exists()


def test_the_policy_hides_anothers_feedback(ana: Person, ben: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET)
    judge(ana)

    with as_tenant(ben.id):
        assert not AnswerFeedback.objects.exists()
    with as_tenant(ana.id):
        assert AnswerFeedback.objects.count() == 1
