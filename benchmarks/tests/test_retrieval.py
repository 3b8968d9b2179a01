"""Tests of the retrieval benchmark: question files, ranking scores, text loss."""

import json
import subprocess
import sys
from argparse import ArgumentError, ArgumentParser, ArgumentTypeError
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
from reportlab.pdfgen.canvas import Canvas

from benchmarks import question_sets, questions, ranking_metrics, retrieval, text_loss
from benchmarks.baselines.bm25 import Okapi, words
from benchmarks.questions import Question
from benchmarks.subprocesses import ROOT
from embeddings.embedders import registry

GOOD = {"document": "plan.pdf", "question": "Is ice cream covered?", "pages": [2]}
FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pdf(tmp_path / "plan.pdf", ["Foreword of the plan", "Ice cream is covered on Sundays", "Index of this plan"])
    return tmp_path


def write_pdf(path: Path, pages: list[str]) -> None:
    canvas = Canvas(str(path), invariant=1)
    for number, text in enumerate(pages, 1):
        canvas.drawString(72, 750, f"Ice Cream Mutual, page {number}")
        canvas.drawString(72, 400, text)
        canvas.showPage()
    canvas.save()


def ask(folder: Path, *rows: object) -> list[Question]:
    (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return questions.read_questions(str(folder))


def test_a_question_is_read_with_every_page_that_answers_it(folder: Path) -> None:
    write_pdf(folder / "rider.pdf", ["Ice cream on Mondays too"])

    (question,) = ask(folder, GOOD | {"id": "q1", "also": [{"document": "rider.pdf", "pages": [1]}]})

    assert question.name == "q1"
    assert {path.name: set(pages) for path, pages in question.gold.items()} == {"plan.pdf": {2}, "rider.pdf": {1}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], 'not an object with a "question"'),
        ({**GOOD, "question": " "}, 'not an object with a "question"'),
        ({**GOOD, "document": 7}, 'names no "document"'),
        ({**GOOD, "document": "missing.pdf"}, "there is no missing.pdf"),
        ({**GOOD, "document": "questions.jsonl"}, "is not a PDF"),
        ({**GOOD, "pages": []}, '"pages" is not a list'),
        ({**GOOD, "pages": [0]}, '"pages" is not a list'),
        ({**GOOD, "pages": [True]}, '"pages" is not a list'),
        ({**GOOD, "also": "rider.pdf"}, '"also" is not a list'),
    ],
)
def test_a_bad_line_is_refused_with_its_number(folder: Path, row: object, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match="line 2") as refused:
        ask(folder, GOOD, row)

    assert message in str(refused.value)


def test_one_file_under_two_names_is_refused(folder: Path) -> None:
    (folder / "copy.pdf").write_bytes((folder / "plan.pdf").read_bytes())

    with pytest.raises(ArgumentTypeError, match="same file"):
        ask(folder, GOOD, GOOD | {"document": "copy.pdf"})


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{", b"\xff\xfe\x00"])
def test_a_file_without_questions_is_refused_by_its_name(folder: Path, content: bytes) -> None:
    file = folder / "mine.jsonl"
    file.write_bytes(content)

    with pytest.raises(ArgumentTypeError, match=r"mine\.jsonl"):
        questions.read_questions(str(file))


@pytest.mark.slow
def test_a_path_without_questions_ends_the_benchmark_with_a_sentence() -> None:
    command = [sys.executable, "-m", "benchmarks", "retrieval", "/nowhere/mine.jsonl"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert run.returncode == 2
    assert "argument PATH" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_embedder_without_its_package_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.OPTIONAL_PACKAGES, "minilm", ("no-such-package",))
    parser = ArgumentParser(exit_on_error=False)
    retrieval.add_arguments(parser)

    with pytest.raises(ArgumentError, match="no-such-package"):
        parser.parse_args(["--embedder", "minilm"])


def test_a_question_stays_in_its_split_whatever_is_added(folder: Path) -> None:
    rows = [GOOD | {"question": f"Question {number}?"} for number in range(200)]

    before = {each.text: each.split for each in ask(folder, *rows[:100])}
    after = {each.text: each.split for each in ask(folder, *reversed(rows))}

    assert before.items() <= after.items()
    assert 0.3 < Counter(after.values())["dev"] / 200 < 0.5


def test_a_ranking_is_judged_by_where_its_first_hit_stands() -> None:
    third = ranking_metrics.score_ranking([False, False, True, False], known=1)

    assert third == {"hit@1": 0, "hit@5": 1, "hit@10": 1, "mrr": 1 / 3, "ndcg@10": 0.5}
    assert ranking_metrics.score_ranking([True, True], known=2)["ndcg@10"] == 1
    assert [ranking_metrics.score_ranking([False] * before + [True], known=1)["hit@5"] for before in (4, 5)] == [1, 0]
    assert ranking_metrics.score_ranking([], known=0) == dict.fromkeys(third, 0)


def test_the_rival_prefers_rare_words_and_short_passages() -> None:
    texts = {FIRST: "pays for ice " + "and so " * 9, SECOND: "the plan pays for ice", THIRD: "the plan pays the plan"}
    rival = Okapi({key: Counter(words(text)) for key, text in texts.items()})

    assert rival.rank(words("Ice?"), 10) == [SECOND, FIRST]
    assert rival.rank(words("nothing here"), 10) == []


def test_a_page_that_reached_no_passage_counts_as_lost(folder: Path) -> None:
    preserved, lost = ask(folder, GOOD, GOOD | {"id": "index", "pages": [3], "answer": "Index of this plan"})
    (document,) = preserved.gold

    passages = [(range(2, 4), "Ice | cream is\ncovered on Sundays"), (range(1, 2), "Index of this plan")]
    loss = text_loss.measure_loss([preserved, lost], {document: passages})

    assert loss["lost_questions"] == ["index"]
    assert loss["lost"] == 0.5
    assert loss["answers_whole_in_a_passage"] == 0


def test_a_quote_finds_its_pages_and_asks_for_a_passage_that_holds_it(folder: Path) -> None:
    row = {"document": "plan.pdf", "question": "When?", "quote": "covered on\nSundays", "split": "dev"}

    (question,) = ask(folder, row)

    (document,) = question.gold
    assert (question.gold[document], question.split) == (frozenset({2}), "dev")
    cited = [retrieval.CitedPassage(document, range(2, 3), text) for text in ("is covered on Sun-\ndays", "Sundays")]
    assert [each.answers(question) for each in cited] == [True, False]


def test_a_quote_that_stands_on_no_page_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="line 1"):
        ask(folder, {"document": "plan.pdf", "question": "When?", "quote": "on Tuesdays"})


@pytest.mark.parametrize("name", question_sets.NAMES)
def test_a_question_set_is_split_by_document(name: str) -> None:
    lines = (question_sets.HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()

    splits = {(row["document"], row["split"]) for row in map(json.loads, lines)}

    assert {split for _, split in splits} == {"dev", "test"}
    assert len(splits) == len({document for document, _ in splits})


def test_a_question_set_without_its_documents_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_sets, "SHARED", tmp_path)

    with pytest.raises(SystemExit, match="Skipped: 81 documents of the set pages"):
        question_sets.open_set("pages", tmp_path)


def test_questions_off_topic_are_many_and_different() -> None:
    off_topic = question_sets.off_topic_questions()

    assert len(set(off_topic)) == len(off_topic) >= 200
