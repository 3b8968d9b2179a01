"""A campaign's re-embedding: vectors beside the live ones, where no search looks, and nothing bought twice."""

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from accounts.errors import ApiError
from embeddings import buffer_cleanup, shadow_vectors
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, DocumentChunk, DocumentTerm, ShadowVector, VectorBuffer
from embeddings.tests.campaign_helpers import (
    LOCAL,
    PDF,
    TARGET,
    kill_worker_at,
    live_rows,
    rechunk,
    recording_embedder,
    reembed,
    reload_job,
    violations,
)
from embeddings.tests.conftest import RecordingOpenAIServer
from jobs import claims, services, worker
from jobs.outcomes import Wait
from testing.personas import FailingEmbedder, Person, Upload, claim_at_stage, plan_pdf, run_all_jobs
from vendors import ledger
from vendors.models import Purchase

COLUMNS = ("chunk_id", "user_id", "document_id", "embed_version", "vector_dim", "vector_sha", "embedding")
pytestmark = pytest.mark.django_db


@pytest.fixture
def target(settings: Any) -> FailingEmbedder:
    """Return the model to move to."""
    return recording_embedder(settings)


@pytest.fixture
def uploaded(ana: Person, settings: Any) -> Upload:
    settings.EMBEDDER = "local"
    return ana.ingest(PDF)


def point(person: Person, to: EmbeddingModel) -> None:
    ActiveModel.objects.filter(pk=person.id).update(embed_model=to.model, embed_version=to.version, shadowed=True)


def test_reembedding_writes_shadow_vectors_that_search_ignores(
    uploaded: Upload, target: FailingEmbedder, ana: Person
) -> None:
    before, question = live_rows(), {"query": "hospital deductible"}
    response = ana.post("/search", question).json()
    assert shadow_vectors.uncovered_documents(ana.id, TARGET) == [uploaded.document_id]

    job = reembed(uploaded)
    worker.drain()

    texts = list(DocumentChunk.objects.order_by("chunk_ord").values_list("text", flat=True))
    assert reload_job(job).state == "done"
    assert live_rows() == before
    assert ana.post("/search", question).json() == response
    assert [
        each.chunk.text for each in ShadowVector.objects.order_by("chunk__chunk_ord").select_related("chunk")
    ] == texts
    assert Counter(target.seen) == Counter(set(texts))
    assert shadow_vectors.uncovered_documents(ana.id, TARGET) == []
    assert (VectorBuffer.objects.count(), violations()) == (0, [])


POINTS = [
    f"{stage}:{place}"
    for stage in ("chunked", "embedding", "embeddings_buffered", "embedded")
    for place in ("begin", "before-commit", "after-commit", "end")
    if (stage, place) not in {("embedded", "before-commit"), ("embedded", "after-commit")}  # it writes nothing
]


# The last answer is written down with the stage that follows.
UNSAVED = {f"embedding:{place}" for place in ("answered", "before-commit", "end")}
UNSAVED |= {"chain:middle", "chain:before-commit", "embeddings_buffered:begin", "embeddings_buffered:before-commit"}


@pytest.mark.parametrize("place", sorted({*POINTS, *UNSAVED, "chain:after-commit"}))
def test_reembedding_killed_anywhere_continues_and_buys_nothing_twice(
    place: str, uploaded: Upload, target: FailingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, job = live_rows(), reembed(uploaded)

    assert kill_worker_at(monkeypatch, place)
    bought = set(VectorBuffer.objects.values_list("chunk__text", flat=True))
    run_all_jobs(1)

    texts = set(DocumentChunk.objects.values_list("text", flat=True))
    twice = [text for text, times in Counter(target.seen).items() if times > 1]
    assert reload_job(job).state == "done"
    assert live_rows() == before
    assert ShadowVector.objects.count() == DocumentChunk.objects.count()
    assert not bought & set(twice)
    # Only an answer that was not written down yet is asked for again.
    assert len(twice) <= (2 if place in UNSAVED else 0)
    assert set(target.seen) == texts


def test_dead_reembedding_keeps_vectors_and_its_retry_buys_the_rest(uploaded: Upload, target: FailingEmbedder) -> None:
    before, job = live_rows(), reembed(uploaded)
    target.calls_until_failure = 1
    worker.drain()
    services.cancel(reload_job(job), by="test")
    call_count = len(target.seen)

    buffer_cleanup.empty_buffers()

    assert (ShadowVector.objects.count(), VectorBuffer.objects.count()) == (call_count, 0)
    services.retry(reload_job(job), by="test")
    worker.drain()
    assert reload_job(job).state == "done"
    assert set(Counter(target.seen).values()) == {1}
    assert ShadowVector.objects.count() == DocumentChunk.objects.count()
    assert (live_rows(), violations()) == (before, [])


def test_document_uploaded_during_a_campaign_is_uncovered(
    uploaded: Upload, target: FailingEmbedder, ana: Person
) -> None:
    reembed(uploaded)
    worker.drain()

    late = ana.ingest(plan_pdf("eyes"))

    assert late.job.embed_model == LOCAL.model
    assert shadow_vectors.uncovered_documents(ana.id, TARGET) == [late.document_id]


def test_settling_moves_active_vectors_and_drops_others_idempotently(
    uploaded: Upload, target: FailingEmbedder, ana: Person
) -> None:
    reembed(uploaded)
    worker.drain()
    vectors = dict(ShadowVector.objects.values_list("chunk_id", "vector_sha"))
    assert shadow_vectors.settle_shadow_vectors(ana.id, TARGET) == 0, "another model is live"
    point(ana, TARGET)
    ShadowVector.objects.bulk_create(
        [ShadowVector(**{**row, "embed_model": "older"}) for row in ShadowVector.objects.values(*COLUMNS)]
    )
    moved = []
    while done := shadow_vectors.settle_shadow_vectors(ana.id, TARGET, most=2):
        moved.append(done)

    assert sum(moved) == 2 * len(vectors)
    assert max(moved) == 2
    assert dict(DocumentChunk.objects.values_list("pk", "vector_sha")) == vectors
    assert set(DocumentChunk.objects.values_list("embed_model", flat=True)) == {TARGET.model}
    assert (ShadowVector.objects.count(), violations()) == (0, [])


def test_campaign_purchases_do_not_use_the_tenants_budget(
    uploaded: Upload, vendor: RecordingOpenAIServer, ana: Person
) -> None:
    ledger.set_budget(ana.id, Decimal("0.000001"))

    job = reembed(uploaded, EmbeddingModel("text-embedding-3-small", "1"))
    worker.drain()

    assert reload_job(job).state == "done"
    assert set(Purchase.objects.values_list("campaign_id", "state")) == {(job.campaign_id, "settled")}
    assert ledger.spent_today(ana.id) == 0


def test_document_with_an_active_job_is_not_enqueued(uploaded: Upload, target: FailingEmbedder) -> None:
    reembed(uploaded)

    for ask in (reembed, rechunk):
        with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
            ask(uploaded)


def test_document_without_passages_is_not_found(ana: Person) -> None:
    waiting = ana.upload(PDF)
    claim_at_stage("chunking")

    with pytest.raises(ApiError, match="NOT_FOUND"):
        reembed(waiting)


def test_deleted_document_takes_its_shadow_vectors_along(
    uploaded: Upload, target: FailingEmbedder, ana: Person
) -> None:
    reembed(uploaded)
    worker.drain()

    assert ana.delete(f"/documents/{uploaded.document_id}").status_code == 204

    assert not ShadowVector.objects.exists()
    assert not DocumentTerm.objects.exists()
    assert claims.claim_next("w") is None


def test_campaign_jobs_are_hidden_from_the_tenant(uploaded: Upload, target: FailingEmbedder, ana: Person) -> None:
    shown = ana.get(f"/job/{uploaded.job_id}").json()

    job = reembed(uploaded)
    claim_at_stage("embeddings_buffered")

    assert ana.get(f"/job/{uploaded.job_id}").json() == shown
    assert ana.get(f"/job/{job.pk}").status_code == 404
    assert ana.get(f"/documents/{uploaded.document_id}").json()["processing_status"] == "complete"


def test_reembedding_yields_between_two_batches(
    uploaded: Upload, target: FailingEmbedder, ben: Person, settings: Any
) -> None:
    settings.EMBED_BATCH = 1
    job = reembed(uploaded)
    claim = claim_at_stage("embedding")
    ben.upload(plan_pdf("hearing aids"))

    ending = worker.run_stage(claim)

    assert isinstance(ending, Wait)
    assert (ending.seconds, ending.reason) == (0.0, "GAVE_WAY")
    assert VectorBuffer.objects.count() == 1
    claim.move("wait", pause=timedelta(0), reason="GAVE_WAY")
    run_all_jobs(2)
    assert reload_job(job).state == "done"
