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
    assert find_synonyms("smokers") == {"smokers": ["smoker", "smoking", "smoke", "tobacco"]}
    assert find_synonyms("her offer, doctoral; Emergency roommate") == {}
    assert replace_terms("My Shot, her ER", {"shot": ["vaccine", "immunization"]}) == "My vaccine, immunization, her ER"


def test_a_kind_of_something_is_searched_as_it_but_not_the_reverse() -> None:
    assert "specialist" in find_synonyms("urologist")["urologist"]
    assert find_synonyms("specialist") == {}


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


@pytest.mark.django_db
def test_a_term_is_replaced_by_those_of_its_synonyms_that_passages_have(ana: Person) -> None:
    create_searchable_markdown(
        ana.id, "# Home\n\n| Peril | Excess |\n|---|---|\n| Escape of water | $350 |\n| Fire | $90 |\n"
    )

    (passage,) = search(user_id=ana.id, query="burst pipe")

    assert set(passage.idf) == {"escap", "water"}


@pytest.mark.django_db
def test_a_benefit_that_no_passage_names_is_not_answered(ana: Person) -> None:
    create_searchable_markdown(
        ana.id, "# Your costs\n\n| Visit | You pay |\n|---|---|\n| Urgent care | $75 copay a visit |\n"
    )

    assert ana.post("/answer", {"question": "urgent care copay"}).json()["answered"]
    assert not ana.post("/answer", {"question": "acupuncture copay"}).json()["answered"]
