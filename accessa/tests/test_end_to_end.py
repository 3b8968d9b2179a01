"""End-to-end tests: a file through the HTTP API and a real worker, one for each ending."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.utils import DEFAULT_DB_ALIAS

from documents.deterministic_ids import uuidv5
from documents.models import Document
from documents.storage import buckets
from embeddings.models import ChunkBuffer, DocumentChunk, VectorBuffer
from jobs import claims, services, worker
from jobs.choices import Stage
from jobs.claims import Claim
from jobs.lifecycle import EVENT_CODES
from jobs.models import Event, UploadJob
from testing.pdfs import encrypted_pdf, text_pdf
from testing.personas import Person, Upload, claim_at_stage, make_parked_jobs_due, plan_pdf, run_all_jobs, run_stages
from testing.sizes import size

PDF = plan_pdf("hospital care", "drugs", "dental care")
pytestmark = pytest.mark.django_db

MVP_JOB = {
    "job_id", "stage", "state", "retry_count", "progress", "cost_cents", "document_id", "last_error", "updated_at",
}  # fmt: skip
COUNTERS = {"pages_total", "pages_done", "chunks_total", "chunks_done", "embeds_total", "embeds_done"}


def parsed_file(uploaded: Upload) -> Path:
    document = Document.objects.get(pk=uploaded.document_id)
    return Path(settings.STORAGE_ROOT, "parsed", str(document.user_id), f"{document.pk}.md")


def original_file(uploaded: Upload) -> Path:
    document = Document.objects.get(pk=uploaded.document_id)
    return Path(settings.STORAGE_ROOT, "raw", str(document.user_id), f"{document.pk}.pdf")


def codes(uploaded: Upload) -> list[str]:
    return list(Event.objects.filter(job_id=uploaded.job_id).order_by("ts").values_list("code", flat=True))


def run_stage(claim: Claim) -> None:
    """Let the worker that holds ``claim`` finish the stage at which it stands."""
    claim.settle(worker.run_stage(claim))


# The good story


def test_a_pdf_becomes_searchable_passages(ana: Person) -> None:
    uploaded = ana.ingest(PDF)

    job = ana.get(f"/job/{uploaded.job_id}").json()
    assert set(job) == MVP_JOB
    assert (job["stage"], job["state"], job["retry_count"], job["last_error"]) == ("embedded", "done", 0, None)
    assert job["progress"] == {"stage_pct": 100.0, "total_pct": 100.0}
    counted = ana.get(f"/jobs/{uploaded.document_id}").json()
    assert counted["status"] == "complete"
    done = {name: counted["progress"][name] for name in COUNTERS}
    assert (done.pop("pages_total"), done.pop("pages_done")) == (3, 3)
    assert set(done.values()) == {DocumentChunk.objects.count()}
    chunks = ana.get(f"/documents/{uploaded.document_id}/chunks").json()["results"]
    ids = {chunk["embedding_id"] for chunk in chunks}
    assert ids == {str(uuidv5(chunk["chunk_id"], chunk["embed_model"], chunk["embed_version"])) for chunk in chunks}
    assert [chunk["chunk_ord"] for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk["embed_model"] and chunk["meta"]["pages"] and chunk["meta"]["tokens"] <= 512 for chunk in chunks)
    passage = ana.post("/search", {"query": "dental care", "k": 1}).json()["passages"][0]
    assert (passage["filename"], passage["pages"][1]) == ("plan.pdf", 3)
    assert not ChunkBuffer.objects.exists()
    assert not VectorBuffer.objects.exists()


def test_each_passage_is_where_its_citation_says(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    text = parsed_file(uploaded).read_text()

    for chunk in DocumentChunk.objects.all():
        meta = chunk.meta or {}
        assert chunk.text.endswith(text[meta["start"] : meta["end"]])


def test_the_stages_the_statuses_and_the_share_done_go_one_way(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    seen: list[tuple[str, str, float, str]] = []

    for _ in run_stages():
        seen.append(look(uploaded))
    seen.append(look(uploaded))

    assert [stage for stage, *_ in seen] == [*Stage.values, "embedded"]
    assert [status for _, status, *_ in seen] == [
        "uploaded", "parse_queued", "parse_queued", "parsed", "parse_validated", "chunking", "chunks_stored",
        "chunks_stored", "embedding_in_progress", "embeddings_stored", "embeddings_stored", "complete",
    ]  # fmt: skip
    assert [total for *_, total, _ in seen] == sorted(total for *_, total, _ in seen)
    assert seen[-1][2] == 100.0
    assert all(status == derived for _, status, _, derived in seen)


def look(uploaded: Upload) -> tuple[str, str, float, str]:
    job = uploaded.job
    return job.stage, job.status, job.total_pct, str(Document.objects.get(pk=uploaded.document_id).processing_status)


def test_a_local_document_counts_its_pages_without_a_write_of_their_own(
    ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Claim, "save_progress")
    ana.upload(PDF)

    counted = {claim.job.stage: claim.job.progress.get("pages_done") for claim in run_stages()}

    assert (counted["parsing"], counted["parsed"]) == (0, 3)
    assert UploadJob.objects.get().state == "done"


def test_the_share_done_never_falls_through_failure_and_retry(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    services.cancel(claim_at_stage("embedding").job, by="ana")
    seen = [uploaded.job.total_pct]
    parsed_file(uploaded).write_text("something else")

    assert ana.post(f"/jobs/{uploaded.document_id}/retry").json()["stage"] == "parsing"
    for _ in run_stages():
        seen.append(uploaded.job.total_pct)
    seen.append(uploaded.job.total_pct)

    assert seen == sorted(seen)
    assert seen[0] >= 70
    assert uploaded.job.state == "done"


def test_the_payload_has_the_shapes_of_mvp_6_at_each_stage(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    at = {claim.job.stage: uploaded.job.payload for claim in run_stages()}
    document, user = str(uploaded.document_id), str(ana.id)
    raw, parsed = f"storage://raw/{user}/{document}.pdf", f"storage://parsed/{user}/{document}.md"
    row = Document.objects.get()

    validated = {
        "user_id": user, "document_id": document, "file_sha256": row.file_sha256, "bytes_len": len(PDF),
        "mime": "application/pdf", "storage_path": raw,
    }  # fmt: skip
    assert at["job_validated"] == validated
    parse = {"parser_name": row.parser_name, "parser_version": row.parser_version, "source_path": raw}
    assert at["parsing"].items() >= parse.items()
    assert at["parsed"].items() >= (parse | {"parsed_path": parsed, "parsed_sha256": row.parsed_sha256}).items()
    chunks = DocumentChunk.objects.count()
    cut = {"chunker_name": "markdown-simple", "chunker_version": "3"}
    assert at["chunking"].items() >= cut.items()
    assert at["chunks_buffered"].items() >= (cut | {"num_chunks": chunks}).items()
    model = {"embed_version": "1", "vector_dim": 1536, "num_vectors": chunks}
    assert at["embedding"].items() >= model.items()
    assert at["embedding"]["embed_model"] == DocumentChunk.objects.values_list("embed_model", flat=True).first()
    assert row.raw_path == raw
    assert (row.parsed_path, uploaded.job.parsed_path) == (parsed, parsed)


def test_a_locked_pdf_that_opens_without_a_password_is_not_refused(ana: Person) -> None:
    assert ana.ingest(encrypted_pdf("Deductible: 500 dollars")).job.state == "done"


# Bad input: each ends in its own code, told to the tenant

BAD: dict[str, tuple[bytes, str]] = {
    "not a PDF": (b"PK\x03\x04 a zip by another name", "NOT_A_PDF"),
    "a web page": (b"<html><body>%PDF is not far</body></html>", "NOT_A_PDF"),
    "one byte": (b"%", "NOT_A_PDF"),
    "truncated": (PDF[: len(PDF) // 5], "PDF_TRUNCATED"),
    "a header alone": (b"%PDF-1.7\n", "PDF_TRUNCATED"),
    "garbage after the header": (b"%PDF-1.7\n" + bytes(range(256)) * 20 + b"\n%%EOF\n", "PDF_MALFORMED"),
    "a password": (encrypted_pdf("secret", user_password=b"hunter2"), "PASSWORD_REQUIRED"),
    "blank pages": (text_pdf("", ""), "NO_TEXT_LAYER"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_ends_at_once_in_its_own_code(name: str, ana: Person) -> None:
    content, expected = BAD[name]

    uploaded = ana.ingest(content)

    error = ana.get(f"/job/{uploaded.job_id}").json()["last_error"]
    assert uploaded.failure == error["code"] == expected
    assert set(error) == {"code", "detail", "stage", "attempt"}
    assert error["attempt"] == 1
    assert ana.get(f"/documents/{uploaded.document_id}").json()["processing_status"] == "failed_parse"
    assert not DocumentChunk.objects.exists()
    assert Document.objects.get().parsed_path is None
    assert not parsed_file(uploaded).exists()
    assert uploaded.job.traceback is None
    assert codes(uploaded)[-1] == "DLQ_MOVED"


def test_no_text_says_that_ocr_is_needed(ana: Person) -> None:
    assert "OCR" in ana.ingest(text_pdf("")).job.last_error["detail"]  # type: ignore[index]


@pytest.mark.parametrize(("content", "code"), [(PDF + b"x", "LENGTH_MISMATCH"), (PDF[:-1] + b"x", "HASH_MISMATCH")])
def test_wrong_bytes_in_the_store_are_rejected_and_can_be_replaced(content: bytes, code: str, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    original_file(uploaded).write_bytes(content)

    worker.drain()

    assert uploaded.failure == code
    assert Document.objects.get().stored_at is None
    assert ana.ingest(PDF).job.state == "done"


def test_bytes_that_never_arrive_expire_by_the_databases_clock(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    ana.request_upload(PDF)
    worker.drain()
    job = UploadJob.objects.get()
    assert (job.state, job.wait_reason, job.attempts) == ("queued", "WAITING_FOR_UPLOAD", 0)
    monkeypatch.setattr("time.time", lambda: 4e9)  # our own clock may say what it wants
    make_parked_jobs_due()
    worker.drain()
    assert UploadJob.objects.get().state == "queued"

    with connection.cursor() as cursor:
        cursor.execute("UPDATE documents SET upload_expires_at = clock_timestamp() - interval '61 seconds'")
    run_all_jobs(1)

    job = UploadJob.objects.get()
    assert (job.state, (job.last_error or {})["code"]) == ("deadletter", "UPLOAD_EXPIRED")


def test_a_text_with_nothing_to_cut_has_no_chunks(ana: Person) -> None:
    """The parser's guard answers first for every file; a text that is emptied behind it is still no silent success."""
    uploaded = ana.upload(PDF)
    claim = claim_at_stage("chunking")
    parsed_file(uploaded).write_bytes(b"\n")

    run_stage(claim)

    assert uploaded.failure == "NO_CHUNKS"
    assert uploaded.job.status == "failed_chunking"
    assert Document.objects.get().processing_status == "failed_chunking"


def test_a_missing_original_is_waited_for_and_not_a_traceback(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    original_file(uploaded).unlink()

    worker.drain()

    assert uploaded.job.wait_reason == "WAITING_FOR_UPLOAD"


# The twelve codes of MVP context §7


def test_a_failing_stage_is_retried_three_times_and_then_buried(ana: Person, settings: Any) -> None:
    settings.EMBEDDER = "testing.personas.BrokenEmbedder"
    uploaded = ana.ingest(PDF)
    job = uploaded.job
    assert (job.state, job.retry_count, job.last_error["code"]) == ("retryable", 1, "EMBEDDER_AWAY")  # type: ignore[index]
    assert Document.objects.get().processing_status == "embedding_queued"

    run_all_jobs(4)

    assert uploaded.failure == "EMBEDDER_AWAY"
    assert codes(uploaded).count("RETRY_SCHEDULED") == 3
    assert codes(uploaded).count("DLQ_MOVED") == 1
    assert Document.objects.get().processing_status == "failed_embedding"
    events = Event.objects.filter(code__in=["RETRY_SCHEDULED", "DLQ_MOVED"]).values_list("type", "severity").distinct()
    assert set(events) == {("retry", "warn"), ("error", "error")}


def test_each_of_the_twelve_codes_occurs_in_a_test_here() -> None:
    source = Path(__file__).read_text() + (Path(__file__).parents[2] / "documents/tests/test_uploads.py").read_text()

    assert len(EVENT_CODES) == 12
    assert [code for code in EVENT_CODES if f'"{code}"' not in source] == []


def test_the_good_codes_come_in_order_and_once(ana: Person) -> None:
    uploaded = ana.ingest(PDF)

    assert [code for code in codes(uploaded) if code in EVENT_CODES] == [
        "UPLOAD_ACCEPTED", "PARSE_REQUESTED", "PARSE_STORED", "CHUNK_BUFFERED", "CHUNK_COMMITTED",
        "EMBED_BUFFERED", "EMBED_COMMITTED",
    ]  # fmt: skip
    assert codes(uploaded)[-1] == "FINALIZED"
    assert Event.objects.values("correlation_id").distinct().count() == 1


def test_a_changed_parse_is_reported_and_a_retry_parses_it_anew(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim = claim_at_stage("parsed")
    sha = Document.objects.get().parsed_sha256
    parsed_file(uploaded).write_text("# Another plan\n")

    run_stage(claim)

    assert uploaded.failure == "PARSE_HASH_MISMATCH"
    event = Event.objects.get(code="PARSE_HASH_MISMATCH")
    assert (event.type, event.severity) == ("error", "error")
    retried = ana.post(f"/jobs/{uploaded.document_id}/retry").json()
    assert retried["stage"] == "parsing"
    worker.drain()
    assert uploaded.job.state == "done"
    assert Document.objects.get().parsed_sha256 == sha
    assert codes(uploaded).count("PARSE_STORED") == 2


@pytest.mark.django_db(transaction=True)
def test_a_slow_index_is_recorded_and_fails_no_document(ana: Person, settings: Any) -> None:
    settings.INDEX_PROBE_SECONDS = 0.05
    uploaded = ana.upload(PDF)
    claim = claim_at_stage("embedded")
    other = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        other.set_autocommit(False)
        other.cursor().execute("LOCK TABLE document_chunks IN ACCESS EXCLUSIVE MODE")
        run_stage(claim)
    finally:
        other.rollback()
        other.close()

    assert uploaded.job.state == "done"
    assert Event.objects.get(code="EMBED_INDEX_TIMEOUT").severity == "warn"


# Dying and going on


def test_vectors_that_were_kept_before_a_crash_are_not_computed_again(ana: Person, settings: Any) -> None:
    settings.EMBED_BATCH = 2
    settings.EMBEDDER = "testing.personas.FailingEmbedder"
    embedder = failing(after=2)
    uploaded = ana.upload(PDF)

    worker.drain()
    job = uploaded.job
    assert (job.stage, job.state, VectorBuffer.objects.count()) == ("embedding", "retryable", 4)
    assert job.progress["embeds_done"] == 4
    assert 70 < job.total_pct < 95
    run_all_jobs(1)

    assert uploaded.job.state == "done"
    total = DocumentChunk.objects.count()
    assert sorted(embedder.seen) == sorted(DocumentChunk.objects.values_list("text", flat=True))
    assert len(embedder.seen) == total


def failing(after: int) -> Any:
    from embeddings.embedders import registry  # noqa: PLC0415
    from testing.personas import FailingEmbedder  # noqa: PLC0415

    registry.get_embedder.cache_clear()
    embedder = registry.get_embedder("testing.personas.FailingEmbedder")
    assert isinstance(embedder, FailingEmbedder)
    embedder.calls_until_failure = after
    return embedder


@pytest.mark.parametrize("stage", [stage for stage in Stage.values if stage != "queued"])
def test_a_job_completes_after_its_worker_dies_at_a_stage(stage: str, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage(stage)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = clock_timestamp() - interval '1 second'")

    run_all_jobs(1)

    job = uploaded.job
    assert (job.state, job.progress["embeds_done"]) == ("done", DocumentChunk.objects.count())
    assert codes(uploaded).count("LEASE_EXPIRED") == 1


@pytest.mark.parametrize("stage", [stage for stage in Stage.values if stage != "queued"])
def test_a_stage_run_twice_writes_the_same_rows(stage: str, ana: Person) -> None:
    """Each handler twice: the second finds the first's rows, and the end is the same."""
    uploaded = ana.upload(PDF)
    claim = claim_at_stage(stage)
    with transaction.atomic():  # the first run is lost with its commit
        run_stage(claim)
        transaction.set_rollback(True)
    claim.job.refresh_from_db()

    run_stage(claim)
    if uploaded.job.state == "working":
        with connection.cursor() as cursor:
            cursor.execute("UPDATE upload_jobs SET lease_until = clock_timestamp() - interval '1 second'")
    run_all_jobs(1)

    assert uploaded.job.state == "done"
    assert DocumentChunk.objects.filter(embedding=None).count() == 0


# Deleting


TABLES = ("documents", "upload_jobs", "events", "document_chunk_buffer", "document_chunks", "document_vector_buffer")


def rows_left() -> dict[str, int]:
    found = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"SELECT count(*) FROM {table}")
            found[table] = cursor.fetchone()[0]
    return {table: count for table, count in found.items() if count}


def objects_left() -> list[str]:
    found: Iterator[str] = (str(p) for p in Path(settings.STORAGE_ROOT).rglob("*") if p.is_file())
    return list(found)


@pytest.mark.parametrize("run", range(size(1, full=200)))
@pytest.mark.parametrize("stage", Stage.values)
def test_deletion_at_any_stage_leaves_nothing_and_refuses_late_writes(stage: str, run: int, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim = claim_at_stage(stage)

    assert ana.delete(f"/documents/{uploaded.document_id}").status_code == 204

    assert (rows_left(), objects_left()) == ({}, [])
    with pytest.raises((claims.ClaimLost, Document.DoesNotExist)):
        run_stage(claim)
    assert (rows_left(), objects_left()) == ({}, [])
    for path in (f"/documents/{uploaded.document_id}", f"/jobs/{uploaded.document_id}", f"/job/{uploaded.job_id}"):
        assert ana.get(path).status_code == 404
    assert ana.delete(f"/documents/{uploaded.document_id}").status_code == 404


def test_deleted_while_a_worker_parses_no_object_comes_back(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    from documents import periodic  # noqa: PLC0415
    from documents.parsers import pdf_parser  # noqa: PLC0415

    uploaded = ana.upload(PDF)
    claim = claim_at_stage("parsing")
    claim.job.document  # noqa: B018  # the worker has read it
    parse = pdf_parser.parse_pdf

    def meanwhile(*args: Any, **kwargs: Any) -> pdf_parser.ParsedPdf:
        pages = parse(*args, **kwargs)
        assert ana.delete(f"/documents/{uploaded.document_id}").status_code == 204
        return pages

    monkeypatch.setattr(pdf_parser, "parse_pdf", meanwhile)
    with pytest.raises(claims.ClaimLost):
        run_stage(claim)

    assert (rows_left(), objects_left()) == ({}, [])
    # Had it been written in the one moment that is left, the sweep would find it.
    path = Path(settings.STORAGE_ROOT, "parsed", str(ana.id), f"{uploaded.document_id}.md")
    path.parent.mkdir(parents=True)
    path.write_text("late")
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(drop_after) > clock_timestamp() + interval '660 seconds' FROM object_deletions")
        assert cursor.fetchone() == (True,), "the longest parse must end before the removal is forgotten"
        cursor.execute("UPDATE object_deletions SET drop_after = clock_timestamp() - interval '1 second'")
    periodic.delete_removed_objects()
    assert objects_left() == []


def test_deleted_after_the_end_and_from_the_dead_letters(ana: Person) -> None:
    for content in (PDF, b"no PDF"):
        uploaded = ana.ingest(content)
        assert ana.delete(f"/documents/{uploaded.document_id}").status_code == 204
        assert (rows_left(), objects_left()) == ({}, [])


def test_a_file_uploaded_after_deletion_survives_the_cleanup(ana: Person) -> None:
    from documents import periodic  # noqa: PLC0415

    first = ana.ingest(PDF)
    ana.delete(f"/documents/{first.document_id}")

    second = ana.ingest(PDF)

    assert second.document_id == first.document_id
    assert second.job_id != first.job_id
    with connection.cursor() as cursor:
        cursor.execute("UPDATE object_deletions SET drop_after = clock_timestamp() - interval '1 second'")
    periodic.delete_removed_objects()
    assert second.job.state == "done"
    assert original_file(second).exists()
    assert parsed_file(second).exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM object_deletions")
        assert cursor.fetchone() == (0,)


def test_deleting_one_document_touches_no_other(ana: Person, ben: Person) -> None:
    kept, bens, gone = ana.ingest(plan_pdf("drugs")), ben.ingest(PDF), ana.ingest(PDF)

    ana.delete(f"/documents/{gone.document_id}")

    assert set(Document.objects.values_list("pk", flat=True)) == {kept.document_id, bens.document_id}
    assert len(objects_left()) == 4
    assert bens.job.state == kept.job.state == "done"


def test_storage_paths_are_the_canonical_ones(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    bucket, name = buckets.locate(Document.objects.get().raw_path)

    assert bucket.exists(name)
    assert original_file(uploaded).read_bytes() == PDF
