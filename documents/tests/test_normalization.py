"""Normalization of parsed markdown: nine rules, idempotent, linear."""

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.markdown.normalization import normalize, normalize_pages, page_at

GOLDEN = [
    ("1 line ends", "a\r\nb\rc\u2028d\u2029e\x85f\vg\fh", "a\nb\nc\nd\ne\nf\ng\nh\n"),
    ("2 blank lines", "a\n\n\n\nb\n  \n\t\nc", "a\n\nb\n\nc\n"),
    ("2 no blank line at the top", "\n\n\na", "a\n"),
    ("3 trailing spaces", "a  \nb\t\nc\u00a0", "a\nb\nc\n"),
    ("4 no space after #", "##Title\n###### Six\n#  Two", "## Title\n###### Six\n# Two\n"),
    ("4 seven are no heading", "#######x\n#", "#######x\n#\n"),
    ("5 image", '![A plan](http://x/y.png "t") z', "![img] z\n"),
    ("5 link", "see [the plan](http://x/y) now", "see [the plan] now\n"),
    ("5 balanced parentheses", "[a](http://x/(y)_z) b", "[a] b\n"),
    ("5 title", "[a](<my file> 'Title') [b](u (t))", "[a] [b]\n"),
    ("5 nested", "[![alt](i.png)](page) [a [b](c) d](e)", "[![img]] [a [b] d]\n"),
    ("5 reference style stays", "[text][ref] ![alt][ref] [x]: y", "[text][ref] ![alt][ref] [x]: y\n"),
    ("5 a remark is no target", "[1](see page 3)", "[1](see page 3)\n"),
    ("5 words after a link", "[a](b)(c)", "[a] (c)\n"),
    ("5 inline code and escapes", r"`[a](b)` \[a](b)", "`[a](b)` \\[a](b)\n"),
    ("6 bullets", "* a\n+ b\n• c\n▪d\n- e", "- a\n- b\n- c\n- d\n- e\n"),
    ("6 two spaces a level", "* a\n    * b\n        + c\n  - d\n* e", "- a\n  - b\n    - c\n  - d\n- e\n"),
    ("6 numbers are items", "1. a\n   * b\n2. c", "1. a\n  - b\n2. c\n"),
    ("6 a list ends with its text", "* a\n  * b\n\ntext\n\n  * c", "- a\n  - b\n\ntext\n\n- c\n"),
    ("6 not bullets", "*emphasis* **bold**\n* * *\n-5", "*emphasis* **bold**\n* * *\n-5\n"),
    ("7 spaces", "a   b\u00a0\u2003c\td", "a b c d\n"),
    ("7 spares the indent", "x\n    a   b\n\tc", "x\n    a b\n    c\n"),
    ("7 spares code", "```py\na  =  1\n\n\n* b [a](b)\n```\na  b", "```py\na  =  1\n\n\n* b [a](b)\n```\na b\n"),
    ("7 spares tilde fences", "~~~\n```\na  b  \n~~~~", "~~~\n```\na  b\n~~~~\n"),
    ("7 a fence within a fence", "```\na\n```py\nb  c\n```\nd  e", "```\na\n```py\nb  c\n```\nd e\n"),
    ("7 backticks that open no fence", "```[a](b`c)\nd  e", "```[a](b`c)\nd e\n"),
    ("7 an unclosed fence", "```\na  b\n\n\n", "```\na  b\n"),
    ("8 unprinted", "\ufeffa\u200bb\u00adc\x00d\u200de\x1bf\ud800g\u2060", "abcdefg\n"),
    ("9 one newline", "a\n\n\n", "a\n"),
    ("9 nothing stays nothing", "", ""),
    ("9 blank is nothing", " \n\t\u00a0\u200b\n", ""),
]
MARKS = [
    *"[]()`*-+•#\t\n _|x\\\"'<>",
    "  ",
    "](",
    "![",
    "```",
    "\n```",
    "~~~\n",
    "\n\n",
    "\n* ",
    "\n   - ",
    "\n      1. ",
]
MARKS += ["[a](b)", "[a](b 't')", "![i](u)", "\u200b", "\u00a0", "\r", "\u2028", "\x00", "\ud800", "## "]
markdown = st.lists(st.sampled_from(MARKS), max_size=40).map("".join) | st.text(st.characters(), max_size=60)
HOSTILE = [
    " ",
    "\n",
    "\t",
    "[",
    "![",
    "`",
    "#",
    "*",
    "~",
    "](",
    "[a](",
    "[a](x y ",
    "* ",
    "|",
    "\u00a0",
    "a  ",
    "\\",
    "([",
]


@pytest.mark.parametrize(("raw", "expected"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN])
def test_each_rule_has_its_form(raw: str, expected: str) -> None:
    assert normalize(raw) == expected
    assert normalize(expected) == expected


@pytest.mark.slow
@settings(max_examples=500)
@given(markdown)
def test_normalizing_twice_changes_nothing(raw: str) -> None:
    once = normalize(raw)

    assert normalize(once) == once


@settings(max_examples=200)
@given(markdown)
def test_the_form_is_safe_to_store(raw: str) -> None:
    text = normalize(raw)

    text.encode()
    assert all(char == "\n" or unicodedata.category(char) != "Cc" for char in text)
    assert text == "" or (text.endswith("\n") and not text.endswith("\n\n"))
    assert all(line == line.rstrip(" ") for line in text.split("\n"))


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(markdown, max_size=5))
def test_pages_join_into_a_normal_text_and_keep_their_places(pages: list[str]) -> None:
    joined = normalize_pages(pages)

    assert normalize(joined.text) == joined.text
    assert len(joined.page_starts) == len(pages)
    bounds = [*joined.page_starts, len(joined.text)]
    for page, (start, end) in zip(pages, pairwise(bounds), strict=True):
        assert joined.text[start:end].strip("\n").startswith(normalize(page).strip("\n"))


def test_a_page_without_text_starts_where_the_next_one_does() -> None:
    joined = normalize_pages(["", "one", " ", "two", ""])

    assert joined.text == "one\n\ntwo\n"
    assert joined.page_starts == (0, 0, 5, 5, 9)
    assert [page_at(joined.page_starts, offset) for offset in (0, 4, 5, 8)] == [2, 2, 4, 4]


def test_a_fence_does_not_run_on_into_the_next_page() -> None:
    joined = normalize_pages(["~~~~\na  b", "c  d"])

    assert joined.text == "~~~~\na  b\n~~~~\n\nc d\n"


def test_no_page_at_all_is_an_empty_text() -> None:
    assert normalize_pages([]).text == ""
    assert normalize_pages(["", " "]).page_starts == (0, 0)


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_time_in_proportion(unit: str) -> None:
    size = 500_000
    started = time.process_time()

    for text in (unit * (size // len(unit)), "x" + unit * (size // len(unit)) + "x"):
        normalize(text)

    assert time.process_time() - started < 15, (
        "measured at 0.1 s or less; coverage makes it 2, a quadratic pattern minutes"
    )


def test_deep_nesting_of_links_takes_time_in_proportion() -> None:
    started = time.process_time()

    normalize("[a](x y " * 50_000 + ")" * 50_000)
    normalize("[" * 100_000 + "](u)" * 100_000)

    assert time.process_time() - started < 30
