"""Reading order of parsed pages: columns, streams in another order than the page's, vertical writing, titles."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from documents.parsers import ParsedPdf, parse_pdf
from documents.parsers.reading_order import Region, Run, compare, is_plausible, rebuild, split_title
from documents.parsers.sandbox.client import ROOT

SAMPLES = ROOT / "samples"
LEFT = [
    "The plan pays for a visit to a",
    "specialist after the deductible of",
    "the year has been met by you. You",
    "need no referral for such a visit.",
    "Ask the member service for a list",
    "of the doctors in your own region.",
]
RIGHT = [
    "Emergency care abroad is covered",
    "for the first ninety days of each",
    "journey. Keep the original bills",
    "and hand them in within a month.",
    "Transport back home is only paid",
    "if a doctor has prescribed it.",
]


def write_pdf(path: Path, lines: Iterable[tuple[float, float, str, int]]) -> Path:
    """Draw lines of text (x, y, text, size) in the given order."""
    canvas = Canvas(str(path), pagesize=(600, 800))
    for x, y, text, size in lines:
        canvas.setFont("Helvetica", size)
        canvas.drawString(x, y, text)
    canvas.save()
    return path


def column(x: float, y: float, texts: Sequence[str]) -> list[tuple[float, float, str, int]]:
    return [(x, y - 14 * number, text, 11) for number, text in enumerate(texts)]


def parse(path: Path) -> ParsedPdf:
    return parse_pdf(path, pages=1)


def words(text: str) -> str:
    return " ".join(text.replace("\n", " ").split())


def test_a_heading_in_one_column_does_not_tear_the_other(tmp_path: Path) -> None:
    left = [*column(50, 750, LEFT), (50, 640, "Care abroad", 20), *column(50, 610, RIGHT)]
    right = column(320, 750, [*LEFT, *RIGHT, *LEFT, *RIGHT[:3]])

    parsed = parse(write_pdf(tmp_path / "columns.pdf", [*left, *right]))

    text = words(parsed.markdown[0])
    assert words(" ".join([*LEFT, *RIGHT, *LEFT, *RIGHT[:3]])) in text
    assert text.index("Care abroad") < text.index(words(" ".join(RIGHT[:2])))
    assert "# Care abroad" in parsed.markdown[0]
    assert parsed.doubtful == []


def test_columns_drawn_line_by_line_are_read_down_and_doubtful(tmp_path: Path) -> None:
    pairs = zip(column(50, 750, LEFT * 3), column(320, 750, RIGHT * 3), strict=True)

    parsed = parse(write_pdf(tmp_path / "rows.pdf", [line for pair in pairs for line in pair]))

    assert words(" ".join(LEFT)) in words(parsed.markdown[0])
    assert parsed.doubtful == [1]


def test_a_page_of_one_table_under_a_heading_is_not_doubtful() -> None:
    assert parse_pdf(SAMPLES / "summary_of_benefits.pdf", pages=11).doubtful == []


def test_a_page_that_both_engines_read_alike_is_not_doubtful(tmp_path: Path) -> None:
    parsed = parse(write_pdf(tmp_path / "plain.pdf", column(50, 750, [*LEFT, *RIGHT])))

    assert words(" ".join([*LEFT, *RIGHT])) in words(parsed.markdown[0])
    assert parsed.doubtful == []


def test_vertical_japanese_is_read_from_right_to_left(tmp_path: Path) -> None:
    columns = [
        "吾輩は猫である。名前はまだ無い。どこで生れたか",
        "とんと見当がつかぬ。何でも薄暗いじめじめした所で",
        "ニャーニャー泣いていた事だけは記憶している。",
    ]
    font = UnicodeCIDFont("HeiseiMin-W3", isVertical=True)
    pdfmetrics.registerFont(font)
    canvas = Canvas(str(tmp_path / "vertical.pdf"))
    canvas.setFont(font.fontName, 14)
    for number, text in enumerate(columns):
        canvas.drawString(500 - 24 * number, 760, text)
    canvas.save()

    parsed = parse(tmp_path / "vertical.pdf")

    assert parsed.markdown[0].strip() == "".join(columns)


@pytest.mark.parametrize(
    ("markdown", "coverage", "agreement", "tears"),
    [
        ("# One two\n\nthree four five six seven eight", 1.0, 1.0, 0),
        ("five six seven eight one two three four", 1.0, 0.0, 0),
        ("one two three four", 0.5, 1.0, 0),
    ],
)
def test_pages_are_compared_by_words(markdown: str, coverage: float, agreement: float, tears: int) -> None:
    comparison = compare(markdown, "one two three four five six seven eight")

    assert (comparison.coverage, comparison.agreement, comparison.tears) == (coverage, agreement, tears)


def test_a_text_torn_in_two_places_is_not_in_order() -> None:
    parts = [" ".join(f"w{part}n{number}" for number in range(30)) for part in range(3)]

    comparison = compare(" ".join([parts[2], parts[0], parts[1]]), " ".join(parts))
    torn = compare(" ".join([parts[1], parts[0], parts[2]]), " ".join(parts))

    assert comparison.is_in_order  # one tear may be a running head
    assert not torn.is_in_order


def run(text: str, x: float, y: float, size: float = 10) -> Run:
    return Run(text, x, y, x + 5 * len(text), y + size, size, False)


def test_lines_upward_in_a_column_are_not_plausible() -> None:
    lines = [run("a line of words", 50, 20 * number) for number in range(9)]

    assert is_plausible(lines)
    assert not is_plausible(lines[::-1])


def test_a_table_stands_where_it_begins() -> None:
    runs = [run("Before it.", 50, 10), run("cell", 50, 50), run("cell", 90, 50), run("After it.", 50, 100)]
    table = Region(40, 45, 200, 65, "| cell | cell |\n|---|---|")

    assert rebuild(runs, [], [table]) == "Before it.\n\n| cell | cell |\n|---|---|\n\nAfter it."


def test_a_word_broken_at_the_end_of_a_line_is_joined() -> None:
    assert rebuild([run("The pre-", 50, 10), run("mium is due.", 50, 21)], [], []) == "The premium is due."


def test_titles_that_an_engine_joined_are_split() -> None:
    titles = split_title(
        [
            run("Chapter 4", 50, 10, 20),
            run("Claims and", 50, 50, 20),
            run("appeals", 50, 72, 20),
            run("4.1 How", 50, 93, 20),
        ]
    )

    assert [[each.text for each in title] for title in titles] == [
        ["Chapter 4"],
        ["Claims and", "appeals"],
        ["4.1 How"],
    ]
