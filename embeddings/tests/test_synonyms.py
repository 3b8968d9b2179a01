"""Synonyms: a member's words find the booklet's, and its sentences answer."""

import pytest

from embeddings.search.hybrid_search import search
from embeddings.search.synonyms import find_synonyms, replace_terms
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person

BOOKLET = """\
# Emergency department

| Your costs | Emergency department |
|---|---|
| In network, you pay | $350 copay |
| Out of network, you pay | $400 copay |

- Follow-up visits in an emergency department

# Private room

A visit to a private room is a cost of your own.
"""


def test_terms_are_whole_words_whatever_their_case() -> None:
    assert find_synonyms("The ER bill") == {"er": ["emergency room", "emergency department"]}
    assert find_synonyms("smokers") == {"smokers": ["smoking", "tobacco"]}
    assert find_synonyms("her offer, doctoral; Emergency roommate") == {}
    assert replace_terms("My Shot, her ER", ["shot"]) == "My shot, shots, vaccine, immunization, her ER"


@pytest.mark.django_db
@pytest.mark.parametrize("question", ["What does an emergency room visit cost?", "What do I pay at the ER?"])
def test_a_members_words_are_answered_in_the_booklets(question: str, ana: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET)

    body = ana.post("/answer", {"question": question}).json()

    assert body["text"].splitlines()[0] == "In network, you pay — Emergency department: $350 copay"


@pytest.mark.django_db
def test_only_terms_that_no_passage_has_are_replaced(ana: Person) -> None:
    create_searchable_markdown(ana.id, "# Shots\n\nA flu shot is free.\n")
    create_searchable_markdown(ana.id, "# Vaccines\n\nEvery vaccine and immunization is recorded.\n")

    assert [passage.headings for passage in search(user_id=ana.id, query="flu shot", mode="text")] == [["Shots"]]
    assert [each.headings for each in search(user_id=ana.id, query="medicine vaccine", mode="text")] == [["Vaccines"]]
