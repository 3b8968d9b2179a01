"""Everyday questions of members: their words, the row that is asked for, steps, contacts, false contradictions."""

from dataclasses import replace

import pytest

from embeddings.search.passage_sentences import Kind, Sentence, passage_sentences
from search.answers.booklet_words import reword
from search.answers.extractive import rank_candidates
from search.answers.question_types import facet_loss, fits_type, part_lists
from search.answers.services import retrieve
from search.tests.test_answers import ask
from testing.factories.searchable_documents import create_searchable_markdown
from testing.personas import Person

BOOKLET = """\
# Deductibles

| | In network | Out of network |
|---|---|---|
| Deductible, family | $3,000 | $8,000 |
| Deductible, one person | $1,500 | $4,000 |

# When to enroll

| Occasion | You must ask within | Coverage begins |
|---|---|---|
| Marriage | 31 days | First of the next month |
| Birth or adoption | 60 days | The day of the event |

# Appeals

The time to file an appeal is 180 days. Write to the Appeals Unit, Box 4475, to file an appeal.

# Member services

Member services answer at 1-800-555-0142 on weekdays. The number of members grows each year.

# Physical therapy

| Your costs and limits | Physical therapy |
|---|---|
| In network, you pay | $35 copay |
| Limits | 40 visits a plan year |
| Prior authorization | Required after the 12th visit |

What is not covered:

- Therapy supplied free by a school

## Example

You pay $35 of the $118 that therapy costs.

# Wigs

A wig is hair that may be paid. One wig is paid in a calendar year.

# Forms

Form HM-140 is for children, form HM-9 for all others. Ask for it on form HM-601.

# Not insured

What is not covered:

- Membership fees of air ambulance subscription programs

# Dependents

Care of a child under 18 months is covered at home. A child is covered until the month in which it turns 26.
"""
SUMMARY = """\
# Costs

| Service | In network, you pay | Out of network, you pay |
|---|---|---|
| X-rays | $40 copay | 40% after deductible |
| Ambulance | $50 copay | $90 copay |

# Excluded services and other covered services

| Not covered | Covered, with limits |
|---|---|
| Cosmetic surgery | Acupuncture, 15 visits |
"""


ONE_PERSON = "Deductible, one person — In network: $1,500; Out of network: $4,000"
BIRTH = "Birth or adoption — You must ask within: 60 days; Coverage begins: The day of the event"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What is my deductible?", ONE_PERSON),
        ("What is our family deductible?", "Deductible, family — In network: $3,000; Out of network: $8,000"),
        ("What is the out-of-network deductible?", ONE_PERSON),
        ("How do I add my newborn?", BIRTH),
        ("How do I file an appeal?", "Write to the Appeals Unit, Box 4475, to file an appeal."),
        ("How long do I have to file an appeal?", "The time to file an appeal is 180 days."),
        ("What is the phone number of member services?", "Member services answer at 1-800-555-0142 on weekdays."),
        ("Is cosmetic surgery covered?", "Not covered: Cosmetic surgery"),
        ("Is acupuncture covered?", "Covered, with limits: Acupuncture, 15 visits"),
        ("How many therapy visits are covered?", "Limits — Physical therapy: 40 visits a plan year"),
        ("how many phisical therapy visits", "Limits — Physical therapy: 40 visits a plan year"),
        ("is therapy free", "In network, you pay — Physical therapy: $35 copay"),
        ("until what age is my child covered", "A child is covered until the month in which it turns 26."),
        ("how often is a wig paid", "One wig is paid in a calendar year."),
        ("what is form HM-601", "Ask for it on form HM-601."),
        ("is an ambulance covered", "Ambulance — In network, you pay: $50 copay; Out of network, you pay: $90 copay"),
    ],
)
def test_an_everyday_question_is_answered_in_the_first_line(question: str, first: str, ana: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")
    create_searchable_markdown(ana.id, SUMMARY, filename="summary.pdf")

    body = ask(ana, question)

    assert body["text"].splitlines()[0] == first
    assert body["contradiction"] == []


@pytest.mark.django_db
def test_a_follow_up_of_no_subject_asks_for_its_own_row(ana: Person) -> None:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")

    body = ask(ana, "do I need prior authorization?", "How many physical therapy visits are covered?")

    assert body["text"].splitlines()[0] == "Prior authorization — Physical therapy: Required after the 12th visit"


@pytest.mark.django_db
def test_the_sentence_models_similarity_decides_between_the_same_words(ana: Person) -> None:
    create_searchable_markdown(ana.id, "# Wigs\n\nA wig is shown at noon. A wig is paid at once.\n")
    retrieval = retrieve(user_id=ana.id, question="What about a wig?")
    (source,) = retrieval.sources

    for near in ("noon", "once"):
        similarities = [0.9 if near in each.text else 0.1 for each in source.sentences]
        best = rank_candidates([replace(source, similarities=similarities)], retrieval.question)[0]
        assert near in best.text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("question", "similarity", "answers"),
    [("Is LASIK a wig?", 0.1, False), ("Is LASIK a wig?", 0.4, True), ("Is a wig shown?", 0.1, True)],
)
def test_a_sentence_answers_by_its_words_or_by_its_meaning(
    question: str, similarity: float, answers: bool, ana: Person
) -> None:
    create_searchable_markdown(ana.id, "# Hair\n\nA wig is shown at noon.\n")
    retrieval = retrieve(user_id=ana.id, question=question)
    (source,) = retrieval.sources

    read = replace(source, similarities=[similarity] * len(source.sentences))

    assert bool(rank_candidates([read], retrieval.question)) is answers


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("one", "other", "question", "differ"),
    [
        ("| Deductible, family | $3,000 |", "| Deductible, one person | $1,500 |", "What is my deductible?", False),
        ("| Deductible, family | $3,000 |", "| Deductible, family | $3,500 |", "What is the family deductible?", True),
        ("| Tier 2 generic drugs | $20 |", "| Tier 1 generic drugs | $5 |", "What does a generic drug cost?", False),
        ("| Virtual visits | $10 |", "| Virtual visits | $0 |", "What does a virtual visit cost?", True),
        ("| Surgery, inpatient | $250 |", "| Surgery, outpatient | $100 |", "What does surgery cost?", False),
        ("| Deductible | $500 |", "| X-rays | $40 after deductible |", "What is my deductible?", False),
    ],
)
def test_rows_contradict_only_what_is_said_of_the_same(
    one: str, other: str, question: str, differ: bool, ana: Person
) -> None:
    for name, row in (("one.pdf", one), ("other.pdf", other)):
        create_searchable_markdown(ana.id, f"# Costs\n\n| Service | You pay |\n|---|---|\n{row}\n", filename=name)

    assert bool(ask(ana, question)["contradiction"]) == differ


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("one", "other", "question", "differ"),
    [
        (
            "You may appeal within 180 days of the day on which the denial came.",
            "The time for an appeal is extended from 180 to 210 days.",
            "how long do i have to appeal",
            True,
        ),
        (
            "You may appeal within 180 days of the day on which the denial came.",
            "The time to hear of an appeal is extended from 30 to 60 days.",
            "how long do i have to appeal",
            False,
        ),
        ("| Service | You pay |\n|---|---|\n| Emergency department | $350 copay |",
         "| Benefit | Until May | From June |\n|---|---|---|\n| Emergency department | $350 copay | $300 copay |",
         "how much is the ER", True),
    ],
)  # fmt: skip
def test_an_amendment_contradicts_the_figure_that_it_repeats(
    one: str, other: str, question: str, differ: bool, ana: Person
) -> None:
    for name, text in (("booklet.pdf", one), ("amendment.pdf", other)):
        create_searchable_markdown(ana.id, f"# Rules\n\n{text}\n", filename=name)

    assert bool(ask(ana, question)["contradiction"]) == differ


@pytest.mark.parametrize(
    ("question", "reworded"),
    [
        ("How do I add my baby?", "How do I enroll after a birth?"),
        ("How do I add my new wife?", "How do I enroll after a marriage?"),
        ("Is weight-loss surgery covered?", "Is bariatric surgery covered?"),
        ("What happens if I quit?", "What happens if leaving a job, keep coverage when employment ends?"),
        ("Can I quit the program?", None),
        ("They denied my claim", "They appeal a denial"),
        ("What are your phone hours?", "What are hours in which member services answer?"),
        ("Are additional spouses covered?", None),
        ("What is my deductible?", None),
    ],
)
def test_members_words_are_put_in_those_of_booklets(question: str, reworded: str | None) -> None:
    assert reword(question) == reworded


@pytest.mark.parametrize(
    ("question", "text", "fits"),
    [
        ("How do I appeal?", "Write to the Appeals Unit.", True),
        ("How do I appeal?", "An appeal is decided within 30 days.", False),
        ("How do I appeal?", "You must send form 12.", True),
        ("What is the phone number?", "Call 1-800-555-0142.", True),
        ("What is the phone number?", "It has eleven digits.", False),
        ("number to call for a claim", "Call 1-800-555-0142.", True),
        ("What is coinsurance?", "Coinsurance. Your share of the allowed amount.", True),
        ("What does coinsurance mean?", "Coinsurance is your share.", True),
        ("What is my coinsurance?", "Coinsurance is your share.", False),
    ],
)
def test_a_sentence_fits_the_type_that_is_asked_for(question: str, text: str, fits: bool) -> None:
    assert fits_type(question, Sentence(Kind.SENTENCE, 0, len(text), text)) is fits


@pytest.mark.parametrize(
    ("question", "label", "unasked"),
    [
        ("What does therapy cost?", "Out of network, you pay", True),
        ("What does therapy cost out of network?", "Out of network, you pay", False),
        ("Is therapy covered?", "Prior authorization", True),
        ("Do I need approval for therapy?", "Prior authorization", False),
        ("Is therapy covered?", "Limits", False),
        ("What does therapy cost?", "What is not covered", True),
        ("Is therapy covered?", "What is not covered", False),
    ],
)
def test_a_facet_counts_less_unless_it_is_asked_for(question: str, label: str, unasked: bool) -> None:
    row = Sentence(Kind.ROW, 0, 9, f"{label}: 1", cells=(label, "1"))

    assert bool(facet_loss(question, row)) is unasked


def test_two_lists_side_by_side_are_items_of_their_own() -> None:
    (row,) = (each for each in passage_sentences(SUMMARY) if "Cosmetic" in each.text)
    (other,) = (each for each in passage_sentences(SUMMARY) if "X-rays" in each.text)

    assert [(each.kind, each.lead, each.text) for each in part_lists(row)] == [
        ("item", "Not covered", "Cosmetic surgery"),
        ("item", "Covered, with limits", "Acupuncture, 15 visits"),
    ]
    assert list(part_lists(other)) == [other]


READABLE = """\
# Section 7.4 Exclusions

- Cosmetic surgery

# Chapter 2: Premiums

| Age | Plan G, monthly |
|---|---|
| 65 | $131.10 |
| 70 | $151.40 |

# 24 Hours

- Nurses answer at any time
"""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Is cosmetic surgery excluded?", "Exclusions: Cosmetic surgery"),
        ("What is the monthly premium of plan G at age 70?", "Age 70 — Plan G, monthly: $151.40"),
        ("When do nurses answer?", "24 Hours: Nurses answer at any time"),
    ],
)
def test_a_first_line_is_read_without_its_page(question: str, first: str, ana: Person) -> None:
    create_searchable_markdown(ana.id, READABLE)

    assert ask(ana, question)["sentences"][0]["text"] == first
