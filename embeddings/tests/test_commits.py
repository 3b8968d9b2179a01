"""Chunks and vectors in the database: what a new cut keeps, what it drops, and what each proof refuses."""

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction

from accessa.integrity.violations import find_violations
from accessa.pipelines import INSURANCE
from documents.locks import lock_document
from documents.markdown.table_of_contents import find_contents
from documents.models import Document
from embeddings import buffer_cleanup, stage_invariants
from embeddings.chunking.chunkers import split_markdown
from embeddings.embedders import registry
from embeddings.models import ChunkBuffer, DocumentChunk, VectorBuffer
from jobs import worker
from jobs.choices import Stage
from jobs.models import UploadJob
from testing.cluster import wait_until
from testing.concurrency import run_concurrently
from testing.personas import Person, Upload, claim_at_stage, plan_pdf, run_all_jobs, run_stages

PDF = plan_pdf("hospital care", "drugs", "dental care")
pytestmark = pytest.mark.django_db


def sql(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def parsed_file(uploaded: Upload) -> Path:
    document = Document.objects.get(pk=uploaded.document_id)
    return Path(settings.STORAGE_ROOT, "parsed", str(document.user_id), f"{document.pk}.md")


def parse_again(uploaded: Upload, text: str) -> None:
    """Make the document as an older parser would have left it, lose that parse, and try the job again."""
    path = parsed_file(uploaded)
    content = text.encode()
    sha256 = hashlib.sha256(content).hexdigest()
    path.write_bytes(content)
    Document.objects.update(parsed_sha256=sha256, parser_version="old")
    UploadJob.objects.update(parsed_sha256=sha256)


def dead_at(stage: str) -> None:
    sql(
        "UPDATE upload_jobs SET state = 'deadletter', stage = %s, finished_at = now(), claim_token = NULL,"
        " lease_until = NULL, slot = NULL, last_error = %s",
        stage, '{"code": "X", "detail": "x"}',
    )  # fmt: skip


# Cutting and embedding again


@pytest.mark.parametrize("stage", ["parsed", "chunked", "embedding", "embedded"])
def test_only_chunks_with_changed_text_lose_their_vectors(stage: str, ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    good = {chunk.pk: (chunk.chunk_sha, chunk.text) for chunk in DocumentChunk.objects.all()}
    stale = DocumentChunk.objects.get(chunk_ord=1)
    old_text = "What an older parser made of it."
    sql(
        "UPDATE document_chunks SET text = %s, chunk_sha = encode(sha256(%s::bytea), 'hex') WHERE chunk_id = %s",
        old_text, old_text.encode(), stale.pk,
    )  # fmt: skip
    timestamps = dict(DocumentChunk.objects.exclude(pk=stale.pk).values_list("pk", "embed_updated_at"))
    dead_at(stage)
    parse_again(uploaded, "An older text.\n")
    parsed_file(uploaded).unlink()  # and that parse is lost

    assert ana.post(f"/jobs/{uploaded.document_id}/retry").json()["stage"] == "parsing"
    seen_without_vector = 0
    for claim in run_stages():
        if claim.job.stage == "chunked":
            seen_without_vector = DocumentChunk.objects.filter(embedding=None).count()

    assert uploaded.job.state == "done", uploaded.job.last_error
    assert seen_without_vector == 1
    assert {chunk.pk: (chunk.chunk_sha, chunk.text) for chunk in DocumentChunk.objects.all()} == good
    after = dict(DocumentChunk.objects.values_list("pk", "embed_updated_at"))
    assert {pk: after[pk] for pk in timestamps} == timestamps
    assert after[stale.pk] != stale.embed_updated_at


def test_surplus_chunks_are_deleted_with_their_vectors(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    total = DocumentChunk.objects.count()
    sql("""
        INSERT INTO document_chunks (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord,
            chunk_sha, text, meta, embed_model, embed_version, vector_dim, vector_sha, embed_updated_at, embedding)
        SELECT gen_random_uuid(), user_id, document_id, chunker_name, chunker_version, chunk_ord + 100, chunk_sha,
            text, meta, embed_model, embed_version, vector_dim, vector_sha, embed_updated_at, embedding
        FROM document_chunks""")
    dead_at("chunking")

    ana.post(f"/jobs/{uploaded.document_id}/retry")
    worker.drain()

    assert uploaded.job.state == "done"
    assert DocumentChunk.objects.count() == total


def test_buffer_of_another_parse_is_not_committed(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("chunks_buffered")
    sql("UPDATE document_chunk_buffer SET text = 'old', chunk_sha = encode(sha256('old'::bytea), 'hex')")
    dead_at("chunks_buffered")
    parse_again(uploaded, "An older text.\n")
    parsed_file(uploaded).unlink()

    ana.post(f"/jobs/{uploaded.document_id}/retry")
    worker.drain()

    assert uploaded.job.state == "done"
    assert not DocumentChunk.objects.filter(text="old").exists()


def test_a_retry_after_everything_was_bought_buys_nothing_again(ana: Person, settings: Any) -> None:
    uploaded = ana.ingest(PDF)
    dead_at("embedded")
    settings.EMBEDDER = "local"
    before = list(DocumentChunk.objects.order_by("pk").values_list("pk", "embed_updated_at"))

    ana.post(f"/jobs/{uploaded.document_id}/retry")
    worker.drain()

    assert uploaded.job.state == "done"
    assert list(DocumentChunk.objects.order_by("pk").values_list("pk", "embed_updated_at")) == before


def test_another_model_between_plan_and_embedding_does_not_matter(ana: Person, settings: Any) -> None:
    uploaded = ana.upload(PDF)
    planned = claim_at_stage("embedding").job.embed_model
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    sql("UPDATE upload_jobs SET lease_until = clock_timestamp() - interval '1 second'")

    run_all_jobs(1)

    assert uploaded.job.state == "done"
    assert {chunk.embed_model for chunk in DocumentChunk.objects.all()} == {planned}


def test_vectors_of_another_width_are_never_stored(ana: Person, settings: Any) -> None:
    settings.EMBEDDER = "testing.personas.NarrowEmbedder"

    uploaded = ana.ingest(PDF)
    run_all_jobs(5)

    assert uploaded.failure == "internal"
    assert not VectorBuffer.objects.exists()
    assert not DocumentChunk.objects.exclude(embedding=None).exists()
    assert uploaded.job.traceback


def test_changed_buffered_chunk_is_not_committed_and_the_retry_splits_again(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("chunks_buffered").move("release")
    sql("UPDATE document_chunk_buffer SET text = 'altered' WHERE chunk_ord = 0")

    run_all_jobs(5)

    assert uploaded.failure == "CHUNKS_NOT_SOUND"
    assert not DocumentChunk.objects.exists()
    ana.post(f"/jobs/{uploaded.document_id}/retry")
    worker.drain()
    assert uploaded.job.state == "done"
    assert not DocumentChunk.objects.filter(text="altered").exists()


MISCOUNTED = {
    "UPDATE document_chunk_buffer SET meta = jsonb_set(meta, '{tokens}', '7') WHERE chunk_ord = 1": (
        "A chunk has another number of tokens than is recorded."
    ),
    "UPDATE document_chunk_buffer SET meta = jsonb_set(meta, '{start}', '0') WHERE chunk_ord = 1": (
        "A chunk's text does not stand at its offsets."
    ),
    "DELETE FROM document_chunk_buffer WHERE chunk_ord = 1": "Text between two chunks is in no chunk.",
    "DELETE FROM document_chunk_buffer WHERE chunk_ord = (SELECT max(chunk_ord) FROM document_chunk_buffer)": (
        "Text after the last chunk is in no chunk."
    ),
}


@pytest.mark.parametrize("change", MISCOUNTED, ids=MISCOUNTED.values())
def test_buffered_chunks_are_counted_again_in_the_parsed_text(ana: Person, change: str) -> None:
    uploaded = ana.upload(PDF)
    claim = claim_at_stage("chunks_buffered")
    assert not stage_invariants.chunks_buffered([claim.job.pk])
    sql(change)

    claim.settle(worker.run_stage(claim))

    error = uploaded.job.last_error or {}
    assert (error["code"], error["detail"]) == ("CHUNKS_NOT_SOUND", MISCOUNTED[change])
    assert not DocumentChunk.objects.exists()


@pytest.mark.parametrize("swept", [False, True])
def test_changed_buffered_vector_is_never_committed(swept: bool, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("embeddings_buffered").move("release")
    sql(
        "UPDATE document_vector_buffer SET embedding = embedding - embedding - embedding"
        " WHERE chunk_id = (SELECT chunk_id FROM document_chunks WHERE chunk_ord = 0)"
    )
    if swept:
        dead_at("embeddings_buffered")
        buffer_cleanup.empty_buffers()
    else:
        run_all_jobs(5)
        assert uploaded.failure == "VECTORS_NOT_SOUND"
    assert DocumentChunk.objects.get(chunk_ord=0).embedding is None

    ana.post(f"/jobs/{uploaded.document_id}/retry")
    worker.drain()

    assert uploaded.job.state == "done"
    chunk = DocumentChunk.objects.get(chunk_ord=0)
    (expected,) = registry.get_embedder("local").embed([chunk.text])
    assert list(chunk.embedding) == pytest.approx(list(expected), abs=1e-6)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_vectors_are_committed_under_the_documents_advisory_lock(ana: Person) -> None:
    ana.upload(PDF)
    claim, is_held = claim_at_stage("embeddings_buffered"), threading.Event()

    def hold_lock() -> int:
        with transaction.atomic():
            lock_document(claim.job.document_id, "vectors")
            is_held.set()
            wait_until(is_advisory_lock_waited_for, seconds=30)
            return DocumentChunk.objects.exclude(embedding=None).count()

    def commit() -> int:
        is_held.wait(30)
        worker.run_stage(claim)
        return DocumentChunk.objects.filter(embedding=None).count()

    assert run_concurrently(hold_lock, commit) == [0, 0]


def is_advisory_lock_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return cursor.fetchone() is not None


def test_when_every_vector_is_there_already_nothing_is_embedded(ana: Person, settings: Any) -> None:
    """The job was set back by hand: its vectors wait in the buffer under another sha."""
    uploaded = ana.upload(PDF)
    claim_at_stage("embeddings_buffered").move("release")
    sql("UPDATE upload_jobs SET stage = 'embedding'")
    sql("UPDATE document_vector_buffer SET vector_sha = 'x' WHERE vector_sha IN"
        " (SELECT min(vector_sha) FROM document_vector_buffer)")  # fmt: skip

    worker.drain()

    assert (uploaded.job.stage, uploaded.job.state) == ("embeddings_buffered", "retryable")


def test_job_uses_a_parse_that_another_job_stored(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    dead_at("parsing")
    sql("UPDATE upload_jobs SET parsed_sha256 = NULL, parsed_path = NULL")

    ana.post(f"/jobs/{uploaded.document_id}/retry")
    worker.drain()

    job = uploaded.job
    assert (job.state, job.parsed_sha256) == ("done", Document.objects.get().parsed_sha256)
    assert job.events.filter(code="PARSE_REUSED").count() == 1
    assert job.events.filter(code="PARSE_STORED").count() == 1


def test_pages_that_do_not_fit_the_text_are_refused(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("parsed").move("release")
    sql("UPDATE documents SET page_starts = page_starts || 1000000")

    worker.drain()

    assert uploaded.failure == "PARSE_MALFORMED"


def test_irregular_structure_is_counted_and_fails_no_document(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim = claim_at_stage("parsed")
    markdown = b"# Plan\n\n### Costs\n\n| a | b |\n|---|---|\n| 1 |\n"
    parsed_file(uploaded).write_bytes(markdown)
    starts = [0] + [len(markdown)] * ((uploaded.job.document.pages or 1) - 1)
    Document.objects.update(parsed_sha256=hashlib.sha256(markdown).hexdigest(), page_starts=starts)
    claim.job.document.refresh_from_db()

    claim.settle(worker.run_stage(claim))

    answer = ana.get(f"/jobs/{uploaded.document_id}").json()
    assert (answer["stage"], answer["parse_warnings"]) == ("parse_validated", {"heading_jumps": 1, "ragged_tables": 1})
    event = uploaded.job.events.filter(payload__heading_jumps=1, payload__ragged_tables=1).get()
    assert (event.code, event.payload["from"]) == ("STAGE_DONE", "parsed")


# Buffers of jobs that ended


@pytest.mark.parametrize("stage", ["chunks_buffered", "embeddings_buffered"])
def test_buffers_of_dead_letters_are_emptied_and_the_retry_succeeds(stage: str, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage(stage)
    dead_at(stage)
    assert ChunkBuffer.objects.exists()

    buffer_cleanup.empty_buffers()

    assert not ChunkBuffer.objects.exists()
    assert not DocumentChunk.objects.exclude(embedding=None).exists()
    assert ana.post(f"/jobs/{uploaded.document_id}/retry").status_code == 202
    worker.drain()
    assert uploaded.job.state == "done"
    assert not VectorBuffer.objects.exists()


def test_buffers_of_active_jobs_are_kept(ana: Person, ben: Person) -> None:
    ana.upload(PDF)
    claim_at_stage("embeddings_buffered")
    count = ChunkBuffer.objects.count(), VectorBuffer.objects.count()

    buffer_cleanup.empty_buffers()

    assert (ChunkBuffer.objects.count(), VectorBuffer.objects.count()) == count


# What the audit says of passages


def test_deep_integrity_check_finds_a_changed_vector(ana: Person) -> None:
    ana.ingest(PDF)
    sql("UPDATE document_chunks SET embedding = embedding - embedding - embedding WHERE chunk_ord = 1")

    assert list(find_violations()) == []
    changed = DocumentChunk.objects.get(chunk_ord=1)
    assert [(violation.kind, violation.subject) for violation in find_violations(deep=True)] == [
        ("vector", str(changed.pk))
    ]


def test_searchable_chunks_of_another_chunker_violate_an_invariant(ana: Person) -> None:
    ana.ingest(PDF)
    sql(
        "INSERT INTO document_chunks (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord,"
        " chunk_sha, text, embed_model, embed_version, vector_dim, vector_sha, embed_updated_at, embedding)"
        " SELECT gen_random_uuid(), user_id, document_id, chunker_name, '2', chunk_ord, chunk_sha, text, embed_model,"
        " embed_version, vector_dim, vector_sha, embed_updated_at, embedding FROM document_chunks"
    )

    assert {"passage", "job"} <= {violation.kind for violation in find_violations()}


# Proofs: each holds on the way, and fails when what it promises is broken

BREAKS: dict[str, list[tuple[str, str]]] = {
    "job_validated": [
        ("UPDATE documents SET stored_at = NULL", "has not been received"),
        ("UPDATE documents SET pages = 0", "has not been received"),
        ("UPDATE documents SET bytes_len = bytes_len + 1", "another length"),
        ("UPDATE documents SET raw_path = raw_path || 'x'", "original file is missing"),
        ("UPDATE documents SET user_id = gen_random_uuid()", "different tenants"),
    ],
    "parsed": [
        ("UPDATE documents SET parsed_sha256 = NULL", "No parse"),
        ("UPDATE documents SET parsed_path = NULL", "No parse"),
        ("UPDATE documents SET page_starts = NULL", "No parse"),
        ("UPDATE upload_jobs SET parsed_sha256 = 'other'", "No parse"),
        ("UPDATE documents SET parsed_sha256 = 'x'; UPDATE upload_jobs SET parsed_sha256 = 'x'", "not the one"),
        ("UPDATE documents SET parsed_path = parsed_path || 'x';"
         " UPDATE upload_jobs SET parsed_path = parsed_path || 'x'", "parsed file is missing"),
    ],
    "chunking": [("UPDATE upload_jobs SET chunks_version = ''", "No chunker")],
    "chunks_buffered": [
        ("DELETE FROM document_chunk_buffer WHERE chunk_ord = 1", "more or fewer"),
        ("UPDATE document_chunk_buffer SET chunk_ord = 99 WHERE chunk_ord = 1", "without a gap"),
        ("UPDATE document_chunk_buffer SET text = text || '.' WHERE chunk_ord = 1", "does not have its sha"),
        ("UPDATE upload_jobs SET progress = '{}'", "not recorded"),
    ],
    "chunked": [
        ("DELETE FROM document_chunks WHERE chunk_ord = 1", "more or fewer"),
        ("UPDATE document_chunks SET chunk_ord = 99 WHERE chunk_ord = 1", "without a gap"),
        ("UPDATE document_chunks SET text = text || '.' WHERE chunk_ord = 1", "does not have its sha"),
        ("UPDATE document_chunks SET chunk_sha = 'x' WHERE chunk_ord = 1", "does not have its sha"),
        ("UPDATE document_chunk_buffer SET chunk_sha = 'x' WHERE chunk_ord = 1", "wait in the buffer"),
    ],
    "embedding": [("UPDATE upload_jobs SET embed_model = NULL", "No model")],
    "embeddings_buffered": [
        ("DELETE FROM document_vector_buffer WHERE ctid = (SELECT min(ctid) FROM document_vector_buffer)", "no vector"),
        ("UPDATE document_vector_buffer SET embed_model = 'other'", "no vector"),
        ("UPDATE document_vector_buffer SET embed_version = '2'", "no vector"),
        ("UPDATE document_vector_buffer SET embedding = -1 * embedding", "does not have its sha"),
        ("UPDATE document_vector_buffer SET vector_sha = 'x'", "does not have its sha"),
    ],
    "embedded": [
        ("UPDATE document_chunks SET embed_model = 'other' WHERE chunk_ord = 1", "no vector of the active model"),
        ("UPDATE document_chunks SET embed_version = '2' WHERE chunk_ord = 1", "no vector of the active model"),
        ("UPDATE active_models SET embed_model = 'other'", "no vector of the active model"),
        ("DELETE FROM active_models", "no vector of the active model"),
        ("UPDATE documents SET chunks_version = 'other@1'", "another chunker"),
        ("DELETE FROM document_terms WHERE term = ''", "BM25 postings"),
        ("UPDATE document_terms SET postings = substr(postings, 7) WHERE term = ''", "BM25 postings"),
        ("UPDATE document_chunks SET embedding = array_fill(0, ARRAY[1536])::vector WHERE chunk_ord = 1", "no length"),
        ("UPDATE document_chunks SET embed_model = NULL, embed_version = NULL, vector_dim = NULL, vector_sha = NULL,"
         " embedding = NULL, embed_updated_at = NULL WHERE chunk_ord = 1", "no vector of the active model"),
        ("DELETE FROM document_chunks WHERE chunk_ord = 1", "more or fewer"),
    ],
}  # fmt: skip


def without_negation(statement: str) -> str:
    """Negate a vector; pgvector has no minus, so it is subtracted twice."""
    return statement.replace("-1 * embedding", "embedding - embedding - embedding")


@pytest.mark.parametrize("stage", BREAKS)
def test_invariant_names_what_is_broken(stage: str, ana: Person) -> None:
    ana.upload(PDF)
    job_id = claim_at_stage(stage).job.pk
    proof = INSURANCE.step(stage).invariant
    assert proof([job_id]) == {}

    for statement, reason in BREAKS[stage]:
        sql("SAVEPOINT whole")
        sql(without_negation(statement).replace("%", "%%"))
        broken = proof([job_id])
        sql("ROLLBACK TO SAVEPOINT whole")
        assert list(broken) == [job_id], statement
        assert reason in broken[job_id], statement


def test_invariants_hold_at_their_stage_and_later_ones(ana: Person) -> None:
    ana.upload(PDF)

    for claim in run_stages():
        assert INSURANCE.step(claim.job.stage).invariant([claim.job.pk]) == {}


def test_invariant_of_many_jobs_reports_only_the_broken(ana: Person, ben: Person) -> None:
    good, bad = ana.ingest(PDF), ben.ingest(PDF)
    sql("UPDATE document_chunks SET text = 'x' WHERE user_id = %s AND chunk_ord = 0", ben.id)

    assert set(stage_invariants.chunks_committed([good.job_id, bad.job_id])) == {bad.job_id}


@pytest.mark.parametrize("stage", [stage for stage in Stage.values if stage in BREAKS])
def test_advance_refuses_a_stage_whose_invariant_does_not_hold(stage: str, ana: Person, platform: Person) -> None:
    uploaded = ana.upload(PDF)
    before = Stage.values[Stage.values.index(stage) - 1]
    claim = claim_at_stage(before)
    claim.move("release")

    answer = platform.post(f"/jobs/{uploaded.document_id}/advance")

    if not INSURANCE.step(stage).invariant([uploaded.job_id]):
        assert answer.json()["stage"] == stage
    else:
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (409, "INVARIANT_VIOLATED", stage)
        assert uploaded.job.stage == before


@pytest.mark.parametrize("stage", ["chunks_buffered", "chunked", "embeddings_buffered", "embedded"])
def test_advance_accepts_a_stage_whose_invariant_holds(stage: str, ana: Person, platform: Person) -> None:
    """Driven to the stage, then set back by one: the work is there, so the service may move the job on."""
    uploaded = ana.upload(PDF)
    claim_at_stage(stage).move("release")
    sql("UPDATE upload_jobs SET stage = %s", Stage.values[Stage.values.index(stage) - 1])

    answer = platform.post(f"/jobs/{uploaded.document_id}/advance")

    assert (answer.status_code, answer.json()["stage"]) == (200, stage)
    worker.drain()
    assert uploaded.job.state == "done"


def test_the_gate_lets_out_tables_of_contents_alone() -> None:
    listed = "# Contents\n\n" + "".join(f"Chapter {n} ........ {n}\n\n" for n in range(1, 9))
    rows = "".join(f"| Service number {n} | ${n}.00 |\n" for n in range(150))
    text = f"Foreword.\n\n{listed}# Copays\n\n| Service | You pay |\n|---|---|\n{rows}"
    chunks = [(chunk.text, chunk.meta) for chunk in split_markdown(text, reads_tables=True)]
    contents = find_contents(text, 1)
    gap = "Text between two chunks is in no chunk."

    assert len(chunks) > 3
    assert chunks[-1][1].keys() >= {"title", "header"}
    assert stage_invariants.chunks_violation(text, contents, chunks) is None
    assert stage_invariants.chunks_violation(text, [], chunks) == gap
    assert stage_invariants.chunks_violation(text, contents, chunks[1:]) == gap
    assert stage_invariants.chunks_violation(text, contents, [chunks[0], *chunks[2:]]) == gap
    assert stage_invariants.chunks_violation(text, contents, chunks[:-1]) == "Text after the last chunk is in no chunk."
    assert (
        stage_invariants.chunks_violation(text + listed, [*contents, (len(text), len(text + listed))], chunks) is None
    )
