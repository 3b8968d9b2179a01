"""Headings and running lines: the same words under one outline."""

import re
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.markdown.normalization import normalize_pages
from documents.parsers import pdf_parser
from documents.parsers.heading_levels import normalize_headings
from documents.parsers.running_headers import remove_headers_footers
from documents.parsers.sandbox.client import ROOT
from embeddings.chunking.chunkers import split_markdown

SAMPLES = ROOT / "samples"


def normalize(pages: Sequence[str]) -> list[str]:
    return normalize_headings(remove_headers_footers(pages))


def headings(*pages: str) -> list[str]:
    return [line for page in normalize(pages) for line in page.split("\n") if line.startswith("#")]


def words(pages: Sequence[str]) -> Counter[str]:
    return Counter(re.findall(r"\w+", " ".join(pages)))


def booklet(*bodies: str, head: str = "Harbor Mutual | PPO 1500", foot: str = "Page {}") -> list[str]:
    return [f"{head}\n\n{body}\n\n{foot.format(number)}" for number, body in enumerate(bodies, 3)]


# What every page prints


def test_headers_and_footers_stay_on_the_first_page_only() -> None:
    pages = normalize(booklet("One.", "Two.", "Three.", "Four."))

    assert pages == ["Harbor Mutual | PPO 1500\n\nOne.\n\nPage 3", "Two.", "Three.", "Four."]


def test_a_title_repeated_as_the_header_remains_a_heading() -> None:
    bodies = ("# Evidence of Coverage\n\nOne.", "Two.", "Three.", "Four.")

    assert normalize(booklet(*bodies, head="Evidence of Coverage"))[0] == "# Evidence of Coverage\n\nOne.\n\nPage 3"


def test_a_footer_in_two_pieces_and_any_order_is_removed() -> None:
    feet = ["Form A-1\n\nCoverage", "Coverage\n\nForm A-1", "Form A-1\n\nCoverage", "Coverage\n\nForm A-1"]
    pages = normalize([f"Body {letter}.\n\n{foot}" for letter, foot in zip("abcd", feet, strict=True)])

    assert pages[1:] == ["Body b.", "Body c.", "Body d."]


def test_left_and_right_pages_may_have_different_headers() -> None:
    pages = [
        f"**{n}** The plan\n\nText {'abcdefgh'[n]}." if n % 2 else f"Care {n}\n\nText {'abcdefgh'[n]}."
        for n in range(8)
    ]

    assert normalize(pages)[4:] == ["Text e.", "Text f.", "Text g.", "Text h."]


def test_a_footer_between_two_columns_is_removed() -> None:
    bodies = ["Left.", "Left.\n\nFine.", "Words.", "More words.", "Even more."]
    pages = [f"{body} {n}?\n\nForm A-1" for n, body in enumerate(bodies)]
    pages.append("Left\n\nForm A-1\n\nright\n\nright again")

    assert normalize(pages)[-1].split() == ["Left", "right", "right", "again"]


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(booklet("One.", "Two.", "Three."), id="too few pages to tell"),
        pytest.param([f"| Deductible | $1,500 |\n\nText {n}." for n in "abcdef"], id="the rows of a table"),
        pytest.param([f"```\nexit\n```\n\nText {n}." for n in "abcdef"], id="code"),
        pytest.param(
            [f"# Step {n}\n\nDo {'abcdefgh'[n]}." for n in range(1, 7)], id="chapters that count with the pages"
        ),
        pytest.param(
            [f"# Care {n}\n\n## What is covered\n\nSome {n}." for n in "abcdef"], id="what each title is above"
        ),
        pytest.param(
            [f"Text {n}.\n\nOdd {n * n}\n\nEven." for n in range(6)][:3], id="numbers that do not count pages"
        ),
        pytest.param([f"Text {n}.\n\n## Notes" for n in "abcdef"], id="a heading at the end"),
        pytest.param(["The same."] * 9, id="pages of nothing else"),
        pytest.param([], id="no pages"),
    ],
)
def test_no_other_line_is_taken_for_a_header(pages: list[str]) -> None:
    assert normalize(pages) == pages


# What is no heading


@pytest.mark.parametrize(
    ("page", "tidied"),
    [
        ("- a child before\n\n### that;\n\n- a grandchild", "- a child before that;\n\n- a grandchild"),
        ("Rental is paid.\n\n### Batteries are replaced.", "Rental is paid.\n\nBatteries are replaced."),
        ("It ends.\n\n### treatment", "It ends.\n\ntreatment"),
        ("| a | b |\n|---|---|\n| c | d |\n\n# more", "| a | b |\n|---|---|\n| c | d |\n\nmore"),
        ("# Securing\n\n# your data", "# Securing your data"),
        ("# Euler\n\n### e equals", "# Euler\n\ne equals"),
        ("**Chapter 1. Securing**\n\n# data", "## Chapter 1. Securing data"),
        ("### The following persons may be enrolled:", "The following persons may be enrolled:"),
        ("## 12", "12"),
        ("# * * *", "* * *"),
        (f"# {'Long ' * 30}", ("Long " * 30).strip()),
        ("### This amendment changes the coverage of the plan known by the name of form\n\nHMH. It applies.",
         "This amendment changes the coverage of the plan known by the name of form HMH. It applies."),
        ("**Your right: whoever has a complaint against the plan for a denial may write to it by**\n\nan appeal.",
         "Your right: whoever has a complaint against the plan for a denial may write to it by an appeal."),
    ],
)  # fmt: skip
def test_a_false_heading_becomes_text(page: str, tidied: str) -> None:
    assert normalize([page]) == [tidied]


@pytest.mark.parametrize(
    "title",
    [
        "# What is Covered?",
        "## eHealth visits",
        "### What you pay:",
        "# العناية بالأسنان",
        "## 코로나",
        "## a. Hospitals",
    ],
)
def test_a_true_heading_stays(title: str) -> None:
    assert normalize([title]) == [title]


# What is one, and where it belongs


def test_bold_lines_become_headings_under_their_numbers() -> None:
    lines = ("# The plan", "**8. Therapy**", "**8.2 Occupational therapy**", "**What is covered**", "**8.2.1 Splints**")

    assert headings("\n\n".join(lines)) == [
        "# The plan",
        "## 8. Therapy",
        "### 8.2 Occupational therapy",
        "#### What is covered",
        "#### 8.2.1 Splints",
    ]


def test_a_numbered_section_is_above_later_unnumbered_headings() -> None:
    page = "## 8.2 Speech\n\n# What is covered\n\nA.\n\n**Limits**\n\nB.\n\n###### Section 8.3 Feet"

    assert headings(page, "# Example") == [
        "### 8.2 Speech",
        "#### What is covered",
        "#### Limits",
        "### Section 8.3 Feet",
        "#### Example",
    ]


def test_parts_chapters_and_letters_have_their_levels() -> None:
    page = "# PART I - WHO\n\n**Chapter 1. You**\n\n**A. Age**\n\n**1.1 When**\n\n**B. Work**\n\n**Part A: Rest**\n\n"

    assert headings(page + "**Appendix B**\n\nx\n\n**Part II**") == [
        "# PART I - WHO",
        "## Chapter 1. You",
        "### A. Age",
        "### 1.1 When",
        "#### B. Work",
        "#### Part A: Rest",
        "## Appendix B",
        "# Part II",
    ]


def test_numbered_steps_in_a_section_do_not_restart_the_outline() -> None:
    assert headings("**8.2 Claims**\n\n**1. Call us**\n\nx\n\n**2. Wait**\n\nx\n\n**9. Fees**") == [
        "### 8.2 Claims",
        "#### 1. Call us",
        "#### 2. Wait",
        "## 9. Fees",
    ]


def test_a_numbered_title_is_set_apart_from_its_paragraph() -> None:
    assert normalize(["**4. Office care** Most care begins here."]) == ["## 4. Office care\n\nMost care begins here."]


@pytest.mark.parametrize(
    "page",
    [
        "**This pays for everything.**", "**and so on**", "**In network** **Out of network**", "**12**", "**$9**",
        "**40% after deductible**", "**1-800-555-0142**", "**Note:**", "**Limits** are yearly.", "Above\n**Limits**",
        "**Limits**\ntext below",
        f"**{'long ' * 15}ends.**\n\nof a plan",
        "**A**\n\n**Bc**\n\n**Cd**", f"**{'Long ' * 30}**", "```\n**Limits**\n# not;\n```",
        "| **Limits** |\n|---|\n| # x; |", "***Limits***", "** Limits**", "**Limits",
        "**10. Drugs**\n\n**51**\n\n10.1 Tiers . . . . . 51\n\n10.2 Steps . . . . . 54\n\n10.3 Weight . . . . . 54",
    ],
)  # fmt: skip
def test_other_bold_text_is_left_alone(page: str) -> None:
    assert normalize([page]) == [page]


def test_entries_of_a_table_of_contents_are_no_headings() -> None:
    entries = "1.1 Cards . . . . . 6\n\n1.2 Rights . . . . . 7\n\n1.3 Costs . . . . . 7"

    assert headings(f"# Contents\n\n#### Chapter 1: How it works\n\n**6**\n\n{entries}") == ["# Contents"]


# Whatever comes


LINES = st.sampled_from(
    ["", "", "", "# ", "### ", "**", "** **", "```", "| a | b |", "|---|---|", "Text", "text", "8.2 Care", "1. Call",
     "A. Who", "that;", "Ends.", "Page 3", "**Limits**", "**Bold** run", "Part II", "العناية", "#", "\t", "12"]
)  # fmt: skip
PAGES = st.lists(st.lists(st.tuples(LINES, LINES), max_size=12).map(lambda rows: "\n".join(map("".join, rows))))


@pytest.mark.slow
@given(st.lists(st.text("# *\n.a1A|`:", max_size=60), max_size=3) | PAGES.map(lambda pages: pages[:3]))
def test_no_word_is_lost_or_moved_where_no_line_is_running(pages: list[str]) -> None:
    tidied = normalize(pages)

    assert len(tidied) == len(pages)
    for before, after in zip(pages, tidied, strict=True):
        assert re.findall(r"\w+", before) == re.findall(r"\w+", after)


@pytest.mark.slow
@given(PAGES)
def test_no_page_is_emptied_and_no_word_is_new(pages: list[str]) -> None:
    tidied = normalize(pages)

    assert [bool(page.strip("#* \t\n")) for page in tidied] == [bool(page.strip("#* \t\n")) for page in pages]
    assert words(tidied) <= words(pages)
    assert set(words(tidied)) == set(words(pages))


LONG = ["#", "# ", "*", "**A** ", " ", "1", "1.", ". ", "\u2028"]
MANY = ["\n", "# a\n", "x\n\n# a\n\n", "**Ab**\n\n", "**1. Ab** C\n\n", "# A b c.\n", "```\n", ". . . .\n"]


PAGES_OF = [[start + piece * (1_000_000 // len(piece))] for piece in LONG for start in ("", "# ", "**")]
PAGES_OF += [[piece * (300_000 // len(piece))] for piece in MANY] + [[piece * 9] * 2_000 for piece in MANY]


@pytest.mark.slow
@pytest.mark.parametrize("pages", PAGES_OF, ids=lambda pages: repr(pages[0][:20]))
def test_time_is_linear_in_any_text(pages: list[str]) -> None:
    began = time.process_time()
    normalize(pages)

    assert time.process_time() - began < 5  # microseconds a line; were it not linear, an hour


# Real ones


@pytest.fixture(scope="module")
def evidence() -> list[str]:
    path = SAMPLES / "evidence_of_coverage.pdf"
    return pdf_parser.parse_pdf(path, pages=pdf_parser.inspect_pdf(path).pages).markdown


def test_passages_of_the_sample_say_where_they_are_from(evidence: list[str]) -> None:
    normalized = normalize_pages(evidence)
    paths = {chunk.headings for chunk in split_markdown(normalized.text, normalized.page_starts)}

    (path,) = (path for path in paths if "Occupational" in "".join(path))

    assert path[0] == "Evidence of Coverage"
    assert re.search(r"8\W.*Therapy", path[1])
    assert re.search(r"8\.2 Occupational therapy", path[2])


def test_the_samples_headers_and_footers_are_removed(evidence: list[str]) -> None:
    rest = "\n".join(evidence[1:])

    assert not re.search(
        r"^(Page \d+|Form HMH-EOC-2027-01|Harbor Mutual Health \| .*|Evidence of Coverage)$", rest, re.M
    )


def test_normalization_of_pages_is_idempotent(evidence: list[str]) -> None:
    assert normalize(evidence) == evidence


def test_the_parser_version_contains_the_heading_rules() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\+8", pdf_parser.VERSION)
