"""A campaign's rechunking: other passages in the place of the old, at once, from the stored parse."""

from collections import Counter
from typing import Any

import pytest

from documents.models import Document
from embeddings import buffer_cleanup
from embeddings.models import ChunkBuffer, DocumentChunk, VectorBuffer
from embeddings.reindexing.tenant_workflow import abandon_new_chunks
from embeddings.tests.campaign_helpers import (
    ANOTHER_CUT,
    PDF,
    chunkers_in_use,
    kill_worker_at,
    live_rows,
    rechunk,
    recording_embedder,
    reload_job,
    violations,
)
from jobs import services, worker
from jobs.models import UploadJob
from testing.personas import FailingEmbedder, Person, Upload, claim_at_stage, run_all_jobs, run_stages

pytestmark = pytest.mark.django_db


@pytest.fixture
def target(settings: Any) -> FailingEmbedder:
    """Return the model to move to."""
    return recording_embedder(settings)


@pytest.fixture
def uploaded(ana: Person, settings: Any) -> Upload:
    settings.EMBEDDER = "local"
    return ana.ingest(PDF)


def count(rows: list[Any]) -> int:
    return sum(len(row) == 5 for row in rows)


def chunks_shown(person: Person, uploaded: Upload) -> list[Any]:
    chunks: list[Any] = person.get(f"/documents/{uploaded.document_id}/chunks", page_size=100).json()["results"]
    return chunks


def test_rechunk_replaces_chunks_at_once_without_parsing(uploaded: Upload, ana: Person) -> None:
    before, parse = live_rows(), Document.objects.values("parsed_sha256", "parsed_path", "updated_at").get()
    job = rechunk(uploaded)
    seen = []

    for claim in run_stages():
        seen.append(claim.job.stage)
        if claim.job.stage != "embedded":
            assert (live_rows(), violations()) == (before, [])
            assert {chunk["chunk_id"] for chunk in chunks_shown(ana, uploaded)} == {
                str(row[0]) for row in before[: count(before)]
            }

    assert seen == [
        "parse_validated", "chunking", "chunks_buffered", "chunked", "embedding", "embeddings_buffered", "embedded",
    ]  # fmt: skip
    assert reload_job(job).state == "done"
    assert chunkers_in_use() == {ANOTHER_CUT}
    assert not DocumentChunk.objects.filter(embedding=None).exists()
    after = Document.objects.get()
    assert (after.chunks_version, after.parsed_sha256) == (ANOTHER_CUT, parse["parsed_sha256"])
    assert (ChunkBuffer.objects.count(), VectorBuffer.objects.count(), violations()) == (0, 0, [])
    assert not UploadJob.objects.filter(events__code__startswith="PARSE_", pk=job.pk).exists()


@pytest.mark.parametrize(
    "place",
    ["chunking:before-commit", "chunks_buffered:before-commit", "chunks_buffered:after-commit", "embedding:answered",
     "embeddings_buffered:before-commit", "embeddings_buffered:after-commit", "embedded:begin"],
)  # fmt: skip
def test_rechunk_killed_anywhere_is_atomic_and_finishes(
    place: str, uploaded: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, job = live_rows(), rechunk(uploaded)

    assert kill_worker_at(monkeypatch, place)
    is_new = place in {"embeddings_buffered:after-commit", "embedded:begin"}
    assert (live_rows() == before) is not is_new
    assert (chunkers_in_use() == {ANOTHER_CUT}) is is_new
    run_all_jobs(1)

    assert (reload_job(job).state, chunkers_in_use(), violations()) == ("done", {ANOTHER_CUT}, [])


def test_dead_rechunk_keeps_old_chunks_and_its_retry_buys_the_rest(ana: Person, target: FailingEmbedder) -> None:
    uploaded = ana.ingest(PDF)
    before, job = live_rows(), rechunk(uploaded)
    target.seen.clear()
    target.calls_until_failure = 1
    worker.drain()
    services.cancel(reload_job(job), by="test")

    buffer_cleanup.empty_buffers()

    assert (live_rows(), violations()) == (before, [])
    bought = len(target.seen)
    assert VectorBuffer.objects.count() == bought > 0
    services.retry(reload_job(job), by="test")
    worker.drain()
    assert (reload_job(job).state, chunkers_in_use(), violations()) == ("done", {ANOTHER_CUT}, [])
    assert set(Counter(target.seen).values()) == {1}


def test_abandoned_rechunk_leaves_nothing_behind(uploaded: Upload) -> None:
    before, job = live_rows(), rechunk(uploaded)
    claim_at_stage("embeddings_buffered")
    assert not abandon_new_chunks(uploaded.document_id)
    services.cancel(reload_job(job), by="test")

    assert abandon_new_chunks(uploaded.document_id)

    assert (live_rows(), chunkers_in_use(), VectorBuffer.objects.count()) == (before, {"markdown-simple@3"}, 0)
    assert violations() == []


def test_rechunk_of_a_changed_parse_fails_and_changes_nothing(uploaded: Upload) -> None:
    before = live_rows()
    Document.objects.update(parsed_sha256="other")

    job = rechunk(uploaded)
    worker.drain()

    assert (reload_job(job).last_error or {})["code"] == "PARSE_HASH_MISMATCH"
    assert live_rows() == before
