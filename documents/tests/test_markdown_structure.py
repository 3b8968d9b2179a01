"""Structure of markdown: lost pages, jumps of heading levels, ragged tables."""

import time

import pytest

from documents.markdown.normalization import normalize_pages
from documents.markdown.structure import are_pages_complete, count_irregularities

PAGES = normalize_pages(["# Plan\n\nOne.", "", "Three.", ""])


def test_the_page_starts_of_normalized_pages_are_complete() -> None:
    assert are_pages_complete(PAGES.text, PAGES.page_starts, 4)


@pytest.mark.parametrize(
    ("starts", "pages"),
    [
        (PAGES.page_starts[:-1], 4),
        (PAGES.page_starts[1:], 4),
        ((1, *PAGES.page_starts[1:]), 4),
        ((0, 16, 15, 23), 4),
        ((*PAGES.page_starts[:-1], len(PAGES.text) + 1), 4),
        ((0, 3, *PAGES.page_starts[2:]), 4),
    ],
    ids=["one is missing", "the first is missing", "not from 0", "out of order", "behind the end", "within a line"],
)
def test_page_starts_that_lose_a_page_are_not_complete(starts: tuple[int, ...], pages: int) -> None:
    assert not are_pages_complete(PAGES.text, starts, pages)


#  markdown                                                    heading jumps, ragged tables
COUNTED = {
    "# A\n\n## B\n\n### C\n\n# D\n": (0, 0),
    "### A\n\n# B\n\n### C\n\n##### D\n": (2, 0),
    "# A\n\n```\n### B\n| a |\n| b | c |\n```\n\n## C\n": (0, 0),
    "# A\n\n```\n# x\n```\n\n### C\n": (1, 0),
    "| a | b |\n|---|---|\n| 1 | 2 |\n": (0, 0),
    "| a | b |\n|---|---|\n| 1 |\n\n| a |\n|---|\n| 1 | 2 |\n": (0, 2),
    "| a \\| b |\n|---|\n| 1 |\n": (0, 0),
    "| a | b\n|---|---|\n| 1 | 2\n": (0, 0),
    "| a |\n\n| b | c |\n": (0, 0),
}


@pytest.mark.parametrize("text", COUNTED)
def test_heading_jumps_and_ragged_tables_are_counted(text: str) -> None:
    assert tuple(count_irregularities(text).values()) == COUNTED[text]


def count_seconds(line: str, count: int) -> float:
    seconds = []
    for _ in range(3):
        start = time.process_time()
        count_irregularities(f"{line}\n" * count)
        seconds.append(time.process_time() - start)
    return min(seconds)


@pytest.mark.parametrize("line", ["~~~", "|-|", "|", "# a", "``` `", " | \\|"])
def test_repeated_lines_are_counted_in_linear_time(line: str) -> None:
    assert count_seconds(line, 80_000) < 8 * count_seconds(line, 20_000)
