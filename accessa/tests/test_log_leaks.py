"""Canaries: text of a tenant's file, its name and queries is in no log, event, error or traceback."""

import logging
from typing import Any

import pytest
from django.db import connection

from documents.models import Document
from embeddings.models import DocumentChunk
from jobs import worker
from jobs.models import Event, UploadJob
from testing.pdfs import text_pdf
from testing.personas import Person, run_all_jobs

SSN, POLICY, QUESTION = "078-05-1120", "POLICY-XJ9-4471", "canary-question-5582"
PDF = text_pdf(f"Member {SSN} holds {POLICY}.", f"The deductible of {POLICY} is 500 dollars.")
pytestmark = pytest.mark.django_db


def written_down(caplog: pytest.LogCaptureFixture) -> str:
    """Everything that staff, operators or other systems get to see."""
    events = list(Event.objects.values_list("code", "payload", "type"))
    jobs = list(UploadJob.objects.values_list("last_error", "traceback", "progress", "wait_reason", "claimed_by"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT key FROM rate_windows")
        keys = cursor.fetchall()
    return f"{caplog.text} {events} {jobs} {keys}"


def listen(caplog: pytest.LogCaptureFixture) -> None:
    # Django's own SQL log is for DEBUG servers only and would repeat every row.
    logging.getLogger("django.db.backends").setLevel(logging.INFO)
    caplog.set_level(logging.DEBUG)


def test_a_document_that_ends_well_leaves_none(ana: Person, caplog: pytest.LogCaptureFixture) -> None:
    listen(caplog)

    uploaded = ana.ingest(PDF, filename=f"{POLICY} {SSN}.pdf")
    ana.post("/search", {"query": f"{QUESTION} {SSN}"})
    ana.post("/search", {"query": f"{QUESTION} " * 5000})
    ana.get(f"/documents/{uploaded.document_id}/original")
    ana.get(f"/jobs/{uploaded.document_id}")
    ana.delete(f"/documents/{uploaded.document_id}")
    ana.post("/upload", {"filename": POLICY, "mime": SSN, "bytes_len": QUESTION, "sha256": SSN})

    text = written_down(caplog)
    assert "UPLOAD_ACCEPTED" in text, "nothing was logged: the test hears nothing"
    for canary in (SSN, POLICY, QUESTION, ana.token, "storage://", "token="):
        assert canary not in text


def test_the_canaries_were_in_the_document(ana: Person) -> None:
    ana.ingest(PDF, filename=f"{POLICY}.pdf")

    text = " ".join(DocumentChunk.objects.values_list("text", flat=True))
    assert SSN in text
    assert POLICY in text
    assert POLICY in Document.objects.get().filename


@pytest.mark.parametrize(
    "break_it",
    [
        # Each makes the database or the code complain with the row's own values in its message.
        "ALTER TABLE document_chunk_buffer ADD CONSTRAINT no_members CHECK (text NOT LIKE '%%Member%%')",
        "ALTER TABLE document_chunks ADD CONSTRAINT no_members CHECK (text NOT LIKE '%%Member%%')",
        "CREATE UNIQUE INDEX same ON document_chunks ((left(text, 0)), chunker_name); "
        "INSERT INTO document_chunks (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, "
        "chunk_sha, text) SELECT gen_random_uuid(), user_id, document_id, 'markdown-simple', '0', 0, 'x', "
        "'078-05-1120' FROM documents",
        "ALTER TABLE documents ADD CONSTRAINT no_parse CHECK (parsed_sha256 IS NULL)",
    ],
)
def test_a_failure_of_the_database_leaves_none(break_it: str, ana: Person, caplog: pytest.LogCaptureFixture) -> None:
    listen(caplog)
    uploaded = ana.upload(PDF, filename=f"{POLICY} {SSN}.pdf")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        for statement in break_it.replace("%%", "%").split("; "):
            cursor.execute(statement)

    worker.drain()
    run_all_jobs(4)

    assert uploaded.failure == "internal"
    assert uploaded.job.traceback
    text = written_down(caplog)
    for canary in (SSN, POLICY, "Failing row", "DETAIL"):
        assert canary not in text


def test_a_bug_in_a_stage_leaves_none(
    ana: Person, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(text: str, *args: Any, **options: Any) -> None:
        raise ValueError(f"cannot cut {text}")

    monkeypatch.setattr("embeddings.chunking.chunkers.split_markdown", bug)
    listen(caplog)

    uploaded = ana.ingest(PDF)
    run_all_jobs(4)

    assert uploaded.failure == "internal"
    text = written_down(caplog)
    assert "ValueError" in text
    for canary in (SSN, POLICY):
        assert canary not in text
    shown = ana.get(f"/job/{uploaded.job_id}").json()["last_error"]
    assert "ValueError" not in str(shown)
