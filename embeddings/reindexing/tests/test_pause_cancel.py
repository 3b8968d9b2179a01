"""Campaigns that are stopped half way: who is let go, who goes on, and that nothing is left behind."""

import threading
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from accounts.errors import ApiError
from documents.models import Document
from embeddings import active_model, shadow_vectors
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, ChunkBuffer, DocumentChunk, ShadowVector, VectorBuffer, VectorIndex
from embeddings.reindexing import periodic, scheduler, services, tenant_workflow
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.conftest import MODEL, OLD_MODEL, Fill, drain, has_lock_waiter, run_campaigns
from embeddings.search.hybrid_search import search
from jobs.models import UploadJob
from testing.cluster import wait_until
from testing.concurrency import run_concurrently
from testing.personas import Person, claim_at_stage, plan_pdf

pytestmark = pytest.mark.django_db
OLD, NEW = OLD_MODEL["model"], MODEL["model"]
NOTHING: dict[str, Any] = {
    "embed_model": None, "embed_version": None, "vector_dim": None, "vector_sha": None, "embed_updated_at": None,
    "embedding": None,
}  # fmt: skip


def start_campaign(**more: Any) -> Campaign:
    return services.start(kind="reembed", **MODEL, by="sam", **more)


def state(campaign: Campaign, user_id: UUID) -> str:
    return campaign.tenants.get(user_id=user_id).state


@pytest.mark.django_db(transaction=True)
def test_vectors_of_a_newly_active_model_are_not_dropped(fill_tenant: Fill) -> None:
    ana = fill_tenant(1)
    start_campaign()
    drain()
    pointed = threading.Event()

    def pin() -> int:
        with transaction.atomic():
            held = tenant_workflow.lock_active_model(ana)
            assert held
            tenant_workflow.set_active_model(held, EmbeddingModel(**MODEL))
            pointed.set()
            wait_until(has_lock_waiter, seconds=10)
        return 0

    def clear() -> int:
        pointed.wait(10)
        return shadow_vectors.drop_shadow_vectors(ana, EmbeddingModel(**MODEL))

    assert run_concurrently(pin, clear) == [0, 0]
    assert ShadowVector.objects.filter(user_id=ana).count() == 3
    text = DocumentChunk.objects.filter(user_id=ana)[0].text
    assert search(user_id=ana, query=text, mode="vector")


@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_pin_to_vectors_under_removal_is_refused(is_rolled_back: bool, fill_tenant: Fill) -> None:
    ana = fill_tenant(1)
    campaign = start_campaign()
    drain()
    if is_rolled_back:
        periodic.advance_campaigns()
        services.roll_back(campaign, by="sam")
    else:
        services.cancel(campaign, by="sam")
    assert ShadowVector.objects.filter(user_id=ana).count() == 3

    with pytest.raises(ApiError, match="VECTORS_MISSING"):
        services.pin(ana, **MODEL, by="sam")

    assert active_model.active_model(ana).model == OLD


@pytest.mark.parametrize("stop", [services.cancel, services.roll_back])
def test_reverting_tenant_finishes_after_the_campaign_was_stopped(stop: Any, fill_tenant: Fill) -> None:
    ana, _ben = fill_tenant(1), fill_tenant(1)
    campaign = start_campaign()
    run_campaigns(1)
    fill_tenant(2, user_id=ana)
    services.roll_back(campaign, by="sam", user_id=ana)
    queued = scheduler.count_active_jobs(campaign.pk, ana)

    stop(campaign, by="sam")
    left = scheduler.count_active_jobs(campaign.pk, ana)
    run_campaigns()

    assert queued == left == 2
    assert (state(campaign, ana), active_model.active_model(ana).model) == ("rolled_back", OLD)


def test_cancelled_job_is_no_failure_and_is_enqueued_again(fill_tenant: Fill) -> None:
    ana = fill_tenant(2, 1)
    campaign = start_campaign()
    scheduler.cancel_jobs(campaign.pk, [ana], by="sam")
    assert services.campaign_progress(campaign).failed == 0

    run_campaigns()

    assert (state(campaign, ana), active_model.active_model(ana).model) == ("live", NEW)


def test_pinned_tenant_is_not_rolled_back(fill_tenant: Fill) -> None:
    ana, ben = fill_tenant(1), fill_tenant(1)
    campaign = start_campaign()
    run_campaigns(1)
    services.pin(ana, **MODEL, by="sam")

    with pytest.raises(ApiError, match="TENANT_PINNED"):
        services.roll_back(campaign, by="sam", user_id=ana)
    number = services.roll_back(campaign, by="sam")
    late = tenant_workflow.roll_back(campaign.tenants.get(user_id=ana))  # pinned after it was chosen

    assert (number, late, active_model.active_model(ana).model, active_model.active_model(ben).model) == (
        1,
        True,
        NEW,
        OLD,
    )
    assert ActiveModel.objects.get(pk=ana).pinned
    assert state(campaign, ana) == "live"


@pytest.mark.django_db(transaction=True)
def test_settled_vectors_are_indexed_before_old_indexes_are_dropped(fill_tenant: Fill, settings: Any) -> None:
    settings.SEARCH_EXACT_PASSAGES = 4
    fill_tenant(2, 4)
    campaign = start_campaign()
    run_campaigns(1)
    services.settle_now(campaign, by="sam")

    run_campaigns(1)

    (index,) = VectorIndex.objects.all()
    assert (index.table_name, index.embed_model, index.passages) == ("document_chunks", NEW, 8)
    assert index.built_at


def test_cancelled_rechunk_removes_its_chunks(ana: Person) -> None:
    ana.ingest(plan_pdf("drugs", "dental care"))
    before = set(DocumentChunk.objects.values_list("pk", flat=True))
    campaign = services.start(kind="rechunk", chunker="markdown-simple@2", by="sam")
    claim_at_stage("embeddings_buffered")
    assert set(DocumentChunk.objects.values_list("pk", flat=True)) > before
    services.cancel(campaign, by="sam")

    periodic.advance_campaigns()

    assert set(DocumentChunk.objects.values_list("pk", flat=True)) == before
    assert not VectorBuffer.objects.exists()
    assert not ChunkBuffer.objects.exists()
    assert campaign.tenants.get().ended_at
    assert Document.objects.get().chunks_version == "markdown-simple@3"


def test_obsolete_dead_letters_do_not_hold_a_tenant(fill_tenant: Fill) -> None:
    ana = fill_tenant(2, 1)
    campaign = start_campaign()
    job = UploadJob.objects.filter(campaign_id=campaign.pk)[0]
    dead = {"state": "deadletter", "finished_at": "2026-01-01T00:00Z", "last_error": {"code": "TEXT_REFUSED"}}
    UploadJob.objects.filter(pk=job.pk).update(**dead)
    run_campaigns(2)
    held = campaign.tenants.get()

    DocumentChunk.objects.filter(document_id=job.document_id).update(**NOTHING)
    run_campaigns()

    assert (held.state, held.reason, held.failed) == ("held", "JOBS_FAILED", 1)
    assert (state(campaign, ana), active_model.active_model(ana).model) == ("live", NEW)
