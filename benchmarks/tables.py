"""Questions that one table cell answers: how often its row, with column heads, is in the first passage of a search."""

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.test import Client

from accounts import api_tokens
from accounts.models import User
from benchmarks import job_timings, stored_pdfs, subprocesses
from benchmarks.report import Result, print_progress
from documents.markdown.normalization import normalize
from documents.markdown.structure import split_cells
from samples import make_retrieval, make_tables
from testing.factories.searchable_documents import create_searchable_markdown

SUMMARY = __doc__
GOAL = 45
DEPTH = 5
TENANT = UUID("7a3e9b52-1d8c-4c0e-8a57-64f0f3a1c2d9")
TIMEOUT_SECONDS = 600.0
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Question:
    """``cell`` stands in the row that has the cell ``row``, in the column below ``head``."""

    document: str
    question: str
    row: str
    head: str
    cell: str

    def is_answered_by(self, passage: dict[str, Any]) -> bool:
        if passage["filename"].partition(".")[0] != self.document:
            return False
        row, cell, heads = _words(self.row), _words(self.cell), set(_words(self.head))
        for table in _tables(passage["text"]):
            for cells in table[1:]:
                # A second header row is the first row of the body in markdown.
                columns = zip(cells, *([*top, *[[]] * len(cells)] for top in table[:2]), strict=False)
                found = any(words == cell and heads <= {*first, *second} for words, first, second in columns)
                if found and row in cells:
                    return True
        return False


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--embedder", default="local", help="as EMBEDDER; default: local")


def measure(options: Namespace) -> Result:
    settings.EMBEDDER = options.embedder
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.SEARCHES_PER_MINUTE = 1_000
    lines = make_tables.QUESTIONS.read_text(encoding="utf-8").splitlines()
    questions = [Question(**json.loads(line)) for line in lines][: 3 if options.quick else None]
    client = _client()
    _ingest_pdfs(options.embedder)
    from_pdfs = _ask(client, questions)
    stored_pdfs.store_pdfs([])
    for source in sorted(make_tables.SET.glob("*.html")):
        _ingest_markdown(source, make_tables.markdown(source))
    from_markdown = _ask(client, questions)
    for source in sorted(set(make_retrieval.SET.glob("*.md")) - {make_retrieval.SET / "README.md"}):
        _ingest_markdown(source, source.read_text(encoding="utf-8"))
    among_booklets = _ask(client, questions)
    found, found_in_markdown, found_among = (
        _count_in(1, ranks) for ranks in (from_pdfs, from_markdown, among_booklets)
    )
    return Result(
        name="tables",
        value=found,
        unit="questions whose row is in the first passage",
        against="the same tables given as right markdown",
        ratio=found / max(found_in_markdown, 1),
        goal=GOAL,
        ok=found >= GOAL,
        details={
            "questions": len(questions),
            f"in_first_{DEPTH}": _count_in(DEPTH, from_pdfs),
            "markdown": found_in_markdown,
            f"markdown_in_first_{DEPTH}": _count_in(DEPTH, from_markdown),
            # Six booklets on dental care, vision, drugs and travel beside them, which use the same words.
            "markdown_among_booklets": found_among,
            f"markdown_among_booklets_in_first_{DEPTH}": _count_in(DEPTH, among_booklets),
            "missed": _missed(questions, from_pdfs),
            "markdown_missed": _missed(questions, from_markdown),
            "markdown_among_booklets_missed": _missed(questions, among_booklets),
        },
    )


def _count_in(depth: int, ranks: Sequence[int]) -> int:
    return sum(0 < rank <= depth for rank in ranks)


def _missed(questions: Sequence[Question], ranks: Sequence[int]) -> list[str]:
    return [question.question for question, rank in zip(questions, ranks, strict=True) if rank != 1]


def _ingest_markdown(source: Path, text: str) -> None:
    create_searchable_markdown(TENANT, normalize(text), filename=source.with_suffix(".pdf").name)


def _client() -> Client:
    user = User.objects.create_user("tables@example.org", "tables@example.org", pk=TENANT)
    token = api_tokens.create_token(user, name="benchmark")
    return Client(headers={"authorization": f"Bearer {token}"})


def _ingest_pdfs(embedder: str) -> None:
    stored = stored_pdfs.store_pdfs(sorted(make_tables.SET.glob("*.pdf")), TENANT)
    stored_pdfs.create_jobs(stored)
    print_progress(f"{len(stored)} documents of one tenant, embedded by {embedder}")
    with subprocesses.running_cluster(EMBEDDER=embedder):
        subprocesses.wait_until(job_timings.jobs_have_ended, seconds=TIMEOUT_SECONDS)


def _ask(client: Client, questions: Sequence[Question]) -> list[int]:
    """Return for each question the rank, from 1, of the first passage that answers it; 0 without one."""
    ranks = []
    for question in questions:
        answer = client.post("/search", {"query": question.question}, content_type="application/json")
        assert answer.status_code == 200, answer.content
        passages = answer.json()["passages"]
        hits = (rank for rank, passage in enumerate(passages, 1) if question.is_answered_by(passage))
        ranks.append(next(hits, 0))
    return ranks


def _tables(text: str) -> Iterator[list[list[list[str]]]]:
    """Yield the rows of each table, without its delimiter; a cell is its words."""
    for is_table, lines in groupby(text.split("\n"), key=lambda line: line.lstrip().startswith("|")):
        if is_table:
            rows = [split_cells(line) for line in lines]
            yield [[_words(cell) for cell in cells] for cells in rows if set("".join(cells)) - set(" -:")]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
