"""Sentences of passages: where they begin and end, what they are without Markdown, and rows with their column heads."""

import time
from itertools import pairwise

import pytest

from documents.markdown.sentences import plain_text, sentence_spans
from embeddings.search.passage_sentences import Kind, Sentence, passage_sentences


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "text",
    [
        "The copay is $60.|It is waived if you are admitted.",
        "See Amendment No. 3 of the plan.|It applies now.",
        "Is it covered?|No.|You pay for it.",
        "Drugs, e.g. Humira, need approval.|Others do not.",
        "Specialists, i.e. Dr. Jane R. Smith, see you.|Call first.",
        "You pay 3.5 % of $1,500.50 a day.|The plan pays the rest.",
        "Section 4.2. Benefits of the plan.|They are below.",
        "4.2. Physical therapy is covered.|Ask us.",
        "The U.S. Department of Labor answers.|Write to it.",
        "It is not paid outside the U.S.|The plan pays at home.",
        "Open from 8 a.m. to 5 p.m. on weekdays.|Closed on Jan. 1.",
        'He said: "Go home."|She went.',
        "Call us (1-800-555-0142.)|We answer.",
        "Copyright IBM Corp. 2014.|All rights reserved.",
        "Wait... and see.|Then act!|Really?!|Yes.",
        "The plan of Harbor Inc. pays.|Harbor Ltd.|It does not.",
        "**The copay is $60.** |*It is waived.*",
        "Deductible . . . . . . 12",
        "Según el art. 12 de la ley, se paga.|¿Cuándo?|Hoy.",
        "第一条。|第二条。",
        "no end",
        "  One.  |  Two.  ",
    ],
)
def test_sentences_end_at_their_ends_only(text: str) -> None:
    assert split(text.replace("|", " ")) == [part.strip() for part in text.split("|")]


def test_wrapped_lines_are_one_sentence() -> None:
    assert passage_sentences("The plan pays\nafter the\ndeductible. Then\nmore.")[0].text == (
        "The plan pays after the deductible."
    )


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("## A *heading* ##", "A heading"),
        ("**bold _and_ thin** `code`", "bold and thin code"),
        ("> quoted\n> twice", "quoted twice"),
        (r"\* not a list \| 5 \_", "* not a list | 5 _"),
        ("5 * 3 * 2, snake_case_name, *see note", "5 * 3 * 2, snake_case_name, *see note"),
        ("one<br>two &amp; three &lt; four", "one two & three < four"),
        ("- item", "item"),
    ],
)
def test_plain_text_has_no_marks_and_loses_no_word(markdown: str, plain: str) -> None:
    assert plain_text(markdown) == plain


PASSAGE = """\
# Therapy

Intro one. Intro two:

- first item
- second item. With more
  of it.

## Costs

| Your costs | Physical therapy |
|---|---|
| In network | **$30** copay |
| Visit limit | 40 visits a plan year |

---

1. Call us. We answer.

| a row | without heads |

```
code | here
```
"""


def test_a_passage_is_headings_sentences_items_rows_and_code_in_order() -> None:
    assert [(each.kind, each.text, each.title, each.lead) for each in passage_sentences(PASSAGE)] == [
        (Kind.HEADING, "Therapy", "", ""),
        (Kind.SENTENCE, "Intro one.", "Therapy", ""),
        (Kind.SENTENCE, "Intro two:", "Therapy", ""),
        (Kind.ITEM, "first item", "Therapy", "Intro two:"),
        (Kind.ITEM, "second item.", "Therapy", "Intro two:"),
        (Kind.SENTENCE, "With more of it.", "Therapy", ""),
        (Kind.HEADING, "Costs", "", ""),
        (Kind.ROW, "In network — Physical therapy: $30 copay", "Costs", ""),
        (Kind.ROW, "Visit limit — Physical therapy: 40 visits a plan year", "Costs", ""),
        (Kind.ITEM, "Call us.", "Costs", ""),
        (Kind.SENTENCE, "We answer.", "Costs", ""),
        (Kind.ROW, "a row — without heads", "Costs", ""),
        (Kind.CODE, "```", "Costs", ""),
        (Kind.CODE, "code | here", "Costs", ""),
        (Kind.CODE, "```", "Costs", ""),
    ]


def test_a_heading_with_question_and_answer_is_a_sentence() -> None:
    answered, asked = passage_sentences("# Is a referral needed? **No**\n\n# Is it covered?")

    assert (answered.kind, answered.text) == (Kind.SENTENCE, "Is a referral needed? No")
    assert asked.kind == Kind.HEADING


def test_a_row_has_its_cells_and_column_heads() -> None:
    row = next(each for each in passage_sentences(PASSAGE) if each.kind == Kind.ROW)

    assert row.heads == ("Your costs", "Physical therapy")
    assert row.cells == ("In network", "$30 copay")


def test_a_second_line_of_heads_is_none_of_the_rows() -> None:
    table = "| Tier | Retail | Retail |\n|---|---|---|\n| Tier | **Near** | Far |\n| 1 | $3 | $9 |"

    heads, row = passage_sentences(table)

    assert heads.kind == Kind.HEADING
    assert row.heads == ("Tier", "Retail, Near", "Retail, Far")
    assert row.cells == ("1", "$3", "$9")


def test_offsets_are_of_the_passage_and_in_order() -> None:
    sentences = passage_sentences(PASSAGE)

    assert all(one.end <= other.start for one, other in pairwise(sentences))
    assert [plain_text(PASSAGE[each.start : each.end]) for each in sentences if each.kind == Kind.ITEM] == [
        "first item",
        "second item.",
        "Call us.",
    ]
    assert PASSAGE[sentences[7].start : sentences[7].end] == "| In network | **$30** copay |"


def test_nothing_says_nothing() -> None:
    assert passage_sentences("") == passage_sentences(" \n\n---\n- \n||\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "A. " * 50_000,
        "1. " * 50_000,
        ". " * 100_000,
        "!" * 200_000,
        "No. 1 " * 40_000,
        "*a " * 60_000,
        "**a** " * 40_000,
        "_" * 200_000,
        "`" * 100_001,
        "- a\n" * 50_000,
        "a:\n\n- b\n\n" * 20_000,
        "# a\n" * 50_000,
        "> " * 100_000,
        "<br " * 50_000,
        "| " + "head " * 20_000 + "| b |\n|---|---|\n" + "| x | y |\n" * 10_000,
        "word " * 50_000,
    ],
)
def test_hostile_passages_are_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    sentences: list[Sentence] = passage_sentences(text)

    assert time.process_time() - began < 3
    assert sum(len(each.text) + len(each.title) for each in sentences) < 120 * len(text)


def test_a_bold_term_is_read_with_its_explanation() -> None:
    text = "**Peer review.** A talk between doctors. More of it. **Balance billing. A bill** for the rest. **Term.**"

    assert [each.text for each in passage_sentences(text)] == [
        "Peer review. A talk between doctors.",
        "More of it.",
        "Balance billing. A bill for the rest.",
        "Term.",
    ]
    assert [
        each.text for each in passage_sentences("**All of this is bold, and it is a long sentence of a booklet. So**")
    ] == [
        "All of this is bold, and it is a long sentence of a booklet.",
        "So",
    ]
