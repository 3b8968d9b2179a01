"""Footnote marks and words that stand apart on the page."""

import pypdfium2
import pytest

from documents.parsers import glued_words
from testing.pdfs import build_pdf, content_stream, page_objects


def marks_of(content: bytes) -> dict[str, str]:
    pdf = pypdfium2.PdfDocument(build_pdf(page_objects([content_stream(content)])))
    return glued_words.find_glued_marks(pdf[0].get_textpage())


def test_a_raised_number_is_no_digit_of_an_amount() -> None:
    content = (
        b"BT /F1 12 Tf 72 700 Td ($450) Tj 7 Ts /F1 7 Tf (2) Tj 0 Ts /F1 12 Tf ( and $4500, 12 m) Tj 7 Ts (2) Tj ET"
    )

    assert marks_of(content) == {"$4502": "$450 2"}


def test_lines_that_are_not_level_have_no_marks() -> None:
    assert marks_of(b"BT 0 1 -1 0 300 300 Tm /F1 12 Tf (visit 4502 copay 100) Tj ET") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("| Visit | $4502 | $45021 |", "| Visit | $450 2 | $45021 |"),
        ("(UCR) Program.Represents arrests", "(UCR) Program. Represents arrests"),
        ("information of the plan", "information of the plan"),
    ],
    ids=["mark", "glued", "a space within a word"],
)
def test_words_are_separated_as_on_the_page(text: str, expected: str) -> None:
    plain = "Visit $4502 $45021 (UCR) Program. Represents arrests infor mation of the plan"

    assert glued_words.separate_words(text, plain, {"$4502": "$450 2"}) == expected
