"""Tests of the tables set: ten pages, and fifty questions of which each has one answering row."""

import json

import pypdfium2

from benchmarks.tables import Question
from samples import make_tables

QUESTIONS = [Question(**json.loads(line)) for line in make_tables.QUESTIONS.read_text(encoding="utf-8").splitlines()]
TEXTS = {source.stem: make_tables.markdown(source) for source in make_tables.SET.glob("*.html")}


def passage(document: str, text: str) -> dict[str, str]:
    return {"filename": f"{document}.pdf", "text": text}


def test_the_set_has_ten_pages_of_all_sources() -> None:
    pages = {path.stem: len(pypdfium2.PdfDocument(path)) for path in make_tables.SET.glob("*.pdf")}

    assert set(pages) == set(TEXTS)
    assert sum(pages.values()) == 10


def test_each_of_fifty_questions_is_answered_by_its_document_alone() -> None:
    assert len({question.question for question in QUESTIONS}) == 50
    for question in QUESTIONS:
        answering = {name for name, text in TEXTS.items() if question.is_answered_by(passage(name, text))}

        assert answering == {question.document}, question.question


def test_a_row_answers_only_below_its_column_heads() -> None:
    question = Question("plan", "", "Specialist visit", "In network", "$60")
    head, row = "| Service | In network | Out of network |\n|---|---|---|\n", "| Specialist visit | $60 | 40 % |"

    assert question.is_answered_by(passage("plan", head + row))
    assert not question.is_answered_by(passage("other", head + row))
    assert not question.is_answered_by(passage("plan", row))
    assert not question.is_answered_by(passage("plan", head + "| Specialist visit | 40 % | $60 |"))
    assert not question.is_answered_by(passage("plan", head + "| Primary visit | $60 | 40 % |"))
    assert not question.is_answered_by(passage("plan", "Specialist visit, in network: $60"))


def test_spanning_cells_are_repeated_and_header_rows_joined() -> None:
    assert "| Age on March 1 | Employee Non-smoker | Employee Smoker | Spouse Non-smoker |" in TEXTS["rates"]
    assert "| 65 to 69 | $1.270 | $1.984 | Not offered | Not offered |" in TEXTS["rates"]
    assert "| W3 | Piste closed, for each day | No cover | €18 | €32 |" in TEXTS["travel"]
