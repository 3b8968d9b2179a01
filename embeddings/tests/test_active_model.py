"""The pointer: the first vectors decide it, documents follow it, and a commit of another model is made anew."""

import logging
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from django.db import connection

from embeddings import active_model, buffer_cleanup
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, DocumentChunk, DocumentTerm, VectorBuffer
from embeddings.search.postings import POSTING
from embeddings.tests.conftest import RecordingOpenAIServer
from jobs import claims, failpoints, worker
from jobs.claims import Claim
from jobs.models import UploadJob
from jobs.outcomes import Moved
from testing.concurrency import run_concurrently
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.personas import Person, Upload, claim_at_stage, plan_pdf, run_all_jobs

PDF, ANOTHER = plan_pdf("hospital care", "drugs"), plan_pdf("dental care")
INSTANT = "testing.embedders.InstantEmbedder"
LOCAL = EmbeddingModel("wordllama-l2-supercat-256-padded", "1")
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def instant(settings: Any) -> None:
    settings.EMBEDDER = INSTANT


def models(uploaded: Upload) -> set[str | None]:
    return set(DocumentChunk.objects.filter(document=uploaded.document_id).values_list("embed_model", flat=True))


def point(person: Person, model: str, version: str = "1") -> None:
    """Pinned: a pointer that has no vectors yet would bind nobody."""
    named = {"embed_model": model, "embed_version": version, "pinned": True}
    ActiveModel.objects.update_or_create(pk=person.id, defaults=named)


def expire() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = now() - interval '1 hour' WHERE state = 'working'")


def sent_back_from(job: UploadJob) -> list[str]:
    return list(job.events.filter(code="MODEL_CHANGED").values_list("payload__from", flat=True))


def counted(uploaded: Upload) -> list[int]:
    """Return the passages that full text search knows."""
    every = DocumentTerm.objects.get(document=uploaded.document_id, term="")
    return list(np.frombuffer(every.postings, POSTING)["ord"])


def test_first_vectors_decide_the_tenants_model(ana: Person, settings: Any) -> None:
    assert not ActiveModel.objects.exists()
    assert active_model.active_model(ana.id) == EmbeddingModel("instant", "1")

    uploaded = ana.ingest(PDF)
    settings.EMBEDDER = "local"

    assert active_model.active_model(ana.id) == EmbeddingModel("instant", "1")
    assert models(uploaded) == {"instant"}
    assert counted(uploaded) == sorted(DocumentChunk.objects.values_list("chunk_ord", flat=True))


def test_tenant_without_documents_starts_with_the_configured_model(ana: Person, settings: Any) -> None:
    first = ana.ingest(PDF)
    settings.EMBEDDER = "local"
    assert ana.delete(f"/documents/{first.document_id}").status_code == 204

    assert active_model.active_model(ana.id) == LOCAL
    uploaded = ana.ingest(ANOTHER)

    assert uploaded.job.state == "done"
    assert models(uploaded) == {LOCAL.model}
    assert ActiveModel.objects.get(pk=ana.id).embed_model == LOCAL.model
    assert not uploaded.job.events.filter(code="MODEL_CHANGED").exists()


def test_changing_embedder_keeps_a_tenant_on_its_model(ana: Person, ben: Person, settings: Any) -> None:
    settings.EMBEDDER = "local"
    ana.ingest(PDF)
    settings.EMBEDDER = INSTANT

    old, new = ana.ingest(ANOTHER), ben.ingest(ANOTHER)

    assert (old.job.state, new.job.state) == ("done", "done")
    assert (active_model.active_model(ana.id), active_model.active_model(ben.id)) == (
        LOCAL,
        EmbeddingModel("instant", "1"),
    )
    assert (models(old), models(new)) == ({LOCAL.model}, {"instant"})


@pytest.mark.parametrize("stage", ["embedding", "embeddings_buffered"])
def test_job_planned_before_a_cut_over_ends_with_the_new_model(stage: str, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage(stage)
    point(ana, *_named(LOCAL))
    expire()

    run_all_jobs(1)

    job = uploaded.job
    assert (job.state, job.embed_model) == ("done", LOCAL.model)
    assert models(uploaded) == {LOCAL.model}
    assert not VectorBuffer.objects.exists()
    assert sent_back_from(job) == [stage]


@pytest.mark.parametrize("sold_here", [False, True])
def test_cut_over_stops_buying_with_the_old_model(
    sold_here: bool, ana: Person, vendor: RecordingOpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMBED_BATCH, settings.EMBED_IN_FLIGHT = 10, 1
    if sold_here:
        settings.EMBEDDER = "testing.personas.FailingEmbedder"
    seen, job = _record_texts(), create_chunked_job(passage_texts(60), user_id=ana.id)
    monkeypatch.setattr(
        failpoints, "failpoint", lambda place: point(ana, *_named(LOCAL)) if place == "embedding:answered" else None
    )

    worker.drain()

    bought = len(seen) + vendor.ledger.sold
    assert bought == 10 if sold_here else 10 < bought <= 30  # what was in the air is kept, and goes with the plan
    ended = UploadJob.objects.get(pk=job.pk)
    assert (ended.state, ended.embed_model, sent_back_from(ended)) == ("done", LOCAL.model, ["embedding"])
    assert set(DocumentChunk.objects.values_list("embed_model", flat=True)) == {LOCAL.model}
    assert not VectorBuffer.objects.exists()


def test_attempt_after_a_cut_over_buys_nothing_with_the_old_model(ana: Person, vendor: RecordingOpenAIServer) -> None:
    job = create_chunked_job(passage_texts(20), user_id=ana.id)
    claim_at_stage("embedding")
    point(ana, *_named(LOCAL))
    expire()

    run_all_jobs(1)

    assert vendor.requests == 0
    assert UploadJob.objects.get(pk=job.pk).state == "done"


def test_rewound_job_commits_nothing_and_releases_its_claim(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim = claim_at_stage("embeddings_buffered")
    point(ana, *_named(LOCAL))

    ending = worker.run_stage(claim)

    assert isinstance(ending, Moved)
    assert ending.ended
    job = uploaded.job
    assert (job.stage, job.state, job.claim_token, job.attempts) == ("chunked", "queued", None, 0)
    assert models(uploaded) == {None}
    assert not VectorBuffer.objects.exists()
    assert not DocumentTerm.objects.exists()


def test_two_first_documents_with_different_models_end_with_one_model(ana: Person, settings: Any) -> None:
    first = ana.upload(PDF)
    one = claim_at_stage("embeddings_buffered")
    settings.EMBEDDER = "local"
    second = ana.upload(ANOTHER)
    other = claim_at_stage("embeddings_buffered")
    assert {one.job.embed_model, other.job.embed_model} == {"instant", LOCAL.model}

    endings = [worker.run_stage(other), worker.run_stage(one)]
    settings.EMBEDDER = INSTANT  # so that both models are made here
    expire()
    run_all_jobs(1)

    assert [isinstance(ending, Moved) and ending.ended for ending in endings] == [False, True]
    assert (first.job.state, second.job.state) == ("done", "done")
    assert models(first) == models(second) == {LOCAL.model}


@pytest.mark.django_db(transaction=True)
def test_concurrent_commits_agree_on_a_model(ana: Person, settings: Any) -> None:
    uploads = [ana.upload(PDF)]
    held = [claim_at_stage("embeddings_buffered")]
    settings.EMBEDDER = "local"
    uploads.append(ana.upload(ANOTHER))
    held.append(claim_at_stage("embeddings_buffered"))

    run_concurrently(*(lambda claim=claim: worker.run_stage(claim) for claim in held))

    settings.EMBEDDER = INSTANT
    expire()
    run_all_jobs(1)
    assert [uploaded.job.state for uploaded in uploads] == ["done", "done"]
    assert {model for uploaded in uploads for model in models(uploaded)} == {active_model.active_model(ana.id).model}


def test_job_waits_for_an_unconfigured_model_without_spending_attempts(
    ana: Person, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    point(ana, "gone")

    with monkeypatch.context() as patch:
        patch.setitem(registry.OPTIONAL_PACKAGES, settings.EMBEDDER, ("no-such-package",))
        uploaded = ana.ingest(PDF)

    job = uploaded.job
    assert (job.stage, job.state, job.wait_reason, job.attempts) == ("chunked", "queued", "MODEL_UNAVAILABLE", 0)
    (error,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert "gone@1" in error
    assert "Missing packages: no-such-package." in error
    point(ana, "instant")
    run_all_jobs(1)
    assert uploaded.job.state == "done"


def test_unconfigured_planned_model_is_replanned_when_another_is_active(ana: Person, settings: Any) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("embedding")
    settings.EMBEDDER = "local"  # nobody makes instant's vectors any more, and no vector of the tenant is of it
    expire()

    run_all_jobs(1)

    assert (uploaded.job.state, models(uploaded)) == ("done", {LOCAL.model})


def test_repeated_passage_is_embedded_once_and_found_each_time(ana: Person, settings: Any) -> None:
    settings.EMBEDDER = "testing.personas.FailingEmbedder"
    from_vendor = _record_texts()
    uploaded = ana.ingest(plan_pdf("hospital care", "hospital care", "hospital care"))

    chunks = DocumentChunk.objects.filter(document=uploaded.document_id)
    assert uploaded.job.state == "done"
    assert len(from_vendor) == chunks.values("chunk_sha").distinct().count() < chunks.count()
    assert not chunks.filter(embedding=None).exists()
    plan = uploaded.job.payload
    assert (plan["reused"], plan["cents_saved"]) == (chunks.count() - len(from_vendor), 0)
    assert Decimal(plan["tokens_saved"]) > 0


def test_cleanup_deletes_vectors_of_a_replaced_model(ana: Person) -> None:
    uploaded = ana.upload(PDF)
    claim: Claim = claim_at_stage("embeddings_buffered")
    UploadJob.objects.filter(pk=claim.job.pk).update(
        state="deadletter", finished_at=uploaded.job.created_at, claim_token=None, lease_until=None, slot=None
    )
    point(ana, *_named(LOCAL))

    buffer_cleanup.empty_buffers()

    assert models(uploaded) == {None}
    assert not VectorBuffer.objects.exists()
    assert claims.claim_next("w") is None


def _named(model: EmbeddingModel) -> tuple[str, str]:
    return model.model, model.version


def _record_texts() -> list[str]:
    embedder: Any = registry.get_embedder("testing.personas.FailingEmbedder")
    embedder.seen, embedder.calls_until_failure = [], -1
    seen: list[str] = embedder.seen
    return seen
