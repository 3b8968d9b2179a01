"""The demo on files of one's own: its questions, and which refusals are right."""

import io
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from rich.console import Console

from accessa.demo.api_client import ApiClient, ApiClientError
from accessa.demo.document_questions import document_questions
from accessa.demo.scenarios import Demo, DocumentScenario
from documents.cli_progress import JobStatus

TABLE = "| Benefit | You pay | Limits |\n| --- | --- | --- |\n| Office visit | $20 copay | none |\n| 12 | $1 | none |\n"


def test_questions_name_a_row_with_its_column_and_a_heading() -> None:
    markdown = f"# Plan 2026\n\n## How to appeal\n\nWithin 180 days.\n\n## 7.\n\n{TABLE}"

    assert document_questions(markdown) == ["Office visit: You pay?", "What does it say about How to appeal?"]


@pytest.mark.parametrize("markdown", ["", "Only prose.", "## 7.\n\n| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n"])
def test_a_text_without_names_makes_no_question(markdown: str) -> None:
    assert document_questions(markdown) == []


class OneFile(ApiClient):
    """A client whose one upload ends in the given state, or is refused."""

    def __init__(self, *, state: str = "done", failure: str | None = None, refused: str = "") -> None:
        self.job_id = uuid4()
        self.state, self.failure, self.refused = state, failure, refused
        self.asked: list[str] = []

    def upload(self, file: Path) -> UUID:
        if self.refused:
            raise ApiClientError(self.refused, "A sentence.")
        return self.job_id

    def jobs(self) -> Any:
        yield JobStatus(self.job_id, "parsed", self.state, 50.0, self.failure)

    def rows(self, path: str) -> Any:
        yield {"job_id": str(self.job_id), "document_id": "a-document"}

    def parsed_text(self, document_id: str) -> str:
        return TABLE

    def answer(self, question: str) -> dict[str, Any]:
        self.asked.append(question)
        return {"answered": False, "text": "Not in your documents.", "sentences": []}


def run(client: OneFile) -> tuple[Demo, str]:
    screen = io.StringIO()
    demo = Demo(Console(file=screen, width=200), client, lambda: None, deadline=float("inf"))
    DocumentScenario([Path("plan.pdf")], None).run(demo)
    return demo, screen.getvalue()


def test_a_searchable_document_is_asked_about_its_own_table() -> None:
    client = OneFile()
    demo, _ = run(client)

    assert client.asked == ["Office visit: You pay?"]
    assert demo.failures == []


def test_a_file_that_is_refused_for_what_it_is_fails_no_demo_and_shows_the_way_out() -> None:
    demo, screen = run(OneFile(state="deadletter", failure="PASSWORD_REQUIRED"))

    assert demo.failures == []
    assert "plan.pdf: The PDF needs a password. Upload it without one." in screen


@pytest.mark.parametrize("failure", ["STAGE_TIMEOUT", "NEVER_HEARD_OF", None])
def test_a_document_that_might_have_ended_well_fails_the_demo(failure: str | None) -> None:
    client = OneFile(state="deadletter", failure=failure)
    demo, _ = run(client)

    assert len(demo.failures) == 1
    assert client.asked == []


@pytest.mark.parametrize(("code", "failures"), [("FILE_TOO_LARGE", 0), ("UPLOAD_QUOTA_EXCEEDED", 1), ("UNKNOWN", 1)])
def test_an_upload_is_rightly_refused_for_its_file_only(code: str, failures: int) -> None:
    demo, screen = run(OneFile(refused=code))

    assert len(demo.failures) == failures
    assert code in screen
