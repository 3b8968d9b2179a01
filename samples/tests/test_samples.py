"""Tests of the sample PDFs: reproducible bytes, lengths, answers on the expected pages."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pdf_oxide
import pypdfium2
import pytest

from samples.make_samples import HERE, make

PAGES = {"summary_of_benefits.pdf": (8, 14), "evidence_of_coverage.pdf": (60, 90), "amendment.pdf": (2, 2)}
QUESTIONS: list[dict[str, Any]] = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))


@cache
def texts(document: str) -> list[str]:
    """Return the words of each page, separated by single spaces."""
    with pypdfium2.PdfDocument(HERE / document) as pdf:
        return [" ".join(page.get_textpage().get_text_range().split()) for page in pdf]


@pytest.mark.slow
def test_making_them_again_gives_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path)

    for document in PAGES:
        assert (tmp_path / document).read_bytes() == (HERE / document).read_bytes(), (
            "run python -m samples.make_samples"
        )


@pytest.mark.parametrize("document", PAGES)
def test_lengths_hold(document: str) -> None:
    fewest, most = PAGES[document]

    assert fewest <= len(texts(document)) <= most


def test_together_they_stay_small() -> None:
    assert sum((HERE / document).stat().st_size for document in PAGES) < 1_500_000


@pytest.mark.parametrize("row", QUESTIONS, ids=lambda row: row["question"])
def test_the_answer_is_on_the_expected_page_and_no_other(row: dict[str, Any]) -> None:
    pages = [page for page, text in enumerate(texts(row["expect_document"]), start=1) if row["expect_text"] in text]

    assert pages == [row["expect_page"]]


def test_no_two_pages_of_the_booklet_are_alike() -> None:
    bodies = [text.replace(f"Page {page}", "") for page, text in enumerate(texts("evidence_of_coverage.pdf"), start=1)]

    assert len(set(bodies)) == len(bodies)


def test_the_local_parser_sees_headings_and_tables() -> None:
    booklet = pdf_oxide.PdfDocument(str(HERE / "evidence_of_coverage.pdf"))
    lines = [line for page in range(booklet.page_count()) for line in booklet.to_markdown(page).splitlines()]

    assert sum(line.startswith("#") and "Section" in line for line in lines) > 100
    assert sum(line.startswith("|") for line in lines) > 300
