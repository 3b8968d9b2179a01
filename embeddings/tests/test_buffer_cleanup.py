"""What a job that ended has paid for: it waits for the retry, is found by nobody, and is not bought again."""

from collections import Counter
from typing import Any

import pytest
from django.db import connection

from accessa.integrity.violations import find_violations
from embeddings import buffer_cleanup
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, ChunkBuffer, DocumentChunk, DocumentTerm, ShadowVector, VectorBuffer
from embeddings.search.hybrid_search import search
from embeddings.tests.campaign_helpers import FAILING, LOCAL, PDF, recording_embedder, reembed, reload_job
from jobs import services, worker
from testing.personas import FailingEmbedder, Person, Upload

TARGET = EmbeddingModel(FailingEmbedder.model, FailingEmbedder.version)
pytestmark = pytest.mark.django_db


@pytest.fixture
def target(settings: Any) -> FailingEmbedder:
    return recording_embedder(settings)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def left() -> list[Any]:
    """Return the documents that the next periodic task would clean up."""
    with connection.cursor() as cursor:
        cursor.execute(buffer_cleanup.LEFTOVERS)
        return list(cursor.fetchall())


def dead_halfway(person: Person, target: FailingEmbedder) -> Upload:
    """Return a new document whose job died long ago, with some of its vectors bought."""
    target.calls_until_failure = 1
    uploaded = person.upload(PDF)
    worker.drain()
    services.cancel(uploaded.job, by="test")
    sql("UPDATE upload_jobs SET finished_at = finished_at - interval '1 hour'")
    return uploaded


def test_half_embedded_document_is_not_found_and_its_retry_buys_the_rest(ana: Person, target: FailingEmbedder) -> None:
    uploaded = dead_halfway(ana, target)
    bought = len(target.seen)

    buffer_cleanup.empty_buffers()

    assert VectorBuffer.objects.count() == bought > 0
    assert not ChunkBuffer.objects.exists()
    assert (left(), list(find_violations(deep=True))) == ([], [])
    assert not DocumentTerm.objects.exists()
    assert not ActiveModel.objects.exists()
    text = DocumentChunk.objects.earliest("chunk_ord").text
    assert [search(user_id=ana.id, query=text, mode=mode) for mode in ("vector", "text", "hybrid")] == [[], [], []]
    query_count = len(target.seen) - bought  # by these searches
    services.retry(uploaded.job, by="test")
    worker.drain()
    assert uploaded.job.state == "done"
    assert set(Counter(target.seen[:bought] + target.seen[bought + query_count :]).values()) == {1}
    assert not DocumentChunk.objects.filter(embedding=None).exists()
    assert not VectorBuffer.objects.exists()
    assert list(find_violations(deep=True)) == []


def test_buffered_vectors_are_deleted_with_their_document(ana: Person, target: FailingEmbedder) -> None:
    uploaded = dead_halfway(ana, target)
    buffer_cleanup.empty_buffers()
    assert VectorBuffer.objects.exists()

    ana.delete(f"/documents/{uploaded.document_id}")
    worker.drain()

    assert not VectorBuffer.objects.exists()


def test_commit_keeps_vectors_that_a_campaign_bought_for_another_model(
    ana: Person, target: FailingEmbedder, settings: Any
) -> None:
    settings.EMBEDDER = "local"
    uploaded = ana.ingest(PDF)
    settings.EMBEDDER = FAILING
    target.calls_until_failure = 1
    job = reembed(uploaded, TARGET)
    worker.drain()
    services.cancel(reload_job(job), by="test")
    bought = len(target.seen)
    sql("UPDATE upload_jobs SET state = 'queued', stage = 'embeddings_buffered', finished_at = NULL"
        " WHERE campaign_id IS NULL")  # fmt: skip
    sql("DELETE FROM document_terms")  # or the job would only see that its work is done

    worker.drain()

    assert uploaded.job.state == "done"
    assert VectorBuffer.objects.filter(embed_model=TARGET.model).count() == bought > 0
    buffer_cleanup.empty_buffers()
    assert (ShadowVector.objects.count(), VectorBuffer.objects.count()) == (bought, 0)
    assert set(DocumentChunk.objects.values_list("embed_model", flat=True)) == {LOCAL.model}
