"""Tests of the retrieval set: reproducible bytes, answers on the named pages."""

import json
import re
from pathlib import Path
from typing import Any

import pypdfium2
import pytest

from samples.make_retrieval import QUESTIONS, SET, make

ROWS: list[dict[str, Any]] = [json.loads(line) for line in (SET / QUESTIONS).read_text(encoding="utf-8").splitlines()]
COMMON = frozenset(
    re.findall(
        r"\w+",
        "a am an and any are at be by can do does far for from get have how i if in is it me my of on or our so than "
        "that the them there they this to up us was we were what when where which who why will with would you your",
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("retrieval")).parent


@pytest.fixture(scope="module")
def texts(folder: Path) -> dict[str, list[str]]:
    """Return the words of each page, separated by single spaces, by file name."""
    texts_by_name = {}
    for path in folder.glob("*.pdf"):
        with pypdfium2.PdfDocument(path) as pdf:
            texts_by_name[path.name] = [" ".join(page.get_textpage().get_text_range().split()) for page in pdf]
    return texts_by_name


@pytest.mark.slow
def test_making_it_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    make(tmp_path)

    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_each_answer_stands_on_one_page_which_is_named(texts: dict[str, list[str]]) -> None:
    for row in ROWS:
        pages = [page for page, text in enumerate(texts[row["document"]], 1) if row["answer"] in text]

        assert len(pages) == 1, row["id"]
        assert pages[0] in row["pages"], row["id"]


def test_there_are_many_questions_of_every_document(texts: dict[str, list[str]]) -> None:
    assert len(ROWS) >= 120
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert {row["document"] for row in ROWS} == set(texts)
    assert all(10 <= len(pages) <= 20 for name, pages in texts.items() if (SET / name).with_suffix(".md").exists())


def test_half_of_the_questions_share_few_words_with_their_answer() -> None:
    shared = [len(_words(row["question"]) & _words(row["answer"])) / len(_words(row["question"])) for row in ROWS]

    assert sum(share <= 0.25 for share in shared) > len(ROWS) / 2


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - COMMON
