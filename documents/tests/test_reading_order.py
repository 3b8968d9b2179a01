"""Reading order of parsed pages: columns, streams in another order than the page's, vertical writing, titles."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pypdfium2 import PdfDocument
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from documents.parsers import liteparse_pages, reading_order
from documents.parsers.pdf_engines import OpenedPdf, extract_markdown
from documents.parsers.pdf_parser import ParsedPdf, parse_pdf
from documents.parsers.reading_order import Region, Run, compare, is_plausible, read_columns, rebuild, split_title
from documents.parsers.right_to_left import read_words
from documents.parsers.sandbox import rlimits
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


def scanned(left: Sequence[str], right: Sequence[str]) -> list[Run]:
    """Set two columns as the text layer of a scan: word by word, line by line across both."""
    runs: list[Run] = []
    for number, line in enumerate(zip(left, right, strict=True)):
        for x, text in zip((50.0, 320.0), line, strict=True):
            for word in text.split():
                runs.append(Run(word, x, 100 + 14 * number, x + 6 * len(word), 111 + 14 * number, 11, False))
                x += 6 * len(word) + 4
    return runs


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


def test_a_page_on_which_the_search_for_tables_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[Any] = [
        SimpleNamespace(page_num=number, text_items=[], blocks=[], vector_graphics=SimpleNamespace(lines=[]))
        for number in (1, 2, 3)
    ]
    pages[1].text_items = [SimpleNamespace(words=[object()])]
    parser = SimpleNamespace(parse_bytes=lambda data: SimpleNamespace(pages=pages))
    monkeypatch.setattr(liteparse_pages, "shared_parser", lambda: parser)

    assert list(liteparse_pages.parse_pages(b"")) == [0, 2]


def test_pages_without_a_layout_are_doubtful_where_others_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlimits, "limit_cpu_time", lambda seconds: None)  # of the process of the test
    content = (SAMPLES / "amendment.pdf").read_bytes()
    with PdfDocument(content) as fium:
        document = OpenedPdf(content, fium, count=2, encrypted=False, damage="")
        layout = liteparse_pages.PageLayout("Part A", None, [])

        assert extract_markdown(document, {})[1] == []
        assert extract_markdown(document, {5: layout})[1] == [1, 2]


class TextPage:
    """PDFium's text page: characters with their left edges, as it returns Arabic that a browser has printed."""

    def __init__(self, text: str, lefts: Sequence[float]) -> None:
        self.text, self.lefts = text, lefts

    def get_text_range(self) -> str:
        return self.text

    def count_chars(self) -> int:
        return len(self.lefts)

    def get_charbox(self, index: int) -> tuple[float, float, float, float]:
        return self.lefts[index], 0.0, self.lefts[index] + 5, 10.0


@pytest.mark.parametrize(
    ("text", "lefts", "expected"),
    [
        ("ةقيثو", [0, 5, 10, 15, 20], "وثيقة"),  # from the left
        ("وثيقة", [20, 15, 10, 5, 0], "وثيقة"),  # from the right: nothing to do
        ("ةقيثو.", [5, 10, 15, 20, 25, 0], "وثيقة."),
        ("ملاس", [0, 5, 5, 10], "سلام"),  # a ligature's letters are in order
        ("com.x", [10, 15, 20, 5, 0], "x.com"),
        ("90 ab", [0, 5, 10, 15, 20], "90 ab"),
        ("وث20", [0, 5, 10, 15], "وث20"),  # figures keep their order
        ("وثيقة", [0, 5], "وثيقة"),  # characters whose places are not known
    ],
)
def test_words_of_right_to_left_pages_are_in_the_order_of_their_letters(
    text: str, lefts: Sequence[float], expected: str
) -> None:
    assert read_words(TextPage(text, lefts)) == expected


class RotatedTextPage(TextPage):
    def get_charbox(self, index: int) -> tuple[float, float, float, float]:
        left, bottom, right, top = super().get_charbox(index)
        return bottom, left, top, right


def test_rotated_words_of_right_to_left_pages_keep_their_letters() -> None:
    assert read_words(RotatedTextPage("ab.cd", [9, 5, 8, 0, 20])) == "ab.cd"


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


def test_words_that_an_engine_s_table_lacks_stay() -> None:
    runs = [run("cell", 50, 50), run("cell", 90, 50), run("There are none", 120, 50), run("After it.", 50, 100)]
    table = Region(40, 45, 200, 65, "| cell | cell |\n|---|---|")

    assert rebuild(runs, [], [table]) == "| cell | cell |\n|---|---|\n\nThere are none\n\nAfter it."


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


def test_a_heading_that_is_two_titles_becomes_two() -> None:
    runs = [run("Chapter 4", 50, 10, 20), run("Claims", 50, 50, 20), run("The plan pays.", 50, 90)]
    bbox = SimpleNamespace(x=50, y=10, width=100, height=20)  # of the first line only
    block = SimpleNamespace(kind="heading", level=2, text="Chapter 4 Claims", bbox=bbox)

    titles = liteparse_pages._split_heading(block, runs)

    assert [title.markdown for title in titles] == ["## Chapter 4", "## Claims"]


def test_a_table_with_a_cell_as_long_as_a_page_is_prose() -> None:
    table = Region(0, 0, 100, 100, f"| {'word ' * 301}| two |\n|---|---|\n| three | four |")

    assert reading_order._is_prose(table, [])


def test_columns_that_a_text_layer_reads_across_are_read_one_by_one() -> None:
    title, foot = Run("Notices", 250, 60, 320, 75, 15, False), Run("199", 300, 700, 320, 711, 11, False)

    runs = read_columns([foot, title, *scanned(LEFT * 2, RIGHT * 2)])

    assert [run.text for run in runs] == ["Notices", *" ".join([*LEFT, *LEFT, *RIGHT, *RIGHT]).split(), "199"]


@pytest.mark.parametrize(
    "runs",
    [
        scanned(["Name", "Date of birth", "Street"] * 4, RIGHT * 2),
        scanned(LEFT, RIGHT),
        [*scanned(LEFT * 2, RIGHT * 2), Run("A line over both columns", 100, 148, 500, 159, 11, False)],
    ],
    ids=["labels", "few lines", "line over both"],
)
def test_labels_and_lines_over_the_gap_are_no_columns(runs: list[Run]) -> None:
    assert read_columns(runs) == runs
