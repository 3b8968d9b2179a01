"""Misspellings: words that no passage has are searched as the nearest ones, if nobody would have written them."""

import pytest

from embeddings.search.hybrid_search import TEXT, search
from embeddings.search.misspellings import correct_words, count_slips
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person


@pytest.mark.parametrize(
    ("one", "other", "slips"),
    [
        ("phisic", "physic", 1),
        ("accupunctur", "acupunctur", 1),
        ("perscript", "prescript", 1),
        ("recieve", "receive", 1),
        ("visit", "visit", 0),
        ("", "abc", 3),
    ],
)
def test_slips_are_letters_put_in_left_out_replaced_or_swapped(one: str, other: str, slips: int) -> None:
    assert count_slips(one, other) == slips
    assert count_slips(other, one) == slips


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "replaced"),
    [
        ("phisical therapy", {"phisic": "physic"}),
        ("referal therapy", {"refer": "referr"}),  # a long word, whose stem is short
        ("trails of therapy", {}),  # near to "train", and too short to tell
        ("planet therapy", {}),  # a word, though it is near to "plane"
        ("zzyzxq therapy", {}),  # near to a word of another tenant
    ],
)
def test_only_a_misspelled_word_is_replaced(query: str, replaced: dict[str, str], ana: Person, ben: Person) -> None:
    create_searchable_markdown(
        ana.id, "# Physical therapy\n\nTherapy in an emergency, or on a plane or train, needs no referral.\n"
    )
    create_searchable_markdown(ben.id, "# Zzyzxw\n\nZzyzxw alone is in no other tenant.\n")

    (passage,) = search(user_id=ana.id, query=query, mode=TEXT)

    assert passage.replaced == replaced


@pytest.mark.django_db
def test_models_read_a_word_of_the_passages_for_a_misspelled_one() -> None:
    texts = ["Nothing of it.", "Referrals are asked for, and a referral is kept."]

    corrected = correct_words("Do I need a REFERAL?", {"refer": "referr"}, texts)

    assert corrected == "Do I need a referrals?"
