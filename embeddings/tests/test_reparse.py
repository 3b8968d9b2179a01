"""A campaign's reparse: another text and its passages in the place of the old, at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from documents import parse_store
from documents.models import Document, StagedParse
from documents.parsers import pdf_parser
from documents.parsers.failures import parse_failure
from documents.parsers.pdf_parser import ParsedPdf
from embeddings.models import ChunkBuffer, DocumentChunk, VectorBuffer
from embeddings.reindexing.tenant_workflow import abandon_new_chunks
from embeddings.tests.campaign_helpers import (
    chunkers_in_use,
    kill_worker_at,
    live_rows,
    recording_embedder,
    reload_job,
    reparse,
    violations,
)
from jobs import services, worker
from jobs.models import UploadJob
from jobs.outcomes import Permanent
from testing.pdfs import text_pdf
from testing.personas import Person, Upload, claim_at_stage, plan_pdf, run_all_jobs, run_stages

pytestmark = pytest.mark.django_db

PDF = plan_pdf("hospital care", "drugs", "dental care")
OTHER_SENTENCE = "A sentence that only the new parser reads."
Parses = Callable[[], None]


@pytest.fixture
def uploaded(ana: Person, settings: Any) -> Upload:
    settings.EMBEDDER = "local"
    return ana.ingest(PDF)


@pytest.fixture
def better_parser(monkeypatch: pytest.MonkeyPatch) -> Parses:
    """Configure another version of the parser, which reads one more sentence at the end of each document."""

    def install() -> None:
        old = pdf_parser.parse_pdf

        def parse_pdf(*args: Any, **options: Any) -> ParsedPdf:
            parsed = old(*args, **options)
            *before, last = parsed.markdown
            return replace(parsed, markdown=[*before, f"{last}\n\n{OTHER_SENTENCE}"], doubtful=[1])

        monkeypatch.setattr(pdf_parser, "parse_pdf", parse_pdf)
        monkeypatch.setattr(pdf_parser, "VERSION", "better")

    return install


def stored_text() -> str:
    return parse_store.read_bytes(Document.objects.get()).decode()


def is_new() -> bool:
    document = Document.objects.get()
    assert (document.parser_version == "better") is (OTHER_SENTENCE in stored_text())
    return document.parser_version == "better"


def test_old_text_and_passages_are_found_until_the_new_ones_are_whole(
    uploaded: Upload, settings: Any, better_parser: Parses
) -> None:
    better_parser()
    before, text = live_rows(), stored_text()
    job = reparse(uploaded)
    seen = []

    for claim in run_stages():
        seen.append(claim.job.stage)
        if claim.job.stage != "embedded":
            assert (live_rows(), stored_text(), violations()) == (before, text, [])

    assert seen == [
        "job_validated", "parsing", "parsed", "parse_validated", "chunking", "chunks_buffered", "chunked", "embedding",
        "embeddings_buffered", "embedded",
    ]  # fmt: skip
    assert (reload_job(job).state, is_new(), Document.objects.get().doubtful_pages) == ("done", True, [1])
    assert chunkers_in_use() == {settings.CHUNKER}
    assert OTHER_SENTENCE in DocumentChunk.objects.order_by("chunk_ord").last().text  # type: ignore[union-attr]
    assert not DocumentChunk.objects.filter(embedding=None).exists()
    assert (ChunkBuffer.objects.count(), VectorBuffer.objects.count(), StagedParse.objects.count()) == (0, 0, 0)
    assert violations() == []


def test_unchanged_passages_keep_their_vectors(ana: Person, settings: Any, better_parser: Parses) -> None:
    embedder = recording_embedder(settings)
    ana.ingest(PDF)
    better_parser()
    before = dict(DocumentChunk.objects.values_list("chunk_sha", "embed_updated_at"))
    embedder.seen.clear()

    job = reparse(Upload(UploadJob.objects.get().pk, Document.objects.get().pk))
    worker.drain()

    after = dict(DocumentChunk.objects.values_list("chunk_sha", "embed_updated_at"))
    kept = before.keys() & after.keys()
    assert reload_job(job).state == "done"
    assert len(kept) == len(before) - 1
    assert {sha: after[sha] for sha in kept} == {sha: before[sha] for sha in kept}
    assert [OTHER_SENTENCE in text for text in embedder.seen] == [True]


def test_a_shorter_text_leaves_no_passage_behind(
    uploaded: Upload, better_parser: Parses, monkeypatch: pytest.MonkeyPatch
) -> None:
    better_parser()
    monkeypatch.setattr(pdf_parser, "parse_pdf", lambda *_, **__: ParsedPdf([OTHER_SENTENCE, "", ""], [], [3]))

    reparse(uploaded)
    worker.drain()

    assert [chunk.text for chunk in DocumentChunk.objects.all()] == [OTHER_SENTENCE]
    assert (is_new(), Document.objects.get().failed_pages, violations()) == (True, [3], [])


@pytest.mark.parametrize(
    "place",
    ["parsing:before-commit", "parsing:after-commit", "chunking:before-commit", "chunks_buffered:after-commit",
     "embedding:answered", "embeddings_buffered:before-commit", "embedded:begin"],
)  # fmt: skip
def test_a_reparse_killed_anywhere_is_atomic_and_finishes(
    place: str, uploaded: Upload, better_parser: Parses, monkeypatch: pytest.MonkeyPatch
) -> None:
    better_parser()
    before, job = live_rows(), reparse(uploaded)

    assert kill_worker_at(monkeypatch, place)
    is_committed = place == "embedded:begin"
    assert (live_rows() == before) is not is_committed
    assert (Document.objects.get().parser_version == "better") is is_committed
    run_all_jobs(1)

    assert (reload_job(job).state, is_new(), violations()) == ("done", True, [])


def test_a_parse_that_fails_leaves_the_old_one(
    uploaded: Upload, better_parser: Parses, monkeypatch: pytest.MonkeyPatch
) -> None:
    better_parser()
    before, text = live_rows(), stored_text()

    def fail(*_: object, **__: object) -> ParsedPdf:
        raise Permanent(parse_failed.code, "It cannot be read.")

    parse_failed = parse_failure("PDF_MALFORMED")
    with monkeypatch.context() as patch:
        patch.setattr(pdf_parser, "parse_pdf", fail)
        job = reparse(uploaded)
        worker.drain()

    assert (reload_job(job).last_error or {})["code"] == "PDF_MALFORMED"
    assert (live_rows(), stored_text(), violations()) == (before, text, [])
    services.retry(reload_job(job), by="test")
    worker.drain()
    assert (reload_job(job).state, is_new(), violations()) == ("done", True, [])


def test_an_abandoned_reparse_leaves_nothing_behind(uploaded: Upload, settings: Any, better_parser: Parses) -> None:
    better_parser()
    before, job = live_rows(), reparse(uploaded)
    claim_at_stage("embeddings_buffered")
    services.cancel(reload_job(job), by="test")

    assert abandon_new_chunks(uploaded.document_id)

    assert (live_rows(), chunkers_in_use(), VectorBuffer.objects.count()) == (before, {settings.CHUNKER}, 0)
    assert (StagedParse.objects.count(), is_new(), violations()) == (0, False, [])


def test_a_reparse_abandoned_after_a_kill_restores_the_old_text(
    uploaded: Upload, better_parser: Parses, monkeypatch: pytest.MonkeyPatch
) -> None:
    better_parser()
    before, text, job = live_rows(), stored_text(), reparse(uploaded)
    assert kill_worker_at(monkeypatch, "embeddings_buffered:before-commit")
    assert stored_text() != text
    services.cancel(reload_job(job), by="test")

    assert abandon_new_chunks(uploaded.document_id)

    assert (live_rows(), stored_text(), violations()) == (before, text, [])


def test_a_twin_keeps_the_text_that_it_shares(ana: Person, settings: Any, better_parser: Parses) -> None:
    settings.EMBEDDER = "local"
    first = ana.ingest(PDF)
    twin = ana.ingest(PDF + b"\n")
    text = stored_text_of(twin)
    assert Document.objects.get(pk=twin.document_id).parsed_path == parse_store.own_path(
        Document.objects.get(pk=first.document_id)
    )
    better_parser()

    reparse(first)
    worker.drain()

    assert OTHER_SENTENCE in stored_text_of(first)
    assert (stored_text_of(twin), violations()) == (text, [])


def stored_text_of(uploaded: Upload) -> str:
    return parse_store.read_bytes(Document.objects.get(pk=uploaded.document_id)).decode()


def test_a_document_that_is_deleted_during_its_reparse_leaves_nothing(
    ana: Person, uploaded: Upload, better_parser: Parses
) -> None:
    better_parser()
    reparse(uploaded)
    claim_at_stage("embeddings_buffered")

    assert ana.delete(f"/documents/{uploaded.document_id}").status_code == 204

    assert (Document.objects.count(), StagedParse.objects.count(), DocumentChunk.objects.count()) == (0, 0, 0)


def test_the_new_text_is_found(ana: Person, settings: Any, better_parser: Parses) -> None:
    settings.EMBEDDER = "local"
    uploaded = ana.ingest(text_pdf("one page of words"))
    better_parser()

    reparse(uploaded)
    worker.drain()

    found = ana.post("/search", {"query": OTHER_SENTENCE}).json()["passages"]
    assert OTHER_SENTENCE in found[0]["text"]
