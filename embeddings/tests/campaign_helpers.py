"""Jobs of a campaign, started and killed: what the tests of re-embedding and rechunking share."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from accessa.integrity.violations import find_violations
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import DocumentChunk, DocumentTerm
from embeddings.reindexing import scheduler
from jobs import failpoints, worker
from jobs.models import UploadJob
from testing.personas import FailingEmbedder, Upload, plan_pdf

PDF = plan_pdf("hospital care", "drugs", "dental care")
FAILING = "testing.personas.FailingEmbedder"
LOCAL, TARGET = EmbeddingModel("wordllama-l2-supercat-256-padded", "1"), EmbeddingModel("instant", "1")
ANOTHER_CUT = "markdown-simple@2"


class Died(BaseException):
    """A worker's death: nothing after it runs."""


def reembed(uploaded: Upload, to: EmbeddingModel = TARGET) -> UploadJob:
    return scheduler.enqueue_reembed(document_id=uploaded.document_id, campaign_id=uuid4(), model=to)


def rechunk(uploaded: Upload) -> UploadJob:
    return scheduler.enqueue_rechunk(document_id=uploaded.document_id, campaign_id=uuid4(), chunker=ANOTHER_CUT)


def reparse(uploaded: Upload) -> UploadJob:
    return scheduler.enqueue_reparse(document_id=uploaded.document_id, campaign_id=uuid4())


def reload_job(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


def live_rows() -> list[Any]:
    """Return the rows that search reads."""
    chunks = DocumentChunk.objects.exclude(embedding=None).order_by("pk")
    terms = DocumentTerm.objects.order_by("term").values_list("term", "postings")
    return [*chunks.values_list("pk", "text", "embed_model", "vector_sha", "embed_updated_at"), *terms]


def chunkers_in_use() -> set[str]:
    return {
        f"{name}@{version}" for name, version in DocumentChunk.objects.values_list("chunker_name", "chunker_version")
    }


def violations() -> list[Any]:
    return [finding for finding in find_violations(deep=True) if "waits in the buffer" not in finding.reason]


def kill_worker_at(monkeypatch: pytest.MonkeyPatch, point: str) -> bool:
    """Let a worker die where it first reaches ``point``, and its lease run out; tell whether it came there."""

    def reach(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "failpoint", reach)
        try:
            worker.drain()
        except Died:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE upload_jobs SET lease_until = now() - interval '1 hour' WHERE state = 'working'")
            return True
    return False


def recording_embedder(settings: Any) -> FailingEmbedder:
    """Return the model to move to, which records the texts it embeds."""
    settings.EMBEDDER = FAILING
    settings.EMBED_BATCH = 2
    embedder: Any = registry.get_embedder(FAILING)
    embedder.seen, embedder.calls_until_failure = [], -1
    return embedder  # type: ignore[no-any-return]
