"""Documents whose local stages share commits leave the same as one by one, also after a death in between."""

from typing import Any

import pytest
from django.db import connection

from accessa.pipelines import PIPELINES
from documents.models import Document
from documents.parsers import pdf_parser
from documents.parsers.failures import parse_failure
from documents.parsers.sandbox.client import pdf_sandbox
from embeddings.models import ChunkBuffer, DocumentChunk, VectorBuffer
from embeddings.tests.campaign_helpers import kill_worker_at
from jobs import worker
from jobs.choices import Stage
from jobs.models import Event
from testing.personas import Person, Upload, plan_pdf, run_all_jobs, run_stages

PDF = plan_pdf("hospital care", "prescription drugs", "dental care")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what children of the PDF sandbox are asked."""
    requests: list[dict[str, Any]] = []
    ask = pdf_sandbox.request

    def request(message: dict[str, Any], **options: Any) -> dict[str, Any]:
        requests.append(message)
        return ask(message, **options)

    monkeypatch.setattr(pdf_sandbox, "request", request)
    return requests


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second's work take a minute, as on a machine that is busy."""
    monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 60.0)


def events(uploaded: Upload) -> list[tuple[str, str, dict[str, Any]]]:
    rows = Event.objects.filter(job_id=uploaded.job_id).exclude(code="CLAIMED").order_by("ts")
    changing = {"probe_seconds", "worker"}
    return [
        (row.type, row.code, {name: value for name, value in row.payload.items() if name not in changing})
        for row in rows
    ]


def content(uploaded: Upload) -> dict[str, Any]:
    chunks = DocumentChunk.objects.filter(document_id=uploaded.document_id).order_by("chunk_ord")
    document, job = Document.objects.get(pk=uploaded.document_id), uploaded.job
    own = {"document_id", "user_id", "storage_path", "source_path", "parse_id", "parsed_path"}
    return {
        "chunks": list(chunks.values_list("chunk_ord", "chunk_sha", "vector_sha", "meta")),
        "document": (document.pages, document.parsed_sha256, document.page_starts, document.parser_version),
        "job": (job.stage, job.state, job.total_pct, job.progress, job.chunks_version, job.embed_model),
        "payload": {name: value for name, value in job.payload.items() if name not in own},
    }


def commits(uploaded: Upload) -> int:
    with connection.cursor() as cursor:
        sql = "SELECT count(DISTINCT xmin::text) FROM events WHERE job_id = %s AND type = 'stage_done'"
        cursor.execute(sql, [uploaded.job_id])
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("plan", PIPELINES.values(), ids=lambda plan: plan.name)
def test_what_buys_or_reads_the_rows_before_it_begins_with_everything_saved(plan: Any) -> None:
    joining = {step.stage for step in plan.steps if step.joins_commit}

    assert not joining & {plan.steps[0].stage, Stage.EMBEDDING, Stage.EMBEDDED}
    assert not joining or plan.name != "statute"


@pytest.mark.django_db(transaction=True)
def test_a_document_takes_two_commits_before_its_last_and_leaves_the_same_as_one_by_one(
    ana: Person, ben: Person, asked: list[dict[str, Any]]
) -> None:
    uploaded = ana.ingest(PDF)
    together = len(asked)
    other = ben.upload(PDF)
    for _ in run_stages():
        pass

    assert (together, len(asked) - together) == (1, 2)
    assert commits(uploaded) == 2 < commits(other)
    assert events(uploaded) == events(other)
    assert content(uploaded) == content(other)
    assert not ChunkBuffer.objects.exists()
    assert not VectorBuffer.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "point", ["chain:middle", "chain:before-commit", "chain:after-commit", "parsing:stored", "embedding:end"]
)
def test_a_document_whose_worker_died_ends_the_same(
    point: str, ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ben.ingest(PDF)
    uploaded = ana.upload(PDF)

    assert kill_worker_at(monkeypatch, point)
    run_all_jobs(1)

    assert content(uploaded) == content(expected)
    moved = [event for event in events(uploaded) if "from" in event[2]]
    assert [event for event in moved if event[0] != "retry"] == [
        event for event in events(expected) if "from" in event[2]
    ]


@pytest.mark.django_db
def test_a_document_that_takes_more_than_a_second_is_parsed_once(
    ana: Person, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 0.0)

    uploaded = ana.ingest(PDF)

    assert uploaded.job.state == "done"
    assert len(asked) == 1


@pytest.mark.django_db
def test_a_longer_document_is_parsed_by_a_child_of_its_own(
    ana: Person, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf_parser, "PAGES_PARSED_AT_ONCE", 2)

    uploaded = ana.ingest(PDF)

    assert uploaded.job.state == "done"
    assert len(asked) == 2


@pytest.mark.django_db
def test_a_document_that_ends_the_child_fails_in_the_stage_that_parses(
    ana: Person, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = pdf_sandbox.request

    def crash(message: dict[str, Any], **options: Any) -> dict[str, Any]:
        if message["ask"] == "parse":
            raise parse_failure("crashed")
        return ask(message, **options)

    monkeypatch.setattr(pdf_sandbox, "request", crash)
    uploaded = ana.upload(PDF)

    worker.drain()

    assert uploaded.job.stage == "parsing"
    assert uploaded.job.last_error is not None
    assert uploaded.job.last_error["code"] == "PARSER_CRASHED"
    assert Document.objects.get(pk=uploaded.document_id).pages == 3
