"""Snippets: the best sentence, item or row of a passage with its neighbours, as text and safe HTML, and its offsets."""

from collections.abc import Mapping
from typing import Any

import pytest

from embeddings.models import DocumentChunk
from embeddings.search.answer_types import AGE, COUNT, DATE, DURATION, FREQUENCY, MONEY, NUMBER, answer_type
from embeddings.search.lexemes import query_lexemes
from embeddings.search.passage_sentences import passage_sentences
from embeddings.search.sentence_scores import RankedText, best_sentence, rank_sentences
from embeddings.search.snippets import MAX_CHARS, Snippet, render_snippet
from testing.factories.searchable_documents import create_searchable_document, create_searchable_markdown
from testing.personas import Person

THERAPY = """\
# Physical therapy

| Your costs | Physical therapy |
|---|---|
| In network | $30 copay |
| Visit limit | 40 visits a plan year |

Therapy aims to restore a function. You need no referral. **Approval** is required after the 12th visit.

What is covered:

- exercise with a therapist
- aquatic therapy
- gait training
"""


def best(text: str, question: str, headings: tuple[str, ...] = (), idf: Mapping[str, float] | None = None) -> str:
    words = {**dict.fromkeys(query_lexemes(question), 1.0), **(idf or {})}
    (ranked,) = rank_sentences([RankedText(passage_sentences(text), headings, "english")], words, question)
    found = best_sentence(ranked)
    assert found is not None
    return found.sentence.text


def snippet(text: str, start: str) -> Snippet:
    sentences = passage_sentences(text)
    return render_snippet(sentences, next(each for each in sentences if each.text.startswith(start)))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many therapy visits are covered?", "Visit limit — Physical therapy: 40 visits a plan year"),
        ("What is the copay in network?", "In network — Physical therapy: $30 copay"),
        ("is approval required", "Approval is required after the 12th visit."),
        ("aquatic", "aquatic therapy"),
        ("is a referral needed", "You need no referral."),
    ],
)
def test_the_best_sentence_has_the_words_of_the_question_and_the_type_of_its_answer(
    question: str, expected: str
) -> None:
    assert best(THERAPY, question) == expected


@pytest.mark.django_db
def test_a_rare_word_counts_more() -> None:
    text = "The plan pays the plan. The zebra rests. The plan pays."

    assert best(text, "does the plan pay a zebra", idf={"plan": 0.5, "pay": 0.5, "zebra": 2.0}) == "The zebra rests."


@pytest.mark.django_db
def test_a_question_for_a_cost_prefers_money_to_other_numbers() -> None:
    rows = "| Benefit | From April |\n|---|---|\n| Acupuncture | 20 visits |\n| Emergency | $300 copay |"

    assert "$300" in best(rows, "what will an emergency visit cost from April")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many visits are covered?", COUNT),
        ("When does coverage end?", DATE),
        ("In which year did it start?", DATE),
        ("What is the copay for a specialist?", MONEY),
        ("What is the limit of visits?", NUMBER),
        ("whats the max a year", NUMBER),
        ("Until what age is my child covered?", AGE),
        ("How often can I get glasses?", FREQUENCY),
        ("How long do I have to appeal?", DURATION),
        ("Is a referral needed?", None),
        ("", None),
    ],
)
def test_a_question_word_tells_the_type_of_the_answer(question: str, expected: str | None) -> None:
    assert answer_type(question) == expected


def test_a_sentence_stands_among_its_neighbours_and_alone_is_marked() -> None:
    shown = snippet(THERAPY, "You need")

    assert shown.text == (
        "Therapy aims to restore a function. You need no referral. Approval is required after the 12th visit."
        " What is covered: exercise with a therapist aquatic therapy gait training"
    )
    assert shown.html == (
        "<p>Therapy aims to restore a function. <mark>You need no referral.</mark> Approval is required after the 12th"
        " visit. What is covered:</p>"
        "<ul><li>exercise with a therapist</li><li>aquatic therapy</li><li>gait training</li></ul>"
    )


def test_a_row_is_a_table_below_its_column_heads() -> None:
    shown = snippet(THERAPY, "Visit limit")

    assert shown.text == "Visit limit — Physical therapy: 40 visits a plan year"
    assert shown.html == (
        "<table><thead><tr><th>Your costs</th><th>Physical therapy</th></tr></thead>"
        "<tbody><tr><td><mark>Visit limit</mark></td><td><mark>40 visits a plan year</mark></td></tr></tbody></table>"
    )


def test_empty_columns_are_left_out_and_a_table_without_heads_has_none() -> None:
    assert snippet("| a | | c |\n|---|---|---|\n| one | | two |", "one").html == (
        "<table><thead><tr><th>a</th><th>c</th></tr></thead>"
        "<tbody><tr><td><mark>one</mark></td><td><mark>two</mark></td></tr></tbody></table>"
    )
    assert snippet("| one | two |", "one").html.startswith("<table><tbody>")


def test_an_item_follows_what_introduces_its_list() -> None:
    assert snippet(THERAPY, "aquatic").html.startswith("<p>What is covered:</p><ul><li>")


def test_sentences_are_whole_and_so_many_as_fit() -> None:
    text = " ".join(f"Sentence number {number} says what it says." for number in range(100))

    shown = snippet(text, "Sentence number 50 ")

    assert len(shown.text) <= MAX_CHARS
    assert shown.text.startswith("Sentence number 50 ")
    assert shown.text.endswith("it says.")
    assert snippet("word " * 1_000, "word").text.endswith("word…")


HOSTILE = '<script>alert("x")</script> & <img src=x onerror=alert(1)> <mark>wig</mark> \x02costs\x03 $5'


@pytest.mark.parametrize("text", [f"{HOSTILE}.", f"- {HOSTILE}", f"| wig | b |\n|---|---|\n| {HOSTILE} | c |"])
def test_nothing_of_the_text_is_markup(text: str) -> None:
    html = render_snippet(sentences := passage_sentences(text), sentences[-1]).html

    for tag in ("p", "ul", "li", "mark", "table", "thead", "tbody", "tr", "th", "td"):
        html = html.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    assert "<" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.django_db
def test_a_passage_says_where_its_best_sentence_stands(ana: Person) -> None:
    create_searchable_markdown(ana.id, THERAPY)

    (passage,) = ana.post("/search", {"query": "how many therapy visits?"}).json()["passages"]

    start, end = passage["answer_span"]
    assert THERAPY[start:end] == "| Visit limit | 40 visits a plan year |"
    assert passage["snippet_text"] == "Visit limit — Physical therapy: 40 visits a plan year"


@pytest.mark.django_db
def test_a_header_that_is_repeated_in_the_passage_moves_no_offset(ana: Person) -> None:
    header, row = "| a | b |\n|---|---|\n", "| zebra | 5 |"
    document_id = create_searchable_document(ana.id, ["filler", header + row])
    meta: dict[str, Any] = {"start": 500, "end": 500 + len(row), "pages": [2, 2], "headings": []}
    DocumentChunk.objects.filter(document_id=document_id, chunk_ord=1).update(meta=meta)

    first = ana.post("/search", {"query": "zebra"}).json()["passages"][0]

    assert first["answer_span"] == [500, 500 + len(row)]


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["---", "||", "\x02\x03"])
def test_a_passage_without_a_word_has_no_snippet(text: str, ana: Person) -> None:
    create_searchable_document(ana.id, [text])

    found = ana.post("/search", {"query": "zebra", "mode": "vector"}).json()["passages"]

    assert [(each["snippet_text"], each["answer_span"]) for each in found] in ([("", None)], [("\x02\x03", [0, 2])])


@pytest.mark.django_db
def test_a_row_about_the_subject_comes_before_one_that_mentions_it() -> None:
    rows = "| Benefit | You pay |\n|---|---|\n| X-rays | 40% after deductible |\n| Deductible, family | $3,000 |"

    assert best(rows, "What is my deductible?") == "Deductible, family — You pay: $3,000"
