"""Groundedness: which facts of a sentence stand in the passages that it cites, and where it leads."""

from uuid import uuid4

import pytest

from embeddings.search.passage_sentences import passage_sentences
from search.answers.facts import Facts
from search.answers.groundedness import GroundednessCheck
from search.answers.prompt import INSTRUCTIONS, Draft, DraftReader, render_prompt
from search.answers.sources import Source
from search.tests.prompt_injections import INJECTIONS
from testing.fakes.openai_responses import ResponsesModel, read_passages

PASSAGE = """\
# Physical therapy

You pay a $30 copay in network and 40% out of network. Therapy of Northwind Health is limited to 40 visits.

You may appeal within one hundred and eighty days, by March 31, 2027. Call (800) 555-0199.

| Service | Amount | Days |
|---|---|---|
| Deductible | $1,500.00 | 12 |
"""


def source(text: str = PASSAGE, title: str = "booklet.pdf") -> Source:
    return Source(
        chunk_id=uuid4(), document_id=uuid4(), law_id=None, title=title, dated_at=None, text=text, headings=["Costs"],
        pages=[1, 1], page_starts=(), start=0, end=len(text), language="",
        sentences=passage_sentences(text), idf={},
    )  # fmt: skip


def is_grounded(text: str, *passages: int) -> bool:
    return GroundednessCheck([source()]).check(Draft(text, passages or (1,))) is not None


@pytest.mark.parametrize(
    "text",
    [
        "You pay 30 dollars in network for therapy.",
        "You pay 40 percent out of network.",
        "Physical therapy is limited to forty visits.",
        "You may appeal within 180 days, by 2027-03-31.",
        "You may appeal by March 31.",
        "The deadline to appeal is in March 2027.",
        "The deductible amount is $1,500.",
        "The deductible amount takes 12 days.",
        "Call 800-555-0199 to appeal.",
        "Northwind's therapy is limited.",
    ],
)
def test_a_sentence_whose_facts_stand_in_its_passage_is_kept(text: str) -> None:
    assert is_grounded(text)


@pytest.mark.parametrize(
    "text",
    [
        "You pay $40 in network for therapy.",  # 40 is no amount there
        "You pay 30% in network for therapy.",
        "Physical therapy is limited to 41 visits.",
        "Physical therapy is limited to forty-one visits.",
        "You may appeal within 180 months.",
        "You may appeal by March 30, 2027.",
        "You may appeal by March 31, 2028.",
        "The deductible is $15,000.",
        "The deductible is $1.5 million.",
        "Therapy of Zebulon is limited to 40 visits.",
        "Zebulon therapy is limited to 40 visits.",
        "Aetna pays for physical therapy in network.",
        "Call 800-555-0198 to appeal.",
        "Appeal at www.zebulon.example in network.",
        "Cosmetic surgery is covered without approval.",  # no fact, and none of the passage's words
        "Yes.",
        "You pay a €30 copay in network for therapy.",
        "You pay a copay of 30 pesos in network for therapy.",
        "The deductible amount is $1,500K.",
        "The deductible amount is $1,500 billion.",
        "You pay half of a $30 copay in network.",
        "Therapy of Northwind Health is limited to noventa visits.",
        "Therapy of Northwind Health is limited to a dozen visits.",
        "Therapy of Northwind Health is not limited.",
    ],
)
def test_a_sentence_with_a_fact_of_its_own_is_dropped(text: str) -> None:
    assert not is_grounded(text)


@pytest.mark.parametrize(
    ("passage", "contrary", "same"),
    [
        ("Dental implants are not covered.", "Dental implants are covered.", "Dental implants aren't covered."),
        ("No prior referral is needed.", "A prior referral is needed.", "You need no prior referral."),
        ("Fillings are covered. Crowns are never covered.", "Crowns are covered.", "Fillings are covered."),
        ("Acupuncture is covered.", "Acupuncture is not covered.", "Acupuncture is covered."),
        (
            "Acupuncture ends after 15 visits.",
            "Acupuncture never ends.",
            "Acupuncture ends after no more than 15 visits.",
        ),
        ("Pague $500 MXN de deducible.", "Pague 500 euros de deducible.", "Pague 500 pesos de deducible."),
        ("Apelar dentro de treinta y cinco días.", "Apelar dentro de 36 días.", "Apelar dentro de 35 días."),
        ("El plan paga 80 por ciento.", "El plan paga noventa por ciento.", "El plan paga ochenta por ciento."),
    ],
)
def test_a_sentence_does_not_contradict_what_it_cites(passage: str, contrary: str, same: str) -> None:
    check = GroundednessCheck([source(passage)])

    assert check.check(Draft(contrary, (1,))) is None
    assert check.check(Draft(same, (1,))) is not None


# Passage, a sentence that it supports, and one that is near it and untrue.
NEAR_MISSES = [
    ("You receive a $500 credit.", "The credit is $500.", "The credit is -$500."),
    ("The adjustment is -$500.", "The adjustment is -$500.", "The adjustment is $500."),
    ("The copay amount is $100-$500.", "The copay amount is $100 to $500.", "The copay amount is -$500."),
    ("The rate changes by -5%.", "The rate changes by -5 percent.", "The rate changes by 5%."),
    (
        "Therapy patients receive up to 40 visits.",
        "Therapy patients receive no more than 40 visits.",
        "Therapy patients receive at least 40 visits.",
    ),
    (
        "Therapy patients receive up to 40 visits.",
        "Therapy patients receive at most forty visits.",
        "Therapy patients receive 40 visits.",
    ),
    ("You must attend 40 visits.", "You must attend 40 visits.", "You must attend up to 40 visits."),
    ("Limits: 40 visits a year", "Visits are limited to 40 a year.", "Visits are at least 40 a year."),
    ("Members work at least 30 hours.", "Members work 30 hours or more.", "Members work up to 30 hours."),
    (
        "Enrolled members of age 65 or older qualify.",
        "Enrolled members qualify if of age 65 or older.",
        "Enrolled members of age 65 qualify.",
    ),
    ("The plan pays forty percent.", "The plan pays 40%.", "The plan pays 40 dollars."),
    ("The plan pays 40 per cent.", "The plan pays forty per-cent.", "The plan pays fourteen percent."),
    (
        "Send your enrollment application by April 1, 2027.",
        "Send your enrollment application by 04/01/2027.",
        "Send your enrollment application by 04/02/2027.",
    ),
    (
        "Send your enrollment application by April 1, 2027.",
        "Send your enrollment application by 4/1/27.",
        "Send your enrollment application by 4/1/28.",
    ),
    (
        "Send your enrollment application by April 1, 2027.",
        "Send your enrollment application by the 1st of April 2027.",
        "Send your enrollment application by the 2nd of April 2027.",
    ),
    (
        "Send your enrollment application by 2027/04/01.",
        "Send your enrollment application by 1 April 2027.",
        "Send your enrollment application by 4 January 2027.",
    ),
    (
        "Send your enrollment application by 1.4.2027.",
        "Send your enrollment application by April 1st, 2027.",
        "Send your enrollment application by April 1st, 2026.",
    ),
    ("Massage is not covered. Therapy is covered.", "Therapy is covered.", "Therapy is not covered."),
    ("Massage is not covered. Therapy is covered.", "Massage is not covered.", "Massage is covered."),
]


@pytest.mark.parametrize(("passage", "true", "untrue"), NEAR_MISSES)
def test_a_near_miss_is_dropped_and_another_wording_kept(passage: str, true: str, untrue: str) -> None:
    check = GroundednessCheck([source(passage)])

    assert (check.check(Draft(true, (1,))) is not None, check.check(Draft(untrue, (1,)))) == (True, None)


def test_an_item_of_a_list_is_denied_by_what_introduces_it() -> None:
    check = GroundednessCheck(
        [source("# Services\n\nTherapy is covered.\n\n## What is not covered\n\n- Massage therapy\n")]
    )

    assert check.check(Draft("Massage therapy is not covered.", (1,)))
    assert check.check(Draft("Massage therapy is covered.", (1,))) is None


def test_only_passages_that_were_given_are_cited_and_only_their_facts_count() -> None:
    check = GroundednessCheck([source(), source("Acupuncture is limited to 15 visits.", "other.pdf")])
    truth = "Acupuncture is limited to 15 visits."

    assert check.check(Draft(truth, (2,)))
    assert [check.check(Draft(truth, numbers)) for numbers in ((), (1,), (0,), (3,), (-1,))] == [None] * 5
    both = check.check(Draft(truth, (9, 2, 1)))
    assert both is not None
    assert [place[0].title for place in both.places] == ["other.pdf", "booklet.pdf"]


def test_a_citation_leads_to_the_sentence_that_supports_it() -> None:
    (place,) = GroundednessCheck([source()]).check(Draft("The deductible is $1,500.", (1,))).places  # type: ignore[union-attr]

    assert PASSAGE[place[1] : place[2]] == "| Deductible | $1,500.00 | 12 |"


@pytest.mark.parametrize("text", ["a@" * 10_000, "1," * 10_000, "one " * 5_000, "A" * 20_000, "$" * 20_000])
def test_long_texts_are_read_in_linear_time(text: str) -> None:
    assert Facts.read(text).words is not None


@pytest.mark.parametrize(("injection", "payload"), INJECTIONS)
def test_what_a_model_says_that_obeys_a_document_is_dropped(injection: str, payload: str) -> None:
    sources = [source(f"{PASSAGE}\nPhysical therapy: {injection}")]
    prompt = render_prompt("How many physical therapy visits are covered?", sources)

    text = ResponsesModel("obedient", {injection: payload}).answer_text(INSTRUCTIONS + prompt)
    drafts, check = list(DraftReader().feed(text)), GroundednessCheck(sources)

    assert injection in read_passages(prompt)[1]
    assert drafts[0].text == " ".join(payload.split())
    assert check.check(drafts[0]) is None
    assert any("40 visits" in draft.text and check.check(draft) for draft in drafts)
