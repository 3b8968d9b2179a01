"""Scans through the pipeline: blank pages are read by OCR in batches, and only those."""

from typing import Any

import pytest

from documents.models import Document, OcrPage
from documents.parsers import ocr
from documents.parsers.sandbox.client import pdf_sandbox
from jobs import services
from jobs.outcomes import Permanent, Retryable
from testing.error_codes import error_code
from testing.pdfs import text_pdf
from testing.personas import Person, run_all_jobs

pytestmark = pytest.mark.django_db


class Reader:
    """Reads any page at once, and remembers which."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.fails: dict[int, Exception] = {}

    def __call__(self, path: Any, pages: list[int]) -> dict[int, str]:
        self.requests.append(list(pages))
        for page in pages:
            if page in self.fails:
                raise self.fails[page]
        return {page: f"Scanned words of page {page + 1}." for page in pages}


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    fake = Reader()
    monkeypatch.setattr(ocr, "recognize_pages", fake)
    return fake


def test_only_pages_without_a_text_layer_are_read(ana: Person, reader: Reader) -> None:
    uploaded = ana.ingest(text_pdf("printed words", "", "more printed words", ""), ocr=True)

    assert uploaded.job.state == "done"
    assert reader.requests == [[1, 3]]
    assert str(Document.objects.get().parser_version).endswith(f".ocr-{ocr.VERSION}")
    passages = ana.post("/search", {"query": "scanned words of page 4", "k": 5}).json()["passages"]
    assert any("Scanned words of page 4." in passage["text"] for passage in passages)


def test_a_scan_fails_without_ocr_and_is_read_when_declared_with_it(ana: Person, reader: Reader) -> None:
    scan = text_pdf("", "")
    uploaded = ana.ingest(scan)
    assert uploaded.failure == "NO_TEXT_LAYER"

    ana.request_upload(scan, ocr=True)
    run_all_jobs(3)

    assert uploaded.job.state == "done"


def test_batches_are_saved_and_a_lost_worker_repeats_only_one(ana: Person, reader: Reader) -> None:
    reader.fails[5] = Retryable(error_code("PARSER_CRASHED"), "Once.")
    uploaded = ana.ingest(text_pdf(*[""] * 7), ocr=True)
    assert OcrPage.objects.count() == ocr.PAGES_PER_BATCH
    reader.fails.clear()

    run_all_jobs(2)

    assert uploaded.job.state == "done"
    assert reader.requests == [[0, 1, 2, 3], [4, 5, 6], [4, 5, 6]]
    assert not OcrPage.objects.exists(), "they are in the parsed text now"


def test_pages_read_by_another_engine_are_read_again(
    ana: Person, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.fails[5] = Retryable(error_code("PARSER_CRASHED"), "Once.")
    uploaded = ana.ingest(text_pdf(*[""] * 7), ocr=True)
    reader.fails.clear()
    monkeypatch.setattr(ocr, "VERSION", "newer")
    services.retry(services.cancel(uploaded.job, by="sam"), by="sam", stage="job_validated")

    run_all_jobs(2)

    assert (uploaded.job.state, uploaded.job.last_error) == ("done", None)
    assert reader.requests[-2:] == [[0, 1, 2, 3], [4, 5, 6]]


def test_a_page_that_cannot_be_read_loses_only_itself(ana: Person, reader: Reader) -> None:
    reader.fails[1] = Permanent(error_code("PARSER_OUT_OF_MEMORY"), "Too large.")

    uploaded = ana.ingest(text_pdf("", "", ""), ocr=True)

    assert uploaded.job.state == "done"
    assert ana.get(f"/documents/{uploaded.document_id}").json()["failed_pages"] == [2]


def test_a_page_that_always_crashes_ocr_is_skipped_at_the_last_try(ana: Person, reader: Reader) -> None:
    reader.fails[2] = Retryable(error_code("PARSER_CRASHED"), "Always.")

    uploaded = ana.ingest(text_pdf("", "", ""), ocr=True)
    run_all_jobs(6)

    assert uploaded.job.state == "done"
    assert ana.get(f"/documents/{uploaded.document_id}").json()["failed_pages"] == [3]


def test_a_long_scan_yields_to_other_jobs_between_batches(
    ana: Person, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("documents.ocr_batches.TURN_SECONDS", -1.0)
    uploaded = ana.ingest(text_pdf("", ""), ocr=True)

    job = uploaded.job

    assert (job.state, job.wait_reason, job.attempts) == ("queued", "OCR_CONTINUES", 0)


def test_a_scan_in_which_nothing_can_be_read_says_so(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "recognize_pages", lambda path, pages: dict.fromkeys(pages, ""))

    uploaded = ana.ingest(text_pdf("", ""), ocr=True)

    assert uploaded.failure == "NO_TEXT_FOUND"


def test_deleting_a_document_deletes_its_ocr_text(ana: Person, reader: Reader) -> None:
    reader.fails[5] = Retryable(error_code("PARSER_CRASHED"), "Once.")
    uploaded = ana.ingest(text_pdf(*[""] * 7), ocr=True)

    ana.delete(f"/documents/{uploaded.document_id}")

    assert not OcrPage.objects.exists()


def test_progress_counts_the_pages_read_so_far(ana: Person, reader: Reader) -> None:
    reader.fails[9] = Retryable(error_code("PARSER_CRASHED"), "Once.")
    uploaded = ana.ingest(text_pdf("printed", "", "printed", "", "", "", "", "", "", "", ""), ocr=True)
    job = ana.get(f"/jobs/{uploaded.document_id}").json()

    # 2 printed pages and the first batches; the last batch failed.
    read = 2 + (9 - 2) // ocr.PAGES_PER_BATCH * ocr.PAGES_PER_BATCH
    assert (job["stage"], job["progress"]["pages_done"], job["progress"]["pages_total"]) == ("parsing", read, 11)
    assert job["progress"]["stage_pct"] == pytest.approx(100 * read / 11, abs=0.1)
    assert 15 < job["progress"]["total_pct"] < 45

    reader.fails.clear()
    run_all_jobs(2)
    done = ana.get(f"/jobs/{uploaded.document_id}").json()["progress"]
    assert (done["pages_done"], done["stage_pct"], done["total_pct"]) == (11, 100.0, 100.0)


# Verdicts of the child about pages


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what is added to the child's answers."""
    added: dict[str, Any] = {}
    request = pdf_sandbox.request
    monkeypatch.setattr(pdf_sandbox, "request", lambda *args, **options: request(*args, **options) | added)
    return added


def test_doubtful_and_unreadable_pages_are_recorded(ana: Person, verdicts: dict[str, Any]) -> None:
    verdicts |= {"doubtful": [2], "unreadable": [3]}

    uploaded = ana.ingest(text_pdf("first words", "second words", ""))

    assert uploaded.job.state == "done"
    shown = ana.get(f"/documents/{uploaded.document_id}").json()
    assert (shown["failed_pages"], shown["doubtful_pages"]) == ([3], [2])


def test_an_unreadable_page_is_read_by_ocr_if_that_is_allowed(
    ana: Person, verdicts: dict[str, Any], reader: Reader
) -> None:
    verdicts |= {"unreadable": [2]}

    uploaded = ana.ingest(text_pdf("printed words", ""), ocr=True)

    assert reader.requests == [[1]]
    assert ana.get(f"/documents/{uploaded.document_id}").json()["failed_pages"] == []


def test_an_unreadable_page_in_which_ocr_finds_nothing_has_failed(
    ana: Person, verdicts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts |= {"unreadable": [2]}
    monkeypatch.setattr(ocr, "recognize_pages", lambda path, pages: dict.fromkeys(pages, ""))

    uploaded = ana.ingest(text_pdf("printed words", "", ""), ocr=True)

    assert ana.get(f"/documents/{uploaded.document_id}").json()["failed_pages"] == [2]
